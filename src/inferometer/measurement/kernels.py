"""Timed kernels: one row is one kernel on one chip, in our own columns and SI units.

FILES are samples of the tables that NVIDIA's aiconfigurator-core 0.12.0 ships (Apache-2.0;
github.com/ai-dynamo/aiconfigurator), written by `scripts/make_timings.py` and, of the first, `scripts/make_kernels.py`.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from inferometer.measurement.points import DATA, read_rows, read_text

COLUMNS = (
    "chip",
    "op",
    "engine",
    "version",
    "kernel",
    "dtype",
    "m",
    "n",
    "k",
    "batch",
    "isl",
    "kv_len",
    "prefix",
    "heads",
    "kv_heads",
    "head_dim",
    "tokens",
    "hidden",
    "width",
    "top_k",
    "experts",
    "tp",
    "ep",
    "distribution",
    "message_bytes",
    "n_chips",
    "nodes",
    "seconds",
)

FILES = ("kernels.csv.gz", "products.csv.gz", "cores.csv.gz", "latents.csv.gz", "experts.csv.gz")

Row = dict[str, str]

__all__ = ["COLUMNS", "DATA", "load_kernels", "tables"]


@lru_cache(maxsize=1)
def load_kernels() -> tuple[Row, ...]:
    """Return every committed timing."""
    return tuple(row for file in FILES for row in read_rows(read_text(DATA / file), file, COLUMNS))


def tables(rows: Iterable[Row], op: str) -> Iterator[tuple[tuple[str, str, str], list[Row]]]:
    """Yield ((chip, engine, dtype), rows) of one operation."""

    def key(row: Row) -> tuple[str, str, str]:
        return row["chip"], row["engine"], row["dtype"]

    for name, group in groupby(sorted((row for row in rows if row["op"] == op), key=key), key):
        yield name, list(group)
