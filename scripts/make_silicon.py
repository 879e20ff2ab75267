"""Write the recorded timings that tests of the measured backend stand on, with aiconfigurator-core or without.

python scripts/make_silicon.py

A few dozen rows of its tables for one chip (NVIDIA, Apache-2.0), in the letters of `cost.measured_forms`: of rows that
several engines timed, the middle one. The same version gives the same file.
"""

import json
import sys
from pathlib import Path

import numpy as np

from inferometer.cost.silicon import FORMS, PACKAGE, Silicon

CHIP = "h200-sxm"
OUT = Path(__file__).parents[1] / "tests" / "cost" / "data" / "silicon.json"
KEPT = {
    "gemm.bf16": {"m": [1, 16, 64, 256, 1024, 4096], "n": [4096, 8192], "k": [4096, 8192]},
    "decode.kv16": {"batch": [1, 16, 128], "heads": [32], "kv_heads": [8], "dim": [128], "step": [1023, 8191, 65535]},
    "prefill.kv16": {"batch": [1, 4], "isl": [256, 1024, 4096], "heads": [32], "kv_heads": [8], "dim": [128]},
    "mla-decode.kv16": {"batch": [1, 16, 128], "heads": [16], "step": [1023, 8191]},
    "mla-prefill": {"batch": [1, 4], "heads": [16], "isl": [256, 1024, 4096]},
    "bmm-in.bf16": {"m": [1, 16, 256], "heads": [16]},
    "moe.fp8-block": {
        "tokens": [1, 16, 256, 4096],
        "hidden": [7168],
        "width": [2048],
        "top_k": [8],
        "experts": [256],
        "tp": [1],
        "ep": [8],
    },
}


def main() -> None:
    """Write the file."""
    tables = Silicon()
    rows = []
    for form, wanted in KEPT.items():
        table = tables.read(CHIP, form)
        if table is None:
            raise SystemExit(f"{form}: no rows")
        keep = np.ones(len(table.seconds), dtype=bool)
        for letter, values in wanted.items():
            keep &= np.isin(table.columns[letter], values)
        found: dict[tuple[float, ...], list[float]] = {}
        for i in np.flatnonzero(keep):
            found.setdefault(tuple(float(table.columns[x][i]) for x in FORMS[form].letters), []).append(
                float(table.seconds[i])
            )
        for at, seconds in sorted(found.items()):
            values = dict(zip(FORMS[form].letters, at, strict=True))
            rows.append({"form": form, **values, "seconds": float(f"{np.median(seconds):.6g}")})
    source = f"NVIDIA {PACKAGE} {tables.version} (Apache-2.0), tables of {CHIP}; scripts/make_silicon.py"
    lines = ",\n".join(json.dumps(row) for row in rows)
    OUT.write_text(f'{{"source": {json.dumps(source)}, "chip": "{CHIP}", "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    sys.stdout.write(f"{len(rows)} rows\n")


if __name__ == "__main__":
    main()
