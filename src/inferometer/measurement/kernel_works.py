"""Timed kernels as the works that lowering would emit for them: columns over the rows of one table.

Letters: m, n, k of a product; B sequences, S cached tokens, N heads, K kv heads, D head dim; T tokens, H hidden,
F expert width, E experts, k a token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from inferometer.graph.ops import NONE, ONE, Column, OpKind, Traffic, Work
from inferometer.measurement.kernels import Row

WIDE_BYTES = 2.0
OVERHEAD_BYTES = 4.0
"""Traffic of a grouped block beside its products, a copy and element of H: permuted in and out, once each way."""


class Kind(NamedTuple):
    """What a dtype of the tables is to us."""

    arithmetic: str
    weight_bytes: float
    """Of one stored element, scales included."""
    activation_bytes: float


KINDS = {
    "bfloat16": Kind("bf16", 2.0, 2.0),
    "fp8": Kind("fp8", 1.0, 1.0),
    "fp8_block": Kind("fp8", 1.0, 1.0),
    "nvfp4": Kind("fp4", 0.5625, 0.5625),
    "w4a8_mxfp4_mxfp8": Kind("fp8", 0.53125, 1.0),
    "w4a16_mxfp4": Kind("bf16", 0.53125, 2.0),
}
"""dtype of the tables -> ours; others are left out."""


DTYPES = {"bf16": "bfloat16", "fp8": "fp8", "fp8-block": "fp8_block", "nvfp4": "nvfp4"}
"""Format of the weights of a product -> dtype of the tables."""


def _column(rows: Sequence[Row], name: str) -> Column:
    return np.array([float(row[name] or 0) for row in rows])


def gemm_work(rows: Sequence[Row], kind: Kind) -> Work:
    """Return products [m, k] x [k, n]: 2 m n k flops; n k weights, m k in, m n out in bf16."""
    m, n, k = (_column(rows, name) for name in "mnk")
    return Work(
        name="gemm",
        kind=OpKind.GEMM,
        dtype=kind.arithmetic,
        flops=2 * m * n * k,
        traffic_bytes={
            Traffic.WEIGHTS: n * k * kind.weight_bytes,
            Traffic.ACTIVATIONS: m * (k * kind.activation_bytes + n * WIDE_BYTES),
        },
        replication=ONE,
        shape="",
        rows=m,
        features=n,
    )


def attention_work(rows: Sequence[Row], kv_bytes: float, dtype: str) -> Work:
    """Return attention cores of one kind: one query of S cached tokens, or causal over a prompt."""
    b, heads, kv_heads, dim = (_column(rows, name) for name in ("batch", "heads", "kv_heads", "head_dim"))
    queries, prefix, cached = (_column(rows, name) for name in ("isl", "prefix", "kv_len"))
    decode = rows[0]["op"] == "attn_decode"
    pairs = cached if decode else queries * (queries + 1) / 2 + queries * prefix
    seen = cached if decode else queries + prefix
    traffic = {
        Traffic.KV: b * kv_heads * seen * (2 * dim * kv_bytes),
        Traffic.ACTIVATIONS: b * queries * heads * (2 * dim * WIDE_BYTES),
    }
    core = _core(dtype, b * heads * pairs * (4 * dim), traffic, group=heads / kv_heads, items=b * kv_heads, seen=seen)
    return replace(core, rows=queries)


def _core(
    dtype: str, flops: Column, traffic: Mapping[Traffic, Column], *, group: Column, items: Column, seen: Column
) -> Work:
    """Return cores of one query: `group` heads on each of `items`, which read `seen` cached tokens."""
    return Work(
        name="attention-core",
        kind=OpKind.ATTENTION,
        dtype=dtype,
        flops=flops,
        traffic_bytes=traffic,
        replication=ONE,
        shape="",
        features=group,
        items=items,
        sizes={"s": seen},
    )


LATENT, ROTATED = 512.0, 64.0
"""Elements of DeepSeek's latent, and of the key beside it, of one token: each head's query meets both, its output the
latent alone."""


def latent_work(rows: Sequence[Row], kv_bytes: float, dtype: str) -> Work:
    """Return attention cores over latents: one query of S cached tokens, whose heads all read the same entry."""
    b, heads, cached = (_column(rows, name) for name in ("batch", "heads", "kv_len"))
    both = 2 * LATENT + ROTATED
    traffic = {
        Traffic.KV: b * cached * ((LATENT + ROTATED) * kv_bytes),
        Traffic.ACTIVATIONS: b * heads * (both * WIDE_BYTES),
    }
    return _core(dtype, b * heads * cached * (2 * both), traffic, group=heads, items=b, seen=cached)


def moe_works(rows: Sequence[Row], kind: Kind) -> tuple[Work, Work, Work]:
    """Return the two grouped products of an expert block on one rank, and the passes around them.

    A rank of ep has E / ep experts and T k / ep copies. Experts asked for: E / ep (1 - (1 - k/E)^T) where tokens choose
    alone, min(E, T k) / ep where the benchmark spreads them evenly (`balanced`). tp cuts F.
    """
    tokens, hidden, width, k, experts, tp, ep = (
        _column(rows, name) for name in ("tokens", "hidden", "width", "top_k", "experts", "tp", "ep")
    )
    copies, local = np.maximum(tokens * k / ep, 1.0), width / tp
    even = np.array([row["distribution"] == "balanced" for row in rows])
    alone = experts * (1 - (1 - k / experts) ** tokens)
    distinct = np.maximum(np.where(even, np.minimum(experts, tokens * k), alone) / ep, 1.0)

    def product(name: str, features: Column, reduced: Column) -> Work:
        return Work(
            name=name,
            kind=OpKind.GROUPED_GEMM,
            dtype=kind.arithmetic,
            flops=2 * copies * features * reduced,
            traffic_bytes={
                Traffic.WEIGHTS: distinct * features * reduced * kind.weight_bytes,
                Traffic.ACTIVATIONS: copies * (reduced * kind.activation_bytes + features * WIDE_BYTES),
            },
            replication=ONE,
            shape="",
            rows=copies / distinct,
            features=features,
            items=distinct,
        )

    around = Work(
        name="around",
        kind=OpKind.ELEMENTWISE,
        dtype=kind.arithmetic,
        flops=NONE,
        traffic_bytes={Traffic.ACTIVATIONS: copies * (hidden * 4 * WIDE_BYTES + local * 3 * WIDE_BYTES)},
        replication=ONE,
        shape="",
        kernels=3.0,
    )
    return product("gate+up", 2 * local, hidden), product("down", hidden, local), around
