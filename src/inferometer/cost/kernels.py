"""What a kernel takes: a fixed time, and its work at the rates kernels reach. `data/kernels.json` has the numbers.

Letters: F flops, W bytes, P peak, B memory bandwidth, u arithmetic units of the chip, m rows, n columns of a product.

* matrix product: t0 + sqrt((F' / eF P)^2 + (W / eB B)^2 + T^2). It is cut into tiles of 128 by 128, or of fewer rows
  where m is less, and u of them run at once: waves = ceil(tiles / u). Where tiles are few, kernels that split k cut the
  depth too, as far as units are idle and a piece is k0 deep: depth = k / clip(u / tiles, 1, k / k0). F' is F grown by
  what whole waves waste: F' = F + a (2 min(m, 128) 128 depth u waves - F), a fitted; T = d waves depth / 1024, what a
  tile takes for its depth however small it is.
* grouped product: t0 + sqrt((F / eF P)^2 + (W / eB B)^2 + T^2), T = (c + d depth / 1024) tiles / u: for every tile of
  every expert a unit takes a prologue and an epilogue (c), and a while for its depth, as where it unpacks weights (d).
* attention core with few queries: t0 + c waves + sqrt((W / eB B)^2 + (F' / eF P)^2 + T^2). The queries of the heads
  that share a kv head are the rows of its products, in whole tiles of 64: F' = F 64 ceil(rows / 64) / rows. A unit
  takes one pair of sequence and kv head, or a piece of it as above, its cached tokens being the depth:
  T = d waves depth / 1024.
* attention core with many: t0 + F / (eF P r / (r + r0)) + W / (eB B), r the queries of a sequence.
* scan of a recurrent state: t0 + sqrt((F / eF P)^2 + (W / eB B)^2), the coefficients of a product.
* everything else: launches x t1 + W / (e1 B), and h for every sequence that the host hands a token.

Fixed times are of kernels inside a CUDA graph. All forms keep the laws: time grows with counts, falls with rates,
and is above F/P and W/B as long as no share exceeds 1, which the loader checks.
"""

from typing import Literal, NamedTuple

import msgspec
import numpy as np

from inferometer.cost.backend import WorkPrice
from inferometer.graph.ops import NONE, Column, Work

TILE_ROWS, TILE_COLUMNS = 64.0, 128.0
"""Of a grouped product, and of an attention core with few queries (rows)."""

TILE = 128.0
"""Rows and columns of a matrix product's tile."""

FEW_QUERIES = 16.0
"""Queries of a sequence up to which a core is priced as in decode: one tile of rows."""


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of a matrix product."""

    t0_s: float
    flops_share: float
    bytes_share: float
    fill: float
    """a: how much of the waste of waves is real."""
    depth_s: float
    """d: 1,024 of depth of a wave."""
    piece: float
    """k0: least depth that k is split into; 0: it is not split."""


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of a grouped product of experts."""

    t0_s: float
    flops_share: float
    bytes_share: float
    tile_s: float
    """c: one tile on one unit, whatever its depth."""
    depth_s: float
    """d: 1,024 of depth of one tile on one unit."""


class Decode(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of an attention core with few queries."""

    t0_s: float
    flops_share: float
    bytes_share: float
    wave_s: float
    """c: a wave."""
    depth_s: float
    """d: 1,024 cached tokens of a wave."""
    piece: float
    """Least tokens that a sequence is split into; 0: it is not split."""


class Prefill(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of an attention core with many queries."""

    t0_s: float
    flops_share: float
    ramp_rows: float
    bytes_share: float


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What messages reach of an axis of one geometry and rate."""

    geometry: str
    bytes_per_s: float
    alpha_s: float
    """One step between members."""
    share: float
    """Of the rate."""
    generation: str = ""
    """Whose factors it takes: the generation of chips it was timed between."""
    basis: Literal["calibrated", "assumed"]
    source: str


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of one generation of chips."""

    basis: Literal["calibrated", "assumed"]
    source: str
    units: float
    """Arithmetic units of the chip whose bf16 peak is `units_peak_flops_per_s`; in proportion where a chip has none."""
    units_peak_flops_per_s: float
    launch_s: float
    elementwise_share: float
    sequence_s: float
    """h: what the host does for a sequence in a step, while no kernel runs."""
    gemm: dict[str, Product]
    """By format of the weights, or arithmetic type."""
    grouped: dict[str, dict[str, Grouped]]
    """By the same, then by the kernels that engines run."""
    decode: dict[str, dict[str, Decode]]
    """By format of the cache, then by the kernels that engines run."""
    prefill: Prefill


def pieces_of(items: Column, depth: Column, units: float, piece: float) -> Column:
    """Return into how many pieces each of `items` is split: while units are idle, and none is below `piece`.

    >>> pieces_of(np.array([2.0, 2.0, 9.0]), np.array([800.0, 150.0, 800.0]), 8.0, 100).tolist()
    [4.0, 1.5, 1.0]
    """
    return np.maximum(np.minimum(units / items, depth * (1 / piece)), 1.0) if piece else np.ones(1)


class Waves(NamedTuple):
    """How the tiles of a product run on the units of a chip."""

    flops: Column
    """Of whole waves of whole tiles."""
    depth: Column
    """Of all waves, one behind the other."""


def waves_of(work: Work, features: Column, units: float, piece: float) -> Waves:
    """Return how a product of `rows` by `features` runs on `units`, its depth split into pieces of at least `piece`.

    >>> from inferometer.graph.ops import OpKind
    >>> one = np.ones(1)
    >>> work = Work(name="x", kind=OpKind.GEMM, dtype="bf16", flops=2 * one * 64 * 256 * 800, traffic_bytes={},
    ...     replication=one, shape="", rows=64 * one)
    >>> found = waves_of(work, 256 * one, 8.0, 0)  # 2 tiles of 64 x 128 on 8 units: as long as 8
    >>> float(found.depth[0]), float(found.flops[0]) == 2 * 64 * 128 * 800 * 8
    (800.0, True)
    >>> float(waves_of(work, 256 * one, 8.0, 100).depth[0])  # 4 pieces for each of 2 tiles
    200.0
    """
    tiles = work.items * np.ceil(features * (1 / TILE)) * np.ceil(work.rows * (1 / TILE))
    whole = work.flops / (2 * work.items * work.rows * features)
    depth = whole * np.ceil(tiles * (1 / units)) / pieces_of(tiles, whole, units, piece)
    return Waves(np.minimum(work.rows, TILE) * depth * (2 * TILE * units), depth)


def product_price(work: Work, own: Product, *, units: float, peak: float, bandwidth: float, moved: Column) -> WorkPrice:
    """Return the price of a matrix product."""
    compute_s, memory_s = work.flops / (own.flops_share * peak), moved / (own.bytes_share * bandwidth)
    if work.features is None or not (own.fill or own.depth_s):
        return WorkPrice(compute_s, memory_s, own.t0_s * work.kernels + np.sqrt(compute_s**2 + memory_s**2))
    waves = waves_of(work, work.features, units, own.piece)
    wasted_s = np.maximum(waves.flops * (own.fill / (own.flops_share * peak)) - own.fill * compute_s, 0.0)
    compute_s = compute_s + wasted_s
    run_s = np.sqrt(compute_s**2 + memory_s**2 + (waves.depth * (own.depth_s / 1024)) ** 2)
    return WorkPrice(compute_s, memory_s, own.t0_s * work.kernels + run_s)


def grouped_price(work: Work, own: Grouped, *, units: float, peak: float, bandwidth: float, moved: Column) -> WorkPrice:
    """Return the price of a grouped product: `work.items` products of `work.rows` by `work.features` each.

    >>> from inferometer.graph.ops import OpKind
    >>> one = np.ones(1)
    >>> work = Work(name="x", kind=OpKind.GROUPED_GEMM, dtype="bf16", flops=0 * one, traffic_bytes={}, replication=one,
    ...     shape="", rows=3 * one, features=300 * one, items=8 * one)
    >>> own = Grouped(t0_s=0.0, flops_share=1.0, bytes_share=1.0, tile_s=1.0, depth_s=1.0)
    >>> float(grouped_price(work, own, units=4, peak=1.0, bandwidth=1.0, moved=0 * one).total_s[0])  # 8 x 3 tiles / 4
    6.0
    """
    compute_s, memory_s = work.flops / (own.flops_share * peak), moved / (own.bytes_share * bandwidth)
    features = np.ones(1) if work.features is None else work.features
    tiles = work.items * np.ceil(features * (1 / TILE_COLUMNS)) * np.ceil(work.rows * (1 / TILE_ROWS))
    depth = work.flops / (2 * work.items * work.rows * features)
    tiles_s = tiles * (own.tile_s / units + depth * (own.depth_s / 1024 / units))
    total_s = own.t0_s * work.kernels + np.sqrt(compute_s**2 + memory_s**2 + tiles_s**2)
    return WorkPrice(compute_s, memory_s, total_s)


def tiled_flops(work: Work) -> Column:
    """Return F' of an attention core with few queries: F of whole tiles of rows.

    >>> from dataclasses import replace
    >>> from inferometer.graph.ops import OpKind
    >>> one = np.ones(1)
    >>> core = Work(name="x", kind=OpKind.ATTENTION, dtype="bf16", flops=100 * one, traffic_bytes={}, replication=one,
    ...     shape="", features=16 * one)
    >>> float(tiled_flops(core)[0]), float(tiled_flops(replace(core, rows=5 * one))[0])  # 16 and 80 rows in 64 and 128
    (400.0, 160.0)
    """
    if work.features is None:
        return work.flops
    rows = work.rows * work.features
    tiled: Column = work.flops * (np.ceil(rows * (1 / TILE_ROWS)) * (TILE_ROWS / rows))
    return tiled


def decode_price(work: Work, own: Decode, *, units: float, peak: float, bandwidth: float, moved: Column) -> WorkPrice:
    """Return the price of an attention core with few queries."""
    compute_s, memory_s = tiled_flops(work) / (own.flops_share * peak), moved / (own.bytes_share * bandwidth)
    if not (own.wave_s or own.depth_s):
        return WorkPrice(compute_s, memory_s, own.t0_s * work.kernels + np.sqrt(compute_s**2 + memory_s**2))
    depth = work.sizes.get("s", NONE)
    pieces = pieces_of(work.items, depth, units, own.piece)
    waves = np.where(pieces > 1, 1.0, np.ceil(work.items * (1 / units)))
    depth_s = waves * depth / pieces * (own.depth_s / 1024)
    fixed_s = own.t0_s * work.kernels + own.wave_s * waves
    return WorkPrice(compute_s, memory_s, fixed_s + np.sqrt(compute_s**2 + memory_s**2 + depth_s**2))


def prefill_price(work: Work, own: Prefill, peak: float, bandwidth: float, moved: Column) -> WorkPrice:
    """Return the price of an attention core with many queries."""
    compute_s = work.flops * ((1 + own.ramp_rows / work.rows) / (own.flops_share * peak))
    memory_s = moved / (own.bytes_share * bandwidth)
    return WorkPrice(compute_s, memory_s, own.t0_s * work.kernels + compute_s + memory_s)


def other_price(work: Work, generation: Generation, bandwidth: float, moved: Column) -> WorkPrice:
    """Return the price of norms, copies, lookups and sampling."""
    memory_s = moved / (generation.elementwise_share * bandwidth)
    total_s = generation.launch_s * work.kernels + memory_s
    if work.sequences is not None:
        total_s = total_s + generation.sequence_s * work.sequences
    return WorkPrice(NONE, memory_s, total_s)
