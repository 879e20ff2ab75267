"""Write the committed tables of timed products, decode cores and experts from an installed aiconfigurator-core.

python scripts/make_timings.py

Samples of its tables (Apache-2.0): by chip, dtype and engine (experts by kernel too) so many rows of the newest version
that has them, in the order of a hash of what is timed: the same package gives the same tables. Left out: products of
more rows than a pass has or of an engine that times more (`fit_plan.PRODUCTS`); attention over a window, of heads that
are not of 128, and of query heads a kv head that no model has or that other kernels take; experts on one rank of
several, which sees other tokens in every engine, and blocks without a gate. Tokens are spread evenly over experts.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from make_points import packed
from packaging.version import Version

from inferometer.cost.silicon import MOE, SYSTEMS, Silicon
from inferometer.measurement.fit_plan import PRODUCTS, kernels_of
from inferometer.measurement.kernel_works import DTYPES
from inferometer.measurement.kernels import COLUMNS, DATA

MOST_TOKENS, MOST_TP = 16384, 16
HEAD_DIM, GROUPS = "128", {"VLLM": range(1, 17), "TRTLLM": range(2, 17)}
"""Engine -> query heads a kv head that its kernel of decode attention takes."""
COMMON = {"kernel": "kernel_source", "version": "version"}


def is_block(own: Mapping[str, str], row: Mapping[str, Any], engine: str) -> bool:
    """Return whether a row times an expert block that is meant."""
    del engine
    alone = row["moe_ep_size"] == 1
    plain = row["distribution"] == "balanced" and "nongated" not in row["kernel_source"]
    small = row["num_tokens"] <= MOST_TOKENS and row["moe_tp_size"] <= MOST_TP
    return alone and plain and small and bool(kernels_of(own["dtype"], own["kernel"]))


def is_product(own: Mapping[str, str], row: Mapping[str, Any], engine: str) -> bool:
    """Return whether a row times a product that is meant."""
    stored = next((stored for stored, dtype in DTYPES.items() if dtype == own["dtype"]), "")
    return row["m"] <= MOST_TOKENS and engine in PRODUCTS.get(stored, ())


def is_core(own: Mapping[str, str], row: Mapping[str, Any], engine: str) -> bool:
    """Return whether a row times decode attention that is meant, and say how long its cache is."""
    if engine not in GROUPS or row["attn_dtype"] != "bfloat16" or row.get("window_size", 0):
        return False
    return own["head_dim"] == HEAD_DIM and row["num_heads"] / row["num_key_value_heads"] in GROUPS[engine]


def of_cache(row: Mapping[str, Any]) -> dict[str, str]:
    """Return what the columns of decode attention do not say alone: one query, the cache's length and format."""
    return {"isl": "1", "kv_len": str(row["isl"] + row["step"]), "dtype": f"kv_{row['kv_cache_dtype']}"}


def is_latent(own: Mapping[str, str], row: Mapping[str, Any], engine: str) -> bool:
    """Return whether a row times a core over latents that is meant: not one that unpacks its cache of 8 bits first."""
    del engine
    unpacks = own["kernel"] == "flash_attention" and own["dtype"] == "kv_fp8"
    return bool(row["mla_dtype"] == "bfloat16") and not unpacks


class Sample(NamedTuple):
    """One table to write."""

    file: str
    op: str
    family: str
    names: Mapping[str, str]
    """Our columns -> the package's."""
    meant: Callable[[Mapping[str, str], Mapping[str, Any], str], bool]
    groups: tuple[str, ...]
    """Columns by which rows are counted, and only the newest version's taken."""
    most: int
    """Rows of a group."""
    table: str = ""
    """The package's; like the family where it says nothing."""
    more: Callable[[Mapping[str, Any]], dict[str, str]] = lambda row: {}  # noqa: ARG005 (called as the other)
    """Columns that are worked out."""


SAMPLES = (
    Sample(
        file="experts.csv.gz",
        op="moe_grouped_gemm",
        family="moe",
        names={**MOE, "distribution": "distribution", "dtype": "moe_dtype", **COMMON},
        meant=is_block,
        groups=("chip", "dtype", "kernel", "engine"),
        most=120,
    ),
    Sample(
        file="products.csv.gz",
        op="gemm",
        family="gemm",
        names={"m": "m", "n": "n", "k": "k", "dtype": "gemm_dtype", **COMMON},
        meant=is_product,
        groups=("chip", "dtype", "engine"),
        most=400,
    ),
    Sample(
        file="cores.csv.gz",
        op="attn_decode",
        family="attention",
        names={
            "batch": "batch_size",
            "heads": "num_heads",
            "kv_heads": "num_key_value_heads",
            "head_dim": "head_dim",
            **COMMON,
        },
        meant=is_core,
        groups=("chip", "dtype", "engine"),
        most=300,
        table="generation_attention",
        more=of_cache,
    ),
    Sample(
        file="latents.csv.gz",
        op="mla_decode",
        family="mla",
        names={"batch": "batch_size", "heads": "num_heads", **COMMON},
        meant=is_latent,
        groups=("chip", "dtype", "engine"),
        most=300,
        table="generation_mla",
        more=of_cache,
    ),
)


def rows_of(sample: Sample, chip: str, path: Path, engine: str) -> list[dict[str, str]]:
    """Return the rows of one table that are taken, in our columns."""
    parquet = import_module("pyarrow.parquet")
    found = []
    for row in parquet.read_table(path).to_pylist():
        own = {ours: str(row[theirs]) for ours, theirs in sample.names.items()} | sample.more(row)
        if sample.meant(own, row, engine):
            own |= {"chip": chip, "op": sample.op, "engine": engine}
            found.append({name: own.get(name, "") for name in COLUMNS} | {"seconds": f"{row['latency'] * 1e-3:.6g}"})
    return found


def write(sample: Sample) -> int:
    """Write one table, and return its rows."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for chip, system in SYSTEMS.items():
        tables = Silicon().tables_of(system, sample.family, f"{sample.table or sample.family}_perf")
        for engine, version, path in sorted(tables, key=lambda table: (table[0], Version(table[1]))):
            for row in rows_of(sample, chip, path, engine.upper()):
                key = tuple(row[name] for name in sample.groups)
                if groups[key] and groups[key][0]["version"] != row["version"]:
                    groups[key] = []
                groups[key].append(row)
            sys.stdout.write(f"{chip} {engine} {version}\n")
    rows = []
    for key in sorted(groups):
        timed = sorted(groups[key], key=lambda row: crc32("|".join(row.values()).encode()))
        rows += sorted(timed[: sample.most], key=lambda row: tuple(row.values()))
    (DATA / sample.file).write_bytes(packed(rows, COLUMNS))
    return len(rows)


def main() -> None:
    """Write the tables."""
    for sample in SAMPLES:
        sys.stdout.write(f"{sample.file}: {write(sample)} rows\n")


if __name__ == "__main__":
    main()
