"""Which timed form a work is, read off its counts. Letters as in `cost.measured_forms`."""

import numpy as np

from inferometer.cost.kernels import FEW_QUERIES
from inferometer.cost.measured_forms import (
    ABSORBED,
    EXPANDED,
    HALVES,
    LATENT,
    NEAR,
    VALUE_LESS,
    WIDE_BYTES,
    Coordinates,
    Seen,
)
from inferometer.graph.ops import Column, OpKind, Traffic, Work

BLOCKED = 1.01
"""Bytes of an fp8 activation from which on it has scales by block."""
FORMATS = {"bf16": {"bf16": 2.0}, "fp8": {"fp8": 1.0}, "fp4": {"fp4": 0.5625}}
"""Arithmetic -> weights that products of it were timed with, and bytes of an element."""
GROUPED = FORMATS | {"bf16": {"bf16": 2.0, "mxfp4-bf16": 0.53125}}
DIGITS = 9


def seen(work: Work) -> Seen | None:
    """Return what a work is, or None where nothing like it was timed."""
    if work.kernels != 1.0 or work.features is None or not _positive(work.flops, work.rows, work.features, work.items):
        return None
    if work.kind is OpKind.GEMM:
        return _gemm(work, work.features)
    if work.kind is OpKind.GROUPED_GEMM:
        return _grouped(work, work.features)
    if work.kind is OpKind.ATTENTION and work.dtype == "bf16":
        few = float(work.rows.max()) <= FEW_QUERIES
        return _decode(work, work.features) if few else _prefill(work, work.features)
    return None


def _positive(*columns: Column) -> bool:
    return all(bool((column > 0).all() & np.isfinite(column).all()) for column in columns)


def alike(column: Column, value: float) -> bool:
    """Return whether a column is a value, within the bytes of scales."""
    return bool((np.abs(column - value) <= NEAR * value).all())


def rounded(column: Column) -> Column:
    """Return a column to DIGITS digits, so that sizes read off different rows are the same.

    >>> rounded(np.array([0.1 + 0.2, 0.0])).tolist()
    [0.3, 0.0]
    """
    size = np.floor(np.log10(np.where(column > 0, column, 1.0)))
    scale = 10.0 ** (DIGITS - 1 - size)
    found: Column = np.round(column * scale) / scale
    return found


def _moved(work: Work) -> tuple[Column, Column]:
    """Return bytes of weights, and all others."""
    zero = np.zeros(())
    weights = work.traffic_bytes.get(Traffic.WEIGHTS, zero)
    others = [size for kind, size in work.traffic_bytes.items() if kind is not Traffic.WEIGHTS]
    return weights, sum(others, zero)


def _format(work: Work, table: dict[str, dict[str, float]], element: Column, narrow: Column) -> str | None:
    """Return the format of weights of `element` bytes (0: already on chip), by activations of `narrow` bytes."""
    own = table.get(work.dtype, {})
    name = next((name for name, size in own.items() if alike(element, size) or not element.any()), None)
    return "fp8-block" if name == "fp8" and bool((narrow > BLOCKED).all()) else name


def _gemm(work: Work, n: Column) -> Seen | None:
    m, items = work.rows, work.items
    k = work.flops / (2 * m * n * items)
    weights, moved = _moved(work)
    a_row = moved / m
    name = _format(work, FORMATS, weights / (n * k * items), a_row / (k * items) - WIDE_BYTES * n / k)
    half = next((half for (inner, out), half in HALVES.items() if exactly(k, inner) and exactly(n, out)), None)
    if half is not None:
        return Seen(f"{half}.{name}", Coordinates((items, weights, a_row), (m,)))
    if name is None or not exactly(items, 1.0):
        return None
    return Seen(f"gemm.{name}", Coordinates((n, k, items, weights, a_row), (m,)))


def exactly(column: Column, value: float) -> bool:
    """Return whether a column is a value, up to rounding."""
    return bool((np.abs(column - value) <= 1e-6 * value).all())


def _grouped(work: Work, n: Column) -> Seen | None:
    each, items = work.rows, work.items
    copies = each * items
    k = work.flops / (2 * copies * n)
    weights, moved = _moved(work)
    a_copy, weights = moved / copies, weights / items
    name = _format(work, GROUPED, weights / (n * k), a_copy / k - WIDE_BYTES * n / k)
    if name is None:
        return None
    return Seen(f"moe.{name}", Coordinates((n * k, n, k, weights, a_copy), (items, each)))


def _kv_bits(bytes_: Column) -> str | None:
    return next((name for name, size in (("kv16", 2.0), ("kv8", 1.0)) if alike(bytes_, size)), None)


def _decode(work: Work, queries: Column) -> Seen | None:
    """Return a core of few queries: all of a sequence that share a kv head are rows of one product."""
    kv, io = work.traffic_bytes.get(Traffic.KV), work.traffic_bytes.get(Traffic.ACTIVATIONS)
    if kv is None or io is None or not _positive(kv, io):
        return None
    group, items = queries * work.rows, work.items
    d = io / (items * group * WIDE_BYTES)
    keys = work.flops / (items * group * (2 * d))
    absorbed = exactly(d, ABSORBED)
    bits = _kv_bits(kv / (items * keys * (LATENT if absorbed else d)))
    if bits is None:
        return None
    if absorbed:
        return Seen(f"mla-decode.{bits}", Coordinates((), (group, items, keys)))
    return Seen(f"decode.{bits}", Coordinates((d,), (group, items, keys)))


def _prefill(work: Work, group: Column) -> Seen | None:
    """Return a core of many queries; where it is not causal over a prompt, the prompt with as many pairs."""
    kv, io = work.traffic_bytes.get(Traffic.KV), work.traffic_bytes.get(Traffic.ACTIVATIONS)
    if kv is None or io is None or not _positive(io):
        return None
    t = work.rows
    if not kv.any():
        return _expanded(work, io)
    heads = work.items * group
    d = io / (heads * t * WIDE_BYTES)
    pairs = work.flops / (heads * (2 * d))
    like = (np.sqrt(1 + 8 * pairs) - 1) / 2
    causal = np.abs(like - t) <= 1e-3 * t
    keys = np.maximum(t, pairs / t + (t - 1) / 2)  # t of a prompt or in windows; behind a prefix, all before
    bits = _kv_bits(kv / (work.items * keys * d))
    if bits is None:
        return None
    return Seen(f"prefill.{bits}", Coordinates((d, group), (heads, like)), causal)


def _expanded(work: Work, io: Column) -> Seen | None:
    """Return an expanded core of MLA: every head has keys and values of its own, made just before."""
    sizes = work.sizes
    if not {"b", "n", "s"} <= set(sizes):
        return None
    t, heads, keys = work.rows, sizes["b"] * sizes["n"], sizes["s"]
    d = (io / (heads * WIDE_BYTES) + VALUE_LESS * keys) / (t + keys)
    if not exactly(d, EXPANDED):
        return None
    pairs = work.flops / (heads * (2 * d))
    like = (np.sqrt(1 + 8 * pairs) - 1) / 2
    return Seen("mla-prefill", Coordinates((), (heads, like)), np.abs(like - t) <= 1e-3 * t)
