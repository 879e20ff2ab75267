"""The cache of a sequence: as JSON holds it, and on a page."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.table import Table

from inferometer.blocks.cache import Cache
from inferometer.estimate.result import Diagnostic
from inferometer.memory.footprint import CacheLine, kv_bytes_per_token
from inferometer.report.tables import GIB, table
from inferometer.report.text import count, sizes_flag
from inferometer.specs.deployment import ROLES, Sizes
from inferometer.specs.model import ModelSpec
from inferometer.version import __version__

KIB = 1024.0


class PerChip(NamedTuple):
    """What a chip of the fullest stage keeps."""

    kv_bytes_per_token: float
    kv_bytes_per_sequence: float
    state_bytes_per_sequence: float


class CacheSize(NamedTuple):
    """The cache of a sequence of `context` tokens, whole and of a chip."""

    model: ModelSpec
    context: int
    cross_tokens: int
    """Of images, beside the context."""
    lines: list[CacheLine]
    sizes: Sizes
    chip: PerChip
    assumed: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def kv_row(held: CacheSize) -> dict[str, Any]:
    """Return the keys of KV in `report.schema`."""
    grows = [line for line in held.lines if not line.cache.fixed]
    return {
        "version": __version__,
        "model": held.model.name,
        "context": held.context,
        "image_tokens": held.cross_tokens,
        "kv_cache_dtype": held.model.kv_format,
        "kv_bytes_per_token": kv_bytes_per_token(held.model),
        "kv_bytes_per_sequence": sum(line.bytes_per_sequence for line in grows),
        "window_bytes_per_sequence": sum(line.bytes_per_sequence for line in grows if line.cache.most),
        "state_bytes_per_sequence": sum(line.bytes_per_sequence for line in held.lines if line.cache.fixed),
        "n_chips": held.sizes.n_chips,
        "sizes": {role: getattr(held.sizes, role) for role in ROLES},
        "kv_bytes_per_token_per_chip": held.chip.kv_bytes_per_token,
        "kv_bytes_per_sequence_per_chip": held.chip.kv_bytes_per_sequence,
        "state_bytes_per_sequence_per_chip": held.chip.state_bytes_per_sequence,
        "caches": [_cache(line) for line in held.lines],
        "assumed": list(held.assumed),
        "diagnostics": [asdict(note) for note in held.diagnostics],
    }


def _cache(line: CacheLine) -> dict[str, Any]:
    cache = line.cache
    return {
        "name": cache.name,
        "kind": _kind(cache),
        "layers": line.layers,
        "heads": cache.heads,
        "width": cache.width,
        "dtype": line.format,
        "tokens_per_entry": cache.tokens,
        "most_entries": cache.most,
        "bytes_per_token": line.bytes_per_token,
        "bytes_per_sequence": line.bytes_per_sequence,
    }


def _kind(cache: Cache) -> str:
    if cache.fixed:
        return "state"
    return "images" if cache.images else "window" if cache.most else "grows"


def kv_tables(held: CacheSize, row: dict[str, Any]) -> Iterator[Table]:
    """Yield what the layers keep, and the sums: whole, and of a chip where there are several."""
    heads = ["<cache", "<grows", "layers", "heads", "width", "<as", "KiB\na token", "GiB\na sequence"]
    beside = f" and {held.cross_tokens:,} of images" if held.cross_tokens else ""
    grid = table(heads, title=f"{held.model.name}, a sequence of {held.context:,} tokens{beside}")
    for one in row["caches"]:
        grid.add_row(
            one["name"],
            _growth(one),
            f"{one['layers']:,}",
            f"{one['heads']:,}",
            f"{one['width']:,}",
            one["dtype"],
            count(one["bytes_per_token"] / KIB) if one["bytes_per_token"] else "-",
            f"{one['bytes_per_sequence'] / GIB:,.3f}",
        )
    yield grid
    several = held.sizes.n_chips > 1
    sums = table(["<", "all layers", *([f"a chip of {sizes_flag(held.sizes)}"] if several else [])])
    for name, key, unit, size in _SUMS:
        if row[key] or key.startswith("kv"):
            chip = row.get(f"{key}_per_chip")
            own = [f"{chip / size:,.3f} {unit}" if chip is not None else "-"] if several else []
            sums.add_row(name, f"{row[key] / size:,.3f} {unit}", *own)
    yield sums


_SUMS = (
    ("KV a token, no window applied", "kv_bytes_per_token", "KiB", KIB),
    ("KV a sequence", "kv_bytes_per_sequence", "GiB", GIB),
    ("  of it windows", "window_bytes_per_sequence", "GiB", GIB),
    ("state a sequence", "state_bytes_per_sequence", "GiB", GIB),
)


def _growth(one: dict[str, Any]) -> str:
    if one["kind"] == "state":
        return "no"
    if one["kind"] == "images":
        return "each image token"
    each = f"1 in {one['tokens_per_entry']}" if one["tokens_per_entry"] > 1 else "each token"
    return each if one["most_entries"] is None else f"{each} to {one['most_entries']:,}"
