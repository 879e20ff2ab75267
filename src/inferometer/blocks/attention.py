"""Softmax attention: MHA, GQA and MQA, sliding windows, chunks, chosen tokens, shared K and V, context parallel.

Letters: B sequences, T tokens, S context, H hidden, N query heads, K kv heads, D head dim, E head dim of v.
TP splits the heads; kv heads are copied where TP / DCP exceeds K. DCP splits the KV of a head along
the sequence over ranks of the TP group: queries are gathered over DCP, partial outputs combined.
"""

import numpy as np

from inferometer.blocks import indexer, local, looped
from inferometer.blocks.cache import Cache
from inferometer.blocks.causal import prefix_gathered, seen
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.reads import chosen
from inferometer.blocks.tensors import Heads, Tensor, kv_shards
from inferometer.graph.ops import ONE, Choice, CollectiveKind, Column, Node, OpKind, Plan, Traffic, Work
from inferometer.specs.mixers import Attention

LSE_BYTES = 4.0
"""A log-sum-exp a query head, fp32."""


_OF_KV = ("k", "v", "k_taps", "v_taps")
"""Tensors whose rows are of kv heads."""

STATISTIC_BYTES = 8.0
"""Sums of squares of a token's q and k, fp32."""


def v_dim(block: Attention) -> int:
    """Return the width of a head of v."""
    return block.head_dim if block.v_dim is None else block.v_dim


def tensors(block: Attention, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return q, k, v, gate and o with their biases, norms and sinks.

    k and v are missing where they are another layer's, v where it is k.
    """
    rows = _out_features(block)
    out = block.heads * v_dim(block)
    found = [
        Tensor(
            name=name,
            rows=n,
            cols=hidden,
            format=block.formats.get(name, dtype),
            kind="attention",
            split_rows="kv" if name in _OF_KV else "tp",
        )
        for name, n in rows.items()
    ]
    fmt = block.formats.get("o", dtype)
    found.append(Tensor(name="o", rows=hidden, cols=out, format=fmt, kind="attention", split_cols="tp"))
    if block.qkv_bias:
        biased = {name: n for name, n in rows.items() if name in "qkv"}
        found += [_vector(f"{name}_bias", n, dtype, "kv" if name in "kv" else "tp") for name, n in biased.items()]
    if block.out_bias:
        found.append(_vector("o_bias", hidden, dtype))
    if block.sinks:
        found.append(_vector("sinks", block.heads, dtype, "tp"))
    if block.indexer:
        found += indexer.tensors(block.indexer, hidden, hidden, dtype, block.formats)
    return (*found, *local.tensors(block, dtype), *_norms(block, dtype), *looped.tensors(block, hidden, dtype))


def _out_features(block: Attention) -> dict[str, int]:
    """Return the output features of every projection of the layer's input."""
    found = {"q": block.heads * block.head_dim}
    if not block.kv_shared:
        found["k"] = block.kv_heads * block.head_dim
    if not block.kv_shared and not block.v_from_k:
        found["v"] = block.kv_heads * v_dim(block)
    if block.relative:
        found["r"] = block.heads * block.relative
    if block.token_sinks:
        found["sink"] = block.heads
    if block.token_taps:
        found |= dict.fromkeys(("k_taps", "v_taps"), block.kv_heads * block.conv)
    if block.gate != "none":
        found["gate"] = block.heads * (v_dim(block) if block.gate == "wide" else 1)
    return found


def _vector(name: str, rows: int, dtype: str, split_rows: str = "", kind: str = "attention") -> Tensor:
    return Tensor(name=name, rows=rows, format=dtype, kind=kind, split_rows=split_rows)


def _norms(block: Attention, dtype: str) -> list[Tensor]:
    """Return the norms inside: of q and k, and of o's input."""
    found = []
    vectors = ("norm", "norm_bias") if block.qk_norm_bias else ("norm",)
    normed = ("q", "k")[: 1 + block.k_norm] if block.qk_norm else ()
    widths = {"q": (block.heads * block.head_dim, "tp"), "k": (block.kv_heads * block.head_dim, "kv")}
    for vector in vectors:
        for name in normed:
            rows, split = (block.head_dim, "") if block.qk_norm_over == "head" else widths[name]
            found.append(_vector(f"{name}_{vector}", rows, dtype, split, "norm"))
    if block.relative_norm:
        found.append(_vector("r_norm", block.heads * block.relative, dtype, "tp", "norm"))
    if block.sub_norm:
        found.append(_vector("sub_norm", block.heads * v_dim(block), dtype, "tp", "norm"))
    return found


def kv_heads_local(kv_heads: int, tp: Column, dcp: Column) -> Column:
    """Return the kv heads a chip holds: max(1, K DCP / TP)."""
    return np.maximum(1.0, np.ceil(kv_heads * dcp / tp))


def heads(block: Attention) -> Heads:
    """Return N and K."""
    return Heads(block.heads, block.kv_heads)


def takes(block: Attention) -> tuple[str, ...]:
    """Return the tensors that fix the format of the layer's input."""
    return ("q", "k", *indexer.takes(block.indexer))


def caches(block: Attention) -> tuple[Cache, ...]:
    """Return K and V: D + E elements a kv head and token, up to the window or chunk; none where another layer's.

    An indexer keeps keys of its own.
    """
    width, most = block.head_dim + v_dim(block), block.window or block.chunk
    own = Cache(name="kv", heads=block.kv_heads, width=width, split="kv", most=most)
    return (*(() if block.kv_shared else (own,)), *local.caches(block), *indexer.caches(block.indexer))


def lower(block: Attention, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer's attention, from normed input to partial output sums."""
    at = low.at
    low.shards["kv"] = kv_shards(at.tp, at.dcp, block.kv_heads)
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    kv_local = kv_heads_local(block.kv_heads, at.tp, at.dcp)
    ins = tuple(_out_features(block))
    nodes = looped.lower(block, low, dtype)
    nodes += low.gemm("qkv" if ins == ("q", "k", "v") else "+".join(ins), tuple(by_name[n] for n in ins), at.tokens)
    nodes += local.lower(block, low, kv_local, dtype)
    nodes += _prepare(block, low, kv_local)
    nodes += indexer.lower(block.indexer, low, by_name)
    nodes += _core(block, low, kv_local)
    return [*nodes, *_finish(block, low), *low.gemm("o", (by_name["o"],), at.tokens)]


def _prepare(block: Attention, low: Lowering, kv_local: Column) -> list[Node]:
    """Return norms and rotation of q and k, and the write of k and v.

    A norm over all heads needs the sums of squares of every TP rank.
    """
    at, tokens = low.at, low.at.tokens
    q_width = block.heads * block.head_dim / at.tp
    nodes: list[Node] = []
    if block.qk_norm and block.qk_norm_over == "all":
        nodes.append(low.message("qk-norm", CollectiveKind.ALL_REDUCE, "tp", tokens * STATISTIC_BYTES))
    if block.kv_shared:
        return [*nodes, low.elementwise("rope", tokens * (2 * q_width * WIDE_BYTES))]
    kv_width = kv_local * (block.head_dim + v_dim(block))
    nodes.append(
        low.elementwise(
            "rope+kv-write",
            tokens * ((2 * q_width + kv_width) * WIDE_BYTES),
            kv=tokens * (kv_width / at.dcp * at.kv_bytes_per_element),
            shape="[{t}, {q}] [{t}, {k}]",
            sizes={"t": tokens, "q": q_width, "k": kv_width},
        )
    )
    return nodes


def _finish(block: Attention, low: Lowering) -> list[Node]:
    """Return what is done to the output before o: gate (read both, write one) and norm (read and write)."""
    at = low.at
    width = block.heads * v_dim(block) / at.tp
    nodes: list[Node] = []
    if block.gate != "none":
        gates = width if block.gate == "wide" else block.heads / at.tp
        nodes.append(low.elementwise("gate", at.tokens * ((2 * width + gates) * WIDE_BYTES)))
    if block.sub_norm:
        nodes.append(low.elementwise("sub-norm", at.tokens * (2 * width * WIDE_BYTES)))
    return nodes


def _core(block: Attention, low: Lowering, kv_local: Column) -> list[Node]:
    at = low.at
    spread = at.dcp if at.generates else ONE
    heads, both = block.heads * spread / at.tp, block.head_dim + v_dim(block)
    entry = kv_local * (both * at.kv_bytes_per_element)
    io, of_group = at.tokens * (heads * (both * WIDE_BYTES)), heads / kv_local
    new, items = np.asarray(float(at.new_tokens)), at.sequences * kv_local
    nodes: list[Node] = []
    for pairs, keys, share in chosen(at, block.indexer) if block.indexer else seen(at, block.window, block.chunk):
        nodes += prefix_gathered(low, keys - at.new_tokens, entry)
        nodes.append(
            Work(
                name="attention-core",
                kind=OpKind.ATTENTION,
                stored=at.kv_format,
                dtype=at.core_dtype,
                flops=at.sequences * (heads / spread * (2 * both * pairs)),
                traffic_bytes={
                    Traffic.KV: at.sequences * (entry / spread * keys),
                    Traffic.ACTIVATIONS: io,
                },
                replication=at.padding,
                rows=new,
                features=of_group,
                items=items,
                shape=f"q [{{b}}, {{t}}, {{n}}, {block.head_dim}] kv [{{b}}, {{s}}, {{k}}, {both}]",
                sizes={
                    "b": at.sequences,
                    "t": new,
                    "n": heads,
                    "k": kv_local,
                    "s": keys / spread,
                },
                share=share,
            )
        )
    return context_parallel(low, heads * block.head_dim, heads * v_dim(block), heads, nodes) if at.generates else nodes


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
