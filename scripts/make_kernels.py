"""Write the committed table of kernel timings from the collected one.

python scripts/make_kernels.py MEASURED_OPS_CSV

MEASURED_OPS_CSV has the columns of NVIDIA's aiconfigurator-core perf tables (Apache-2.0), sampled. The same input gives
the same table.
"""

import sys
from pathlib import Path

from make_points import packed

from inferometer.measurement.kernels import COLUMNS, DATA
from inferometer.measurement.points import read_rows, read_text

CHIPS = {
    "a100_sxm": "a100-80-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "gb200": "gb200-nvl72",
    "l40s": "l40s",
}
APART = ("gemm", "attn_decode", "moe_grouped_gemm")
"""Products, decode attention and expert blocks come from the package itself (`make_timings.py`)."""
RENAMED = {
    "framework": "engine",
    "num_heads": "heads",
    "num_kv_heads": "kv_heads",
    "num_tokens": "tokens",
    "hidden_size": "hidden",
    "inter_size": "width",
    "topk": "top_k",
    "num_experts": "experts",
    "moe_tp": "tp",
    "moe_ep": "ep",
    "num_gpus": "n_chips",
    "node_num": "nodes",
}


def main() -> None:
    """Write the table."""
    rows = []
    for row in read_rows(read_text(Path(sys.argv[1])), sys.argv[1], ("system", "op", "latency_ms")):
        if row["op"] in APART:
            continue
        own = {RENAMED.get(name, name): cell for name, cell in row.items()}
        own |= {"chip": CHIPS[row["system"]], "seconds": f"{float(row['latency_ms']) * 1e-3:.6g}"}
        rows.append({name: own.get(name, "") for name in COLUMNS})
    (DATA / "kernels.csv.gz").write_bytes(packed(rows, COLUMNS))
    sys.stdout.write(f"{len(rows)} kernels\n")


if __name__ == "__main__":
    main()
