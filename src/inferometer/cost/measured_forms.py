"""How a work is told apart as something that was timed, and the works that timed rows are.

Letters: m rows, n and k of a product; G queries that share a kv head, p pairs of sequence and kv head, S keys a query
sees; h pairs of sequence and head, t queries of a sequence; d elements of a key and a value; e elements of an expert's
matrix, x distinct experts, c copies an expert.

A form has static coordinates (what the kernel is), parameters that its work needs besides, and growing coordinates. All
are read off a work's counts; what does not look like any form is left to the calibrated backend.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from inferometer.graph.ops import NONE, ONE, Column, Mask, OpKind, Traffic, Work

WIDE_BYTES = 2.0
NEAR = 0.06
"""Share by which bytes an element may differ from those of a format: its scales."""
LATENT = 576.0
"""Elements of a latent of DeepSeek's MLA: 512 and 64."""
ABSORBED, EXPANDED, VALUE_LESS = 1088.0, 320.0, 64.0
"""d of its core, absorbed (576 + 512) and expanded (192 + 128); how many fewer its keys and values are written with."""
HALVES = {(128.0, 512.0): "bmm-in", (512.0, 128.0): "bmm-out"}
"""(k, n) of a head's half of its kv_b."""

Columns = Mapping[str, Column]


class Coordinates(NamedTuple):
    """Where works lie."""

    static: tuple[Column, ...]
    """Those of the lattice, then parameters of the work."""
    growing: tuple[Column, ...]


class Seen(NamedTuple):
    """A work told apart."""

    form: str
    at: Coordinates
    exact: Mask | None = None
    """Where it is what was timed; elsewhere it takes as long as the like of it at least."""


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of timed kernel."""

    dtype: str
    axes: tuple[tuple[float, ...], ...]
    """Knots: static ones, then those of growing coordinates."""
    growing: int
    rows: Callable[[Columns], tuple[Coordinates, ...]]
    """Coordinates of the products a timed row is made of."""
    work: Callable[[Sequence[Column], Sequence[Column]], Work]
    """The work at (static, growing)."""
    around: Callable[[Columns], Work] | None = None
    """What a timed row holds besides its products."""


def powers(low: float, high: float, step: float = 2.0) -> tuple[float, ...]:
    """Return low, low step, ... up to high.

    >>> powers(1, 8)
    (1.0, 2.0, 4.0, 8.0)
    """
    count = round(np.log(high / low) / np.log(step)) + 1
    return tuple(float(low * step**i) for i in range(count))


TIMED: tuple[float, ...] = ()
"""Knots of a coordinate that was timed at few values: those."""
LENGTHS = powers(16, 32768)
GROUPS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0)
WIDTHS = (128.0, 256.0, 384.0, 512.0, 1024.0)


def _work(kind: OpKind, dtype: str, flops: Column, traffic: Mapping[Traffic, Column], **more: Any) -> Work:
    return Work(name="", kind=kind, dtype=dtype, flops=flops, traffic_bytes=traffic, replication=ONE, shape="", **more)


def _gemm_form(stored: str, dtype: str, weight_bytes: float, narrow_bytes: float) -> Form:
    def rows(table: Columns) -> tuple[Coordinates, ...]:
        m, n, k = (table[name] for name in "mnk")
        weights, a_row = n * k * weight_bytes, k * narrow_bytes + n * WIDE_BYTES
        return (Coordinates((n, k, np.ones_like(n), weights, a_row), (m,)),)

    def quantised(table: Columns) -> Work:
        """Return the pass over what goes in, which lowering counts apart: read in 16 bits, written narrow."""
        traffic = {Traffic.ACTIVATIONS: table["m"] * table["k"] * (WIDE_BYTES + narrow_bytes)}
        return _work(OpKind.ELEMENTWISE, dtype, NONE, traffic)

    around = None if dtype == "bf16" else quantised
    return Form(dtype, (TIMED, TIMED, TIMED), 1, rows, _product_work(stored, dtype), around)


def _product_work(stored: str, dtype: str) -> Callable[[Sequence[Column], Sequence[Column]], Work]:
    """Return what makes products of (n, k, items, bytes of weights, bytes a row) at (m)."""

    def work(static: Sequence[Column], growing: Sequence[Column]) -> Work:
        (n, k, items, weights, a_row), (m,) = static, growing
        traffic = {Traffic.WEIGHTS: weights + 0 * m, Traffic.ACTIVATIONS: m * a_row}
        flops = 2 * m * n * k * items
        return _work(OpKind.GEMM, dtype, flops, traffic, stored=stored, rows=m, features=n, items=items)

    return work


def _bmm_form(k: float, n: float) -> Form:
    def rows(table: Columns) -> tuple[Coordinates, ...]:
        m, heads = table["m"], table["heads"]
        weights, a_row = heads * (k * n * WIDE_BYTES), heads * ((k + n) * WIDE_BYTES)
        return (Coordinates((heads, weights, a_row), (m,)),)

    product = _product_work("bf16", "bf16")

    def work(static: Sequence[Column], growing: Sequence[Column]) -> Work:
        heads, weights, a_row = static
        return product((np.full_like(heads, n), np.full_like(heads, k), heads, weights, a_row), growing)

    return Form("bf16", (powers(1, 128), TIMED), 1, rows, work)


def _moe_form(stored: str, dtype: str, weight_bytes: float, narrow_bytes: float) -> Form:
    def rows(table: Columns) -> tuple[Coordinates, ...]:
        hidden, local, copies, distinct = _experts(table)
        each = copies / distinct

        def one(n: Column, k: Column) -> Coordinates:
            static = (n * k, n, k, n * k * weight_bytes, k * narrow_bytes + n * WIDE_BYTES)
            return Coordinates(static, (distinct, each))

        return one(2 * local, hidden), one(hidden, local)

    def work(static: Sequence[Column], growing: Sequence[Column]) -> Work:
        (_, n, k, weights, a_copy), (items, each) = static, growing
        copies = items * each
        traffic = {Traffic.WEIGHTS: items * weights + 0 * copies, Traffic.ACTIVATIONS: copies * a_copy}
        more = {"stored": stored, "rows": each, "features": n, "items": items}
        return _work(OpKind.GROUPED_GEMM, dtype, 2 * copies * n * k, traffic, **more)

    def around(table: Columns) -> Work:
        hidden, local, copies, _ = _experts(table)
        moved = copies * (hidden * 4 * WIDE_BYTES + local * 3 * WIDE_BYTES)
        return Work(
            name="",
            kind=OpKind.ELEMENTWISE,
            dtype=dtype,
            flops=NONE,
            traffic_bytes={Traffic.ACTIVATIONS: moved},
            replication=ONE,
            shape="",
            kernels=3.0,
        )

    return Form(dtype, (powers(2**14, 2**28, 2**0.5), powers(1, 512), powers(1, 16384)), 2, rows, work, around)


def _experts(table: Columns) -> tuple[Column, Column, Column, Column]:
    """Return hidden, width of a rank, copies and distinct experts of timed blocks, tokens spread evenly over them."""
    tokens, k, experts, ep = (table[name] for name in ("tokens", "top_k", "experts", "ep"))
    copies = np.maximum(tokens * k / ep, 1.0)
    distinct = np.maximum(np.minimum(experts, tokens * k) / ep, 1.0)
    return table["hidden"], table["width"] / table["tp"], copies, distinct


def _decode_form(kv_bytes: float) -> Form:
    def rows(table: Columns) -> tuple[Coordinates, ...]:
        group = table["heads"] / table["kv_heads"]
        static = (2 * table["dim"],)
        return (Coordinates(static, (group, table["batch"] * table["kv_heads"], table["step"] + table["isl"])),)

    def work(static: Sequence[Column], growing: Sequence[Column]) -> Work:
        (d,), (group, items, seen) = static, growing
        return _core_work(group, items, seen, d, items * seen * (d * kv_bytes))

    return Form("bf16", (WIDTHS, GROUPS, powers(1, 65536), powers(2, 131072)), 3, rows, work)


def _core_work(group: Column, items: Column, seen: Column, d: Column, kv: Column) -> Work:
    traffic = {Traffic.KV: kv + 0 * group, Traffic.ACTIVATIONS: items * group * (d * WIDE_BYTES) + 0 * seen}
    flops = items * group * seen * (2 * d)
    return _work(OpKind.ATTENTION, "bf16", flops, traffic, rows=ONE, features=group, items=items, sizes={"s": seen})


def _mla_decode_form(kv_bytes: float) -> Form:
    def rows(table: Columns) -> tuple[Coordinates, ...]:
        return (Coordinates((), (table["heads"], table["batch"], table["step"] + table["isl"])),)

    def work(static: Sequence[Column], growing: Sequence[Column]) -> Work:
        del static
        group, items, seen = growing
        return _core_work(group, items, seen, np.asarray(ABSORBED), items * seen * (LATENT * kv_bytes))

    return Form("bf16", (powers(1, 128), powers(1, 2048), powers(2, 131072)), 3, rows, work)


def _prefill_form(kv_bytes: float) -> Form:
    def rows(table: Columns) -> tuple[Coordinates, ...]:
        static = (2 * table["dim"], table["heads"] / table["kv_heads"])
        return (Coordinates(static, (table["batch"] * table["heads"], table["isl"])),)

    def work(static: Sequence[Column], growing: Sequence[Column]) -> Work:
        (d, group), (heads, t) = static, growing
        kv = heads * t * (d / group * kv_bytes)
        io = heads * t * (d * WIDE_BYTES)
        return _prompt_work(heads, t, d, group, {Traffic.KV: kv, Traffic.ACTIVATIONS: io})

    return Form("bf16", (WIDTHS, powers(1, 32768), LENGTHS), 2, rows, work)


def _mla_prefill_form() -> Form:
    def rows(table: Columns) -> tuple[Coordinates, ...]:
        return (Coordinates((), (table["batch"] * table["heads"], table["isl"])),)

    def work(static: Sequence[Column], growing: Sequence[Column]) -> Work:
        del static
        heads, t = growing
        io = heads * t * ((2 * EXPANDED - VALUE_LESS) * WIDE_BYTES)
        return _prompt_work(heads, t, np.asarray(EXPANDED), ONE, {Traffic.KV: 0 * io, Traffic.ACTIVATIONS: io})

    return Form("bf16", (powers(1, 32768), LENGTHS), 2, rows, work)


def _prompt_work(heads: Column, t: Column, d: Column, group: Column, traffic: Mapping[Traffic, Column]) -> Work:
    flops = heads * (t * (t + 1)) * d
    sizes, items = {"b": heads, "n": ONE, "s": t}, heads / group
    return _work(OpKind.ATTENTION, "bf16", flops, traffic, rows=t, features=group, items=items, sizes=sizes)


FORMS = {
    "gemm.bf16": _gemm_form("bf16", "bf16", 2.0, 2.0),
    "gemm.fp8": _gemm_form("fp8", "fp8", 1.0, 1.0),
    "gemm.fp8-block": _gemm_form("fp8-block", "fp8", 1.0, 1.0 + 4 / 128),
    "gemm.fp4": _gemm_form("nvfp4", "fp4", 0.5625, 0.5625),
    "bmm-in.bf16": _bmm_form(128.0, 512.0),
    "bmm-out.bf16": _bmm_form(512.0, 128.0),
    "moe.bf16": _moe_form("bf16", "bf16", 2.0, 2.0),
    "moe.fp8": _moe_form("fp8", "fp8", 1.0, 1.0),
    "moe.fp8-block": _moe_form("fp8-block", "fp8", 1.0, 1.0 + 4 / 128),
    "moe.fp4": _moe_form("nvfp4", "fp4", 0.5625, 0.5625),
    "moe.mxfp4-bf16": _moe_form("mxfp4", "bf16", 0.53125, 2.0),
    "decode.kv16": _decode_form(2.0),
    "decode.kv8": _decode_form(1.0),
    "prefill.kv16": _prefill_form(2.0),
    "prefill.kv8": _prefill_form(1.0),
    "mla-decode.kv16": _mla_decode_form(2.0),
    "mla-decode.kv8": _mla_decode_form(1.0),
    "mla-prefill": _mla_prefill_form(),
}
"""By the names of `cost.silicon`."""
