"""Softmax attention: MHA, GQA and MQA, sliding windows, decode context parallel.

Letters: B sequences, T tokens, S context, H hidden, N query heads, K kv heads, D head dim.
TP splits the heads; kv heads are copied where TP / DCP exceeds K. DCP splits the KV of a head along
the sequence over ranks of the TP group: queries are gathered over DCP, partial outputs combined.
"""

import numpy as np

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Tensor
from inferometer.graph.ops import Choice, CollectiveKind, Column, Node, OpKind, Plan, Traffic, Work
from inferometer.specs.model import Attention

LSE_BYTES = 4.0
"""A log-sum-exp a query head, fp32."""


def tensors(block: Attention, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return q, k, v, o with their biases and QK norms."""
    wide, narrow = block.heads * block.head_dim, block.kv_heads * block.head_dim

    def weight(name: str, rows: int, cols: int, **split: str) -> Tensor:
        return Tensor(
            name=name,
            rows=rows,
            cols=cols,
            format=block.formats.get(name, dtype),
            kind="attention",
            **split,  # type: ignore[arg-type]
        )

    found = [
        weight("q", wide, hidden, split_rows="tp"),
        weight("k", narrow, hidden, split_rows="kv"),
        weight("v", narrow, hidden, split_rows="kv"),
        weight("o", hidden, wide, split_cols="tp"),
    ]
    if block.qkv_bias:
        found += [
            Tensor(name=f"{n}_bias", rows=r, format=dtype, kind="attention", split_rows=s)
            for n, r, s in (("q", wide, "tp"), ("k", narrow, "kv"), ("v", narrow, "kv"))
        ]
    if block.out_bias:
        found.append(Tensor(name="o_bias", rows=hidden, format=dtype, kind="attention"))
    if block.qk_norm:
        found += [Tensor(name=f"{n}_norm", rows=block.head_dim, format=dtype, kind="norm") for n in "qk"]
    return tuple(found)


def kv_heads_local(kv_heads: int, tp: Column, dcp: Column) -> Column:
    """Return the kv heads a chip holds: max(1, K DCP / TP)."""
    return np.maximum(1.0, np.ceil(kv_heads * dcp / tp))


def kv_elements_per_token(block: Attention, tp: Column, dcp: Column) -> Column:
    """Return KV elements a chip stores for a token of a sequence: 2 local heads D / DCP."""
    return 2 * kv_heads_local(block.kv_heads, tp, dcp) * block.head_dim / dcp


def cached_tokens(block: Attention, context: float) -> float:
    """Return the tokens a sequence of length `context` keeps: min(context, window)."""
    return min(context, block.window) if block.window else context


def causal_pairs(new: float, window: int | None) -> float:
    """Return query-key pairs of a causal prefill of `new` tokens: sum of min(i, W) for i = 1..new.

    >>> causal_pairs(4, None), causal_pairs(4, 2)
    (10.0, 7.0)
    """
    reach = min(new, window) if window else new
    return reach * (reach + 1) / 2 + (new - reach) * reach


def lower(block: Attention, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer's attention, from normed input to partial output sums."""
    at = low.at
    low.shards["kv"] = np.minimum(np.maximum(at.tp / at.dcp, 1.0), float(block.kv_heads))
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    kv_local = kv_heads_local(block.kv_heads, at.tp, at.dcp)
    tokens = at.tokens
    q_width = block.heads * block.head_dim / at.tp
    kv_width = 2 * kv_local * block.head_dim
    nodes = low.gemm("qkv", tuple(by_name[n] for n in "qkv"), tokens)
    nodes.append(
        low.elementwise(
            "rope+kv-write",
            tokens * ((2 * q_width + kv_width) * WIDE_BYTES),
            kv=tokens * (kv_width / at.dcp * at.kv_bytes_per_element),
        )
    )
    nodes += _prefill_core(block, low, kv_local) if at.phase == "prefill" else _decode_core(block, low, kv_local)
    nodes += low.gemm("o", (by_name["o"],), tokens)
    return nodes


def _prefill_core(block: Attention, low: Lowering, kv_local: Column) -> list[Node]:
    at = low.at
    heads = block.heads / at.tp
    pairs = causal_pairs(float(at.new_tokens), block.window)
    kv_elements = at.tokens * (2 * kv_local * block.head_dim)
    return [
        Work(
            name="attention-core",
            kind=OpKind.ATTENTION,
            dtype=at.core_dtype,
            flops=at.sequences * (heads * (4 * block.head_dim * pairs)),
            traffic_bytes={
                Traffic.KV: kv_elements * at.kv_bytes_per_element,
                Traffic.ACTIVATIONS: at.tokens * (heads * (2 * block.head_dim * WIDE_BYTES)),
            },
            replication=at.padding,
            shape=f"B x {block.heads} heads x {block.head_dim}, {pairs:.0f} causal pairs",
        )
    ]


def _decode_core(block: Attention, low: Lowering, kv_local: Column) -> list[Node]:
    at = low.at
    heads = block.heads * at.dcp / at.tp
    io = at.tokens * (heads * (2 * block.head_dim * WIDE_BYTES))
    nodes: list[Node] = []
    for context, share in split_at(at.contexts, block.window):
        seen = cached_tokens(block, context)
        nodes.append(
            Work(
                name="attention-core",
                kind=OpKind.ATTENTION,
                dtype=at.core_dtype,
                flops=at.tokens * (heads / at.dcp * (4 * block.head_dim * seen)),
                traffic_bytes={
                    Traffic.KV: at.tokens * (kv_local / at.dcp * (2 * block.head_dim * at.kv_bytes_per_element * seen)),
                    Traffic.ACTIVATIONS: io,
                },
                replication=at.padding,
                shape=f"B x {block.heads} heads x {block.head_dim}, {block.kv_heads} kv heads, S={seen:.0f}",
                share=share,
            )
        )
    return context_parallel(low, heads * block.head_dim, heads * block.head_dim, heads, nodes)


def split_at(contexts: tuple[tuple[float, float], ...], window: int | None) -> tuple[tuple[float, float], ...]:
    """Return the quadrature over contexts, with the range split at the window's kink.

    Contexts come as Simpson nodes (a, 1/6), (mid, 4/6), (b, 1/6), or as one node. Where the window
    lies inside (a, b), counts are linear up to it and constant after: Simpson on each piece is exact.
    """
    low, high = contexts[0][0], contexts[-1][0]
    if window is None or not low < window < high:
        return contexts
    first = (window - low) / (high - low)
    return (*simpson(low, float(window), first), (high, 1 - first))


def simpson(low: float, high: float, share: float = 1.0) -> tuple[tuple[float, float], ...]:
    """Return Simpson's nodes and weights on [low, high], weights adding up to `share`.

    >>> simpson(0.0, 6.0)
    ((0.0, 0.16666666666666666), (3.0, 0.6666666666666666), (6.0, 0.16666666666666666))
    """
    if low == high:
        return ((low, share),)
    return ((low, share / 6), ((low + high) / 2, share * 4 / 6), (high, share / 6))


def context_parallel(low: Lowering, q_width: Column, v_width: Column, heads: Column, core: list[Node]) -> list[Node]:
    """Return `core` with its DCP messages: gather q before, combine partial outputs after.

    `q_width`, `v_width` and `heads` are of the DCP group, a token. Combining is either an all-gather of
    the log-sum-exps and a reduce-scatter of the outputs, or one exchange of both.
    """
    at = low.at
    queries = low.message("gather-q", CollectiveKind.ALL_GATHER, "dcp", at.tokens * (q_width * WIDE_BYTES))
    outputs = at.tokens * (v_width * WIDE_BYTES)
    sums = at.tokens * (heads * LSE_BYTES)
    combine = Choice(
        name="dcp-combine",
        plans=(
            Plan(
                name="gather-scatter",
                nodes=(
                    low.message("gather-lse", CollectiveKind.ALL_GATHER, "dcp", sums * at.dcp),
                    low.message("scatter-out", CollectiveKind.REDUCE_SCATTER, "dcp", outputs),
                ),
            ),
            Plan(
                name="exchange",
                nodes=(low.message("exchange-out", CollectiveKind.ALL_TO_ALL, "dcp", outputs + sums),),
            ),
        ),
    )
    return [queries, *core, combine]
