"""Published measurements: one row is one metric of one configuration, in our own columns and SI units.

`data/points.csv.gz` holds the rows and `data/sources.csv.gz` what they come from; `scripts/make_points.py` writes
both. Rows of one configuration share `group_id`. Nothing is read before it is asked for.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from inferometer.errors import InferometerError, unknown_name

DATA = Path(__file__).parent / "data"

METRIC_UNITS: Mapping[str, str] = MappingProxyType(
    {
        "ttft": "s",
        "tpot": "s",
        "e2e_latency": "s",
        "op_latency": "s",
        "output_tok_per_s": "tok/s",
        "output_tok_per_s_per_chip": "tok/s",
        "output_tok_per_s_per_decode_chip": "tok/s",
        "total_tok_per_s_per_chip": "tok/s",
        "input_tok_per_s_per_chip": "tok/s",
    }
)
"""Metric -> unit of its value. `total` counts input and output tokens."""

CLASSES = ("A", "B", "B2", "C", "D", "O")
"""A: fixed batch, all start together. B, B2: closed loop, one engine (B2: weaker provenance). C: most throughput,
unlimited arrivals. D: disaggregated. O: one operation."""

POINT_COLUMNS = (
    "id",
    "group_id",
    "class",
    "model",
    "weight_format",
    "kv_format",
    "hardware",
    "n_chips",
    "tp",
    "ep",
    "dp_attention",
    "pp",
    "disaggregated",
    "framework",
    "framework_version",
    "speculation",
    "phase",
    "isl_tok",
    "osl_tok",
    "batch",
    "metric",
    "value_s",
    "value_tok_per_s",
    "suspicious",
    "source_id",
)
SOURCE_COLUMNS = ("source_id", "name", "url", "date", "notes")

MAX_COUNT = 10**9
"""More tokens, chips or requests than any row will have; a larger one is a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from, and what their authors say about them."""

    source_id: str
    name: str
    """File or table within `url`."""
    url: str
    date: str
    notes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One published number, and the configuration it was measured on. None where the source does not say."""

    id: str
    group_id: str
    klass: str
    """One of CLASSES."""
    model: str
    weight_format: str
    """As the source spells it."""
    kv_format: str
    hardware: str
    """As the source spells it."""
    n_chips: int | None
    tp: int | None
    ep: int | None
    dp_attention: bool
    """Attention data parallel over what `tp` counts."""
    pp: int | None
    disaggregated: str
    framework: str
    framework_version: str
    speculation: str
    phase: str
    """e2e, prefill, decode or op."""
    isl_tok: int | None
    osl_tok: int | None
    batch: int | None
    """Requests that start together (class A), or concurrency."""
    metric: str
    value_s: float | None
    value_tok_per_s: float | None
    """Of `value_s` and this, the one that METRIC_UNITS says."""
    suspicious: tuple[str, ...]
    """Kinds of doubt that a study of the rows raised: outlier, below roofline, memory ..."""
    source: Source

    @property
    def measured(self) -> float:
        """The value, in the unit of METRIC_UNITS."""
        value = self.value_s if METRIC_UNITS[self.metric] == "s" else self.value_tok_per_s
        if value is None:
            raise AssertionError(f"{self.id} has no value")
        return value

    @property
    def is_time(self) -> bool:
        """Whether the value is seconds; else it is a rate."""
        return METRIC_UNITS[self.metric] == "s"


def read_text(path: Path) -> str:
    """Return a UTF-8 text file, unpacked where its name ends in `.gz`.

    Raises InferometerError, one line, for a file that cannot be read.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise InferometerError(f"{path} cannot be read: {why}") from None


def read_rows(text: str, where: str, required: Sequence[str]) -> list[dict[str, str]]:
    """Return a CSV's rows, cells stripped.

    Raises InferometerError for missing columns, and for a row with more cells than columns.
    """
    reader = csv.DictReader(io.StringIO(text), restval="")
    if missing := [c for c in required if c not in (reader.fieldnames or ())]:
        raise InferometerError(f"{where}: no column {', '.join(missing)}; needed: {', '.join(required)}")
    out = []
    try:
        for row in reader:
            if None in row:
                raise InferometerError(f"{where} line {reader.line_num}: more cells than columns")
            out.append({k: v.strip() for k, v in row.items()})
    except csv.Error as error:
        raise InferometerError(f"{where} line {reader.line_num}: {error}") from None
    return out


def whole(cell: str, where: str, *, least: int = 0) -> int | None:
    """Return a whole number, None for an empty cell; raises InferometerError for anything else.

    >>> whole("8", "x"), whole("", "x")
    (8, None)
    """
    if not cell:
        return None
    if not (cell.isascii() and cell.isdecimal()) or len(cell) > len(str(MAX_COUNT)) or not least <= int(cell):
        raise InferometerError(f"{where} is {cell[:40]!r}; allowed: a whole number of {least} or more, or nothing")
    return int(cell)


def positive(cell: str, where: str) -> float:
    """Return a finite number above 0; raises InferometerError for anything else."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InferometerError(f"{where} is {cell[:40]!r}; allowed: a number above 0")
    return value


def yes_no(cell: str, where: str) -> bool:
    """Return whether a cell says `y`; an empty one means no."""
    if cell not in ("y", "n", ""):
        raise InferometerError(f"{where} is {cell[:40]!r}; allowed: y, n or nothing")
    return cell == "y"


def points_from_rows(rows: Iterable[Mapping[str, str]], sources: Mapping[str, Source], where: str) -> list[Point]:
    """Return typed points from rows of POINT_COLUMNS; raises InferometerError naming file, line and column."""
    return [_point(row, sources, f"{where} line {line}") for line, row in enumerate(rows, start=2)]


def _point(row: Mapping[str, str], sources: Mapping[str, Source], where: str) -> Point:
    metric = row["metric"]
    if metric not in METRIC_UNITS:
        raise unknown_name(f"metric ({where})", metric, METRIC_UNITS)
    if row["class"] not in CLASSES:
        raise unknown_name(f"class ({where}, in column class or clean)", row["class"], CLASSES)
    column = "value_s" if METRIC_UNITS[metric] == "s" else "value_tok_per_s"
    value = positive(row[column], f"{where}: {column}")
    return Point(
        id=row["id"],
        group_id=row["group_id"],
        klass=row["class"],
        model=row["model"],
        weight_format=row["weight_format"],
        kv_format=row["kv_format"],
        hardware=row["hardware"],
        n_chips=whole(row["n_chips"], f"{where}: n_chips", least=1),
        tp=whole(row["tp"], f"{where}: tp", least=1),
        ep=whole(row["ep"], f"{where}: ep", least=1),
        dp_attention=yes_no(row["dp_attention"], f"{where}: dp_attention"),
        pp=whole(row["pp"], f"{where}: pp", least=1),
        disaggregated=row["disaggregated"],
        framework=row["framework"],
        framework_version=row["framework_version"],
        speculation=row["speculation"],
        phase=row["phase"],
        isl_tok=whole(row["isl_tok"], f"{where}: isl_tok"),
        osl_tok=whole(row["osl_tok"], f"{where}: osl_tok"),
        batch=whole(row["batch"], f"{where}: batch", least=1),
        metric=metric,
        value_s=value if column == "value_s" else None,
        value_tok_per_s=value if column == "value_tok_per_s" else None,
        suspicious=tuple(kind for kind in row["suspicious"].split(";") if kind),
        source=sources.get(row["source_id"]) or _no_source(row["source_id"]),
    )


def _no_source(ident: str) -> Source:
    return Source(source_id=ident, name="", url="", date="", notes="")


@lru_cache(maxsize=1)
def load_sources() -> MappingProxyType[str, Source]:
    """Return the committed sources by id."""
    rows = read_rows(read_text(DATA / "sources.csv.gz"), "sources.csv.gz", SOURCE_COLUMNS)
    return MappingProxyType({row["source_id"]: Source(**row) for row in rows})


@lru_cache(maxsize=1)
def load_points() -> tuple[Point, ...]:
    """Return every committed point, in file order; read once, at the first call.

    Raises InferometerError for a row whose source is not in the side table.
    """
    sources = load_sources()
    points = points_from_rows(
        read_rows(read_text(DATA / "points.csv.gz"), "points.csv.gz", POINT_COLUMNS), sources, "points.csv.gz"
    )
    for point in points:
        if point.source.source_id not in sources:
            raise InferometerError(f"points.csv.gz: {point.id}: no source {point.source.source_id!r}")
    return tuple(points)
