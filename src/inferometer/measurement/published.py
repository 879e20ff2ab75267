"""The dialect in which measurements are collected, and its way into our columns.

Milliseconds and tok/s in a column `value`, whose unit the metric's name says; source, date and notes on every row.
A user's own measurements come in this dialect or in ours; a metric may go by our name there too, in our unit.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType

from inferometer.errors import InferometerError, unknown_name
from inferometer.measurement.points import (
    METRIC_UNITS,
    POINT_COLUMNS,
    SOURCE_COLUMNS,
    Point,
    Source,
    points_from_rows,
    read_rows,
    read_text,
)

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "ttft_ms": "ttft",
        "tpot_ms": "tpot",
        "e2e_latency_ms": "e2e_latency",
        "op_latency_ms": "op_latency",
        "output_tok_s_total": "output_tok_per_s",
        "output_tok_s_per_gpu": "output_tok_per_s_per_chip",
        "output_tok_s_per_decode_gpu": "output_tok_per_s_per_decode_chip",
        "total_tok_s_per_gpu": "total_tok_per_s_per_chip",
        "input_tok_s_per_gpu": "input_tok_per_s_per_chip",
    }
)
"""Name in the dialect -> our metric."""

COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "id": "id",
        "group_id": "group_id",
        "class": "clean",
        "model": "model",
        "weight_format": "weight_dtype",
        "kv_format": "kv_dtype",
        "hardware": "hardware",
        "n_chips": "n_chips",
        "tp": "tp",
        "ep": "ep",
        "dp_attention": "dp_attention",
        "pp": "pp",
        "disaggregated": "disagg",
        "framework": "framework",
        "framework_version": "framework_version",
        "speculation": "spec_decode",
        "phase": "phase",
        "isl_tok": "isl",
        "osl_tok": "osl",
        "batch": "concurrency_or_batch",
    }
)
"""Our column -> its name in the dialect. Left out: total_params_b, which is the model's."""

SOURCE_CELLS: Mapping[str, str] = MappingProxyType(
    {"name": "source", "url": "url_or_repo", "date": "date", "notes": "notes"}
)

NEEDED = (
    *(COLUMNS[c] for c in ("group_id", "class", "model", "weight_format", "hardware", "n_chips", "tp")),
    *(COLUMNS[c] for c in ("isl_tok", "osl_tok", "batch")),
    "metric",
    "value",
)
"""Columns a file in the dialect cannot do without; the others may be missing, which says the same as empty."""


def to_seconds(cell: str, where: str) -> str:
    """Return milliseconds as seconds, digit for digit.

    >>> to_seconds("9.648023886344358", "x")
    '0.009648023886344358'
    """
    try:
        shifted = Decimal(cell).scaleb(-3)
    except InvalidOperation:
        raise InferometerError(f"{where} is {cell[:40]!r}; allowed: a number above 0") from None
    return format(shifted, "f") if shifted.is_finite() else cell


def to_own(
    rows: Iterable[Mapping[str, str]], doubts: Mapping[str, str], where: str
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return rows of POINT_COLUMNS and of SOURCE_COLUMNS from rows of the dialect.

    `doubts` is group -> kinds of doubt, joined by semicolons. Sources are numbered in order of first appearance.
    """
    idents: dict[tuple[str, ...], str] = {}
    points = []
    for line, row in enumerate(rows, start=2):
        origin = tuple(row.get(cell, "") for cell in SOURCE_CELLS.values())
        ident = idents.setdefault(origin, f"s{len(idents) + 1:04d}")
        points.append(
            _own_row(row, f"{where} line {line}")
            | {
                "source_id": ident,
                "suspicious": doubts.get(row["group_id"], ""),
            }
        )
    sources = [dict(zip(SOURCE_COLUMNS, (ident, *origin), strict=True)) for origin, ident in idents.items()]
    return points, sources


def _own_row(row: Mapping[str, str], where: str) -> dict[str, str]:
    spelled = row["metric"]
    if spelled not in METRICS and spelled not in METRIC_UNITS:
        raise unknown_name(f"metric ({where})", spelled, METRICS)
    metric = METRICS.get(spelled, spelled)
    own = dict.fromkeys(POINT_COLUMNS, "") | {ours: row.get(theirs, "") for ours, theirs in COLUMNS.items()}
    if METRIC_UNITS[metric] == "s" and spelled not in METRIC_UNITS:
        value = {"value_s": to_seconds(row["value"], f"{where}: value")}
    else:
        value = {"value_s" if METRIC_UNITS[metric] == "s" else "value_tok_per_s": row["value"]}
    return own | {"metric": metric} | value


def read_points(path: str | Path) -> tuple[Point, ...]:
    """Return the points of a user's CSV (`.gz` too), in the published dialect or in our own columns.

    Raises InferometerError, one line, for a file that cannot be read, a missing column and a bad number.
    """
    file = Path(path)
    text = read_text(file)
    header = {name.strip() for name in text.split("\n", 1)[0].split(",")}
    if set(POINT_COLUMNS) <= header:
        return tuple(points_from_rows(read_rows(text, str(path), POINT_COLUMNS), {}, str(path)))
    rows = read_rows(text, str(path), NEEDED)
    points, sources = to_own(rows, {}, str(path))
    named = {row["source_id"]: Source(**row) for row in sources}
    return tuple(points_from_rows(points, named, str(path)))
