"""Write the committed table of timed expert blocks from an installed aiconfigurator-core.

python scripts/make_experts.py

A sample of its `moe_perf` tables (Apache-2.0): by chip, dtype and kernel up to MOST rows of each engine's newest
version that has it, tokens spread evenly over experts, in the order of a hash of what is timed: the same package gives
the same table. Left out: one rank of several with experts, which sees other tokens in every engine, and blocks without
a gate.
"""

import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from zlib import crc32

from make_points import packed
from packaging.version import Version

from inferometer.cost.silicon import MOE, SYSTEMS, Silicon
from inferometer.measurement.fit_plan import kernels_of
from inferometer.measurement.kernels import COLUMNS, DATA

MOST = 120
MOST_TOKENS, MOST_TP = 16384, 16
NAMES = {
    **MOE,
    "distribution": "distribution",
    "dtype": "moe_dtype",
    "kernel": "kernel_source",
    "version": "version",
}


def rows_of(chip: str, path: Path, engine: str) -> list[dict[str, str]]:
    """Return the rows of one table that are taken, in our columns."""
    parquet = import_module("pyarrow.parquet")
    found = []
    for row in parquet.read_table(path).to_pylist():
        own = {ours: str(row[theirs]) for ours, theirs in NAMES.items()}
        alone = row["moe_ep_size"] == 1
        plain = row["distribution"] == "balanced" and "nongated" not in row["kernel_source"]
        small = row["num_tokens"] <= MOST_TOKENS and row["moe_tp_size"] <= MOST_TP
        if alone and plain and small and kernels_of(own["dtype"], own["kernel"]):
            own |= {"chip": chip, "op": "moe_grouped_gemm", "engine": engine}
            found.append({name: own.get(name, "") for name in COLUMNS} | {"seconds": f"{row['latency'] * 1e-3:.6g}"})
    return found


def main() -> None:
    """Write the table."""
    groups: dict[tuple[str, str, str, str], list[dict[str, str]]] = defaultdict(list)
    for chip, system in SYSTEMS.items():
        tables = Silicon().tables_of(system, "moe", "moe_perf")
        for engine, version, path in sorted(tables, key=lambda table: (table[0], Version(table[1]))):
            for row in rows_of(chip, path, engine.upper()):
                key = (chip, row["dtype"], row["kernel"], row["engine"])
                if groups[key] and groups[key][0]["version"] != row["version"]:
                    groups[key] = []
                groups[key].append(row)
            sys.stdout.write(f"{chip} {engine} {version}\n")
    rows = []
    for key in sorted(groups):
        timed = sorted(groups[key], key=lambda row: crc32("|".join(row.values()).encode()))
        rows += sorted(timed[:MOST], key=lambda row: tuple(row.values()))
    (DATA / "experts.csv.gz").write_bytes(packed(rows, COLUMNS))
    sys.stdout.write(f"{len(rows)} timed expert blocks\n")


if __name__ == "__main__":
    main()
