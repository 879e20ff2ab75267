"""The indexer of sparse attention (DeepSeek-V3.2's lightning indexer, arXiv:2512.02556; MiniMax-M3, Qwen4's QSA).

Letters: B sequences, T tokens, S context, H hidden, n index heads, d index head dim, p tokens a key stands for,
b keys chosen together, l choices a token.
Every TP rank holds all its weights and keys and does all its work: each needs the whole choice (as served by sglang
and vLLM; of MiniMax-M3 and Qwen4 `assumed`). DCP splits the keys: each rank chooses among its own, then all merge.
Scores are multiplied in the format of the cached keys.
"""

from collections.abc import Mapping

import numpy as np

from inferometer.blocks.cache import Cache
from inferometer.blocks.causal import prefix_gathered
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.reads import entries_seen
from inferometer.blocks.tensors import Tensor
from inferometer.graph.ops import ONE, CollectiveKind, Column, Node, OpKind, Traffic, Work
from inferometer.specs.indexer import Indexer

SCORE_BYTES = 4.0
"""A score, fp32; a place in a list, int32."""

PACKED = {"fp8": "fp8-g128", "nvfp4": "fp4-g128"}
"""KV format -> format of index keys that follow it: a scale a key."""


def tensors(
    indexer: Indexer, hidden: int, query_width: int, dtype: str, formats: Mapping[str, str]
) -> tuple[Tensor, ...]:
    """Return its projections and norms, whole on every rank; queries are made of `query_width` features."""
    if indexer.shared:
        return ()
    found = [_matrix("index_q", indexer.heads * indexer.dim, query_width, dtype, formats)]
    found.append(_matrix("index_k", indexer.dim, hidden, dtype, formats))
    found += weights(indexer, hidden, dtype, formats)
    if indexer.pool_gate:
        found.append(_matrix("index_pool", indexer.dim, hidden, dtype, formats))
        found.append(_vector("index_pool_bias", indexer.pool * indexer.dim, dtype))
    if indexer.q_norm:
        found.append(_vector("index_q_norm", indexer.dim, dtype))
    if indexer.k_norm != "none":
        found.append(_vector("index_k_norm", indexer.dim, dtype))
    if indexer.k_norm == "layer":
        found.append(_vector("index_k_norm_bias", indexer.dim, dtype))
    if indexer.input_norm:
        found += [_vector(name, query_width, dtype) for name in ("index_input_norm", "index_input_norm_bias")]
    if indexer.head_scales:
        found += [_vector(name, indexer.heads, dtype) for name in ("index_scale", "index_bias")]
    return tuple(found)


def weights(indexer: Indexer, hidden: int, dtype: str, formats: Mapping[str, str]) -> tuple[Tensor, ...]:
    """Return the projection of the weights of its heads, where it has one."""
    return (_matrix("index_weights", indexer.heads, hidden, dtype, formats),) if indexer.weighted else ()


def _matrix(name: str, rows: int, cols: int, dtype: str, formats: Mapping[str, str]) -> Tensor:
    return Tensor(name=name, rows=rows, cols=cols, format=formats.get(name, dtype), kind="indexer")


def _vector(name: str, rows: int, dtype: str) -> Tensor:
    return Tensor(name=name, rows=rows, format=dtype, kind="indexer")


def keys(indexer: Indexer) -> Cache:
    """Return the cache of its keys: d elements for p tokens, copied over TP."""
    form = indexer.key_format
    return Cache(
        name="index",
        width=indexer.dim,
        format=form,
        packed={} if form else PACKED,
        tokens=indexer.pool,
    )


def caches(indexer: Indexer | None) -> tuple[Cache, ...]:
    """Return the keys it keeps; none where it uses a choice made before."""
    return () if indexer is None or indexer.shared else (keys(indexer),)


def takes(indexer: Indexer | None) -> tuple[str, ...]:
    """Return those of its tensors that take the layer's input, whatever its kind."""
    if indexer is None or indexer.shared:
        return ()
    return ("index_k", *(("index_weights",) if indexer.weighted else ()))


def lower(indexer: Indexer | None, low: Lowering, by_name: Mapping[str, Tensor]) -> list[Node]:
    """Return its ops, from the layer's input (or q latent) to the list of what attention reads."""
    if indexer is None or indexer.shared:
        return []
    at, cache = low.at, keys(indexer)
    nodes: list[Node] = []
    if indexer.input_norm:
        nodes.append(low.elementwise("index-norm", at.tokens * (2 * by_name["index_q"].cols * WIDE_BYTES)))
    nodes += projections(low, by_name, indexer.matrices(), apart=indexer.input_norm)
    moved = (indexer.heads + 1 + indexer.pool_gate) * indexer.dim
    written = at.tokens * (cache.entry_bytes(at.kv_format) / indexer.pool / at.dcp)
    nodes.append(low.elementwise("index-rope+key-write", at.tokens * (2 * moved * WIDE_BYTES), kv=written))
    return [*nodes, *choice(indexer, low, cache, indexer.top_k / (indexer.pool * indexer.block))]


def projections(low: Lowering, by_name: Mapping[str, Tensor], names: tuple[str, ...], *, apart: bool) -> list[Node]:
    """Return the GEMMs of tensors, one for those of one input; `apart` keeps the first for itself."""
    groups: dict[tuple[int, bool], list[Tensor]] = {}
    for name in names:
        tensor = by_name[name]
        groups.setdefault((tensor.cols, apart and name == names[0]), []).append(tensor)
    nodes: list[Node] = []
    for group in groups.values():
        nodes += low.gemm("+".join(tensor.name for tensor in group), tuple(group), low.at.tokens)
    return nodes


def choice(indexer: Indexer, low: Lowering, cache: Cache, chosen: float) -> list[Node]:
    """Return the scores of every key, and the choice of the `chosen` best of a list.

    flops = 2 n d a query and key; keys are read once a sequence. l lists of scores, the best of each b keys, are
    written and read once in fp32, and l lists of top-k written; under DCP every rank passes on its own best. A prompt's
    rows score all keys on every rank, which gathers those of the cached prefix first.
    """
    at = low.at
    lists = at.tokens * (indexer.lists * SCORE_BYTES)
    before = at.prefix // indexer.pool
    nodes: list[Node] = prefix_gathered(low, before, cache.entry_bytes(at.kv_format))
    mean: Column = at.tokens * 0.0
    for pairs, entries, share in entries_seen(at, indexer.pool, indexer.among):
        scored = at.sequences * (pairs / indexer.block * indexer.lists * SCORE_BYTES)
        nodes.append(_scores(indexer, low, cache, pairs=pairs, entries=entries, share=share, written=scored))
        mean = mean + scored * share
    spread = at.dcp if at.generates else ONE
    nodes.append(low.elementwise("index-top-k", mean / spread + lists * chosen))
    if at.generates:
        best = lists * (2 * chosen) * at.dcp
        nodes.append(low.message("gather-top-k", CollectiveKind.ALL_GATHER, "dcp", best))
    return nodes


def _scores(
    indexer: Indexer, low: Lowering, cache: Cache, *, pairs: float, entries: float, share: float, written: Column
) -> Work:
    at = low.at
    spread = at.dcp if at.generates else ONE
    key_format = cache.stored(at.kv_format)
    queries = at.tokens * (indexer.heads * indexer.dim * low.narrow_bytes(key_format))
    return Work(
        name="index-scores",
        kind=OpKind.ATTENTION,
        stored=key_format,
        dtype=at.dtypes[key_format],
        flops=at.sequences * (2 * indexer.heads * indexer.dim * pairs) / spread,
        traffic_bytes={
            Traffic.KV: at.sequences * (cache.entry_bytes(at.kv_format) * entries) / spread,
            Traffic.ACTIVATIONS: queries + written / spread,
        },
        replication=at.padding * (at.tp / spread),
        rows=np.asarray(float(at.new_tokens)),
        features=np.asarray(float(indexer.heads)),
        items=at.sequences,
        shape=f"q [{{b}}, {{t}}, {indexer.heads}, {indexer.dim}] k [{{b}}, {{s}}, {indexer.dim}]",
        sizes={"b": at.sequences, "t": np.asarray(float(at.new_tokens)), "s": entries / spread},
        share=share,
    )
