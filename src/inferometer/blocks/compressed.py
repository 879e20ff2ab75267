"""DeepSeek-V4's attention: a window of tokens, and entries that stand for several (CSA, HCA).

Letters: B sequences, T tokens, S context, H hidden, N heads, D head dim, q rank of the q latent, g output groups,
o rank of each, W window, p tokens an entry stands for, c = 2 where entries overlap, else 1, n d index heads and dim.

A key is its own value, and all heads share it: caches, compressor and indexer are whole on every TP rank. TP splits
the heads of q_b, the groups of out_a and the columns of out_b, so that TP <= g (sgl-project/sglang, DeepSeek-V4).
Shapes: q_a [q, H], q_b [N D, q], kv [D, H], out_a g times [o, N D / g], out_b [H, g o]; compressor kv and gate
[c D, H] and a bias [p, c D]; of the index keys the same with d; index_q [n d, q].
"""

import numpy as np

from inferometer.blocks import indexer
from inferometer.blocks.attention import context_parallel
from inferometer.blocks.cache import Cache
from inferometer.blocks.causal import Seen, causal_pairs, keys_seen, prefix_gathered, split_at
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.reads import entries_at, entry_kinks
from inferometer.blocks.tensors import Heads, Tensor, local_rows, one_copy_bytes
from inferometer.graph.ops import LATENTS, ONE, Node, OpKind, Traffic, Work
from inferometer.specs.formats import bytes_per_element, find_format
from inferometer.specs.mixers import Compressed

SCALED = 64
"""Elements of an fp8 entry that share a scale of one byte."""

STATE_FORMAT = "fp32"
"""Of what waits for its entry to be complete."""


def tensors(block: Compressed, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the projections, norms and sinks, with those of compressor and indexer."""
    width, grouped = block.heads * block.head_dim, block.out_groups * block.out_rank
    found = [
        _matrix(block, "q_a", block.q_rank, hidden, dtype),
        _vector("q_a_norm", block.q_rank, dtype, "norm"),
        _matrix(block, "q_b", width, block.q_rank, dtype, split_rows="tp"),
        _matrix(block, "kv", block.head_dim, hidden, dtype),
        _vector("kv_norm", block.head_dim, dtype, "norm"),
        _matrix(block, "out_a", grouped, width // block.out_groups, dtype, split_rows="tp"),
        _matrix(block, "out_b", hidden, grouped, dtype, split_cols="tp"),
    ]
    if block.sinks:
        found.append(Tensor(name="sinks", rows=block.heads, format=dtype, kind="attention", split_rows="tp"))
    if block.compresses:
        found += _compressor(block, "compress", block.head_dim, hidden, dtype, gated=block.gated)
    return (*found, *_index_tensors(block, hidden, dtype))


def _matrix(
    block: Compressed, name: str, rows: int, cols: int, dtype: str, *, split_rows: str = "", split_cols: str = ""
) -> Tensor:
    fmt = block.formats.get(name, dtype)
    return Tensor(
        name=name, rows=rows, cols=cols, format=fmt, kind="attention", split_rows=split_rows, split_cols=split_cols
    )


def _vector(name: str, rows: int, dtype: str, kind: str = "attention") -> Tensor:
    return Tensor(name=name, rows=rows, format=dtype, kind=kind)


def _compressor(block: Compressed, prefix: str, dim: int, hidden: int, dtype: str, *, gated: bool) -> list[Tensor]:
    """Return what makes entries of `dim` elements: kv and, where it weighs its tokens, gate and bias; and a norm."""
    width = dim * (2 if block.overlap else 1)
    found = [_matrix(block, f"{prefix}_kv", width, hidden, dtype)]
    if gated:
        found.append(_matrix(block, f"{prefix}_gate", width, hidden, dtype))
        if block.gate_bias:
            found.append(_vector(f"{prefix}_bias", block.ratio * width, STATE_FORMAT))
    return [*found, _vector(f"{prefix}_norm", dim, dtype, "norm")]


def _index_tensors(block: Compressed, hidden: int, dtype: str) -> list[Tensor]:
    own = block.indexer
    if own is None or own.shared:
        return []
    found = [_matrix(block, "index_q", own.heads * own.dim, block.q_rank, dtype)]
    found += indexer.weights(own, hidden, dtype, block.formats)
    if block.index_keys == "compressed":
        found += _compressor(block, "index", own.dim, hidden, dtype, gated=True)
    if block.index_keys == "latent":
        found.append(_matrix(block, "index_k", own.dim, block.head_dim, dtype))
        if own.k_norm == "rms":
            found.append(_vector("index_k_norm", own.dim, dtype, "norm"))
    return found


def heads(block: Compressed) -> Heads:
    """Return the output groups, which TP splits with their heads, and 1: one key for all heads."""
    return Heads(block.out_groups, 1, what="output groups")


def takes(block: Compressed) -> tuple[str, ...]:
    """Return the tensors that fix the format of the layer's input."""
    return ("q_a", "kv", *(("compress_kv",) if block.compresses else ()))


def caches(block: Compressed) -> tuple[Cache, ...]:
    """Return window, entries, index keys, and what waits for its entry to be complete."""
    found = [_entries(block, "window", most=block.window)]
    if block.compresses:
        found.append(_entries(block, "compressed", tokens=block.ratio))
    if block.compresses and block.ratio > 1:
        found.append(_pending(block, "pending", block.head_dim))
    own = block.indexer
    if own is not None and not own.shared and block.index_keys != "shared":
        found.append(indexer.keys(own))
        if block.index_keys == "compressed":
            found.append(_pending(block, "pending-index", own.dim))
    return tuple(found)


def _entries(block: Compressed, name: str, tokens: int = 1, most: int | None = None) -> Cache:
    """Return a cache of entries of D elements.

    In fp8: all but the rotated elements in a byte each, one byte of scale for 64, the rotated in bf16, and padding to
    a multiple of 8: 448 + 7 + 128 + 1 = 584 bytes (sgl-project/sglang).
    """
    plain = block.head_dim - block.rope_dim
    bytes_used = plain + -(-plain // SCALED) + 2 * block.rope_dim
    return Cache(
        name=name,
        width=block.head_dim,
        tokens=tokens,
        most=most,
        layouts_bytes={"fp8": 8.0 * -(-bytes_used // 8)},
    )


def _pending(block: Compressed, name: str, dim: int) -> Cache:
    """Return the rows of kv and gate that the next entries are made of: c p rows of 2 c dim (sgl-project/sglang)."""
    both = 2 if block.overlap else 1
    return Cache(name=name, width=both * block.ratio * 2 * both * dim, format=STATE_FORMAT, fixed=True)


def lower(block: Compressed, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer's attention, from normed input to partial output sums."""
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    nodes = _of_input(low, by_name, ("q_a", "kv"), ("compress_kv", "compress_gate"))
    nodes += low.gemm("q_b", (by_name["q_b"],), low.at.tokens)
    nodes.append(_prepare(block, low))
    if block.compresses and block.ratio > 1:
        nodes.append(
            _compress(block, low.all_tokens, "compress", _entries(block, "compressed", block.ratio), block.head_dim)
        )
    nodes += _index(block, low, by_name)
    nodes += _core(block, low)
    return [*nodes, *_out(block, low, by_name["out_a"]), *low.gemm("out_b", (by_name["out_b"],), low.at.tokens)]


def _of_input(low: Lowering, by_name: dict[str, Tensor], own: tuple[str, ...], kept: tuple[str, ...]) -> list[Node]:
    """Return the GEMM of matrices that take the layer's input; apart those for what is kept, where more tokens come."""
    groups = ((low, (*own, *kept)),) if low.whole is None else ((low, own), (low.whole, kept))
    nodes: list[Node] = []
    for lowers, names in groups:
        held = tuple(by_name[name] for name in names if name in by_name)
        nodes += lowers.gemm("+".join(tensor.name for tensor in held), held, lowers.at.tokens) if held else []
    return nodes


def _prepare(block: Compressed, low: Lowering) -> Work:
    """Return norms of latent, queries and key, rotation, and the write of the window's entry.

    Entries of one token each are written here too.
    """
    at = low.at
    queries = block.heads / at.tp * block.head_dim
    moved = 2 * (block.q_rank + block.head_dim) + 2 * queries
    entry = _entries(block, "window").entry_bytes(at.kv_format) / at.dcp
    kv = at.tokens * entry
    if block.compresses and block.ratio == 1:
        kv = kv + low.all_tokens.at.tokens * entry
    return low.elementwise("norm+rope+kv-write", at.tokens * (moved * WIDE_BYTES), kv=kv)


def _compress(block: Compressed, low: Lowering, name: str, cache: Cache, dim: int) -> Work:
    """Return the making of entries from kv and gate, and their write, an entry for p tokens.

    A generated token writes a row of kv and gate to the state; each p-th reads all c p rows: c rows a token on average.
    A prompt reads the projections' output itself; what waits before and after it is left out.
    """
    at = low.at
    both = 2 if block.overlap else 1
    row = 2 * both * dim
    state = row * bytes_per_element(find_format(STATE_FORMAT)) * (1 + both)
    return Work(
        name=name,
        kind=OpKind.ELEMENTWISE,
        dtype=at.core_dtype,
        flops=at.tokens * 0.0,
        traffic_bytes={
            Traffic.ACTIVATIONS: at.tokens * (row * WIDE_BYTES),
            Traffic.STATE: at.tokens * (state if at.generates else 0.0),
            Traffic.KV: at.tokens * (cache.entry_bytes(at.kv_format) / block.ratio / at.dcp),
        },
        replication=ONE,
        shape=f"[{{t}}, {row}] -> [{{e}}, {dim}]",
        sizes={"t": at.tokens, "e": at.tokens / block.ratio},
    )


def _index(block: Compressed, low: Lowering, by_name: dict[str, Tensor]) -> list[Node]:
    """Return the ops of the indexer, from latent and input to the list of entries."""
    own = block.indexer
    if own is None or own.shared:
        return []
    at, every = low.at, low.all_tokens
    nodes = low.gemm("index_q", (by_name["index_q"],), at.tokens)
    nodes += _of_input(low, by_name, ("index_weights",), ("index_kv", "index_gate"))
    if block.index_keys == "latent":
        entries = every.at.tokens / block.ratio
        nodes += every.gemm("index_k", (by_name["index_k"],), entries, entries)
    if block.index_keys == "compressed":
        nodes.append(_compress(block, every, "index-compress", indexer.keys(own), own.dim))
    keys = indexer.keys(own)
    written = keys.entry_bytes(at.kv_format) / block.ratio if block.index_keys == "latent" else 0.0
    rotated = at.tokens * (2 * own.heads * own.dim * WIDE_BYTES)
    nodes.append(low.elementwise("index-rope", rotated, kv=every.at.tokens * (written / at.dcp)))
    return [*nodes, *indexer.choice(own, low, keys, own.top_k)]


def _core(block: Compressed, low: Lowering) -> list[Node]:
    """Return the core over window and entries: 4 N D flops a query and entry; K is V, so each is read once."""
    at = low.at
    spread = at.dcp if at.generates else ONE
    local, entry = block.heads / at.tp, _entries(block, "window").entry_bytes(at.kv_format)
    cores: list[Node] = [
        Work(
            name="attention-core",
            kind=OpKind.ATTENTION,
            stored=LATENTS + at.kv_format,
            dtype=at.core_dtype,
            flops=at.sequences * (local * (4 * block.head_dim * pairs)),
            traffic_bytes={
                Traffic.KV: at.sequences * (entry * entries) / spread,
                Traffic.ACTIVATIONS: at.tokens * (local * spread * (2 * block.head_dim * WIDE_BYTES)),
            },
            replication=at.padding,
            rows=np.asarray(float(at.new_tokens)),
            features=local * spread,
            items=at.sequences,
            shape=f"q [{{b}}, {{t}}, {{n}}, {block.head_dim}] k=v [{{b}}, {{s}}, 1, {block.head_dim}]",
            sizes={
                "b": at.sequences,
                "t": np.asarray(float(at.new_tokens)),
                "n": local * spread,
                "s": entries / spread,
            },
            share=share,
        )
        for pairs, entries, share in _reads(block, low)
    ]
    if not at.generates:
        return [*prefix_gathered(low, _before(block, low), entry), *cores]
    group = local * at.dcp
    return context_parallel(low, group * block.head_dim, group * block.head_dim, group, cores)


def _before(block: Compressed, low: Lowering) -> float:
    """Return the entries that are cached before a prompt and that its rows may read: of the window, and all others."""
    prefix = low.at.prefix
    return min(prefix, block.window - 1.0) + (prefix // block.ratio if block.ratio else 0.0)


def _reads(block: Compressed, low: Lowering) -> tuple[Seen, ...]:
    """Return query-entry pairs of a sequence and entries read: the row at token i reads min(i, W) + min(i / p, k).

    Tokens that stopped before the layer have left entries; they are charged as if they had left keys of the window too,
    W a row at most, so that no pass is cheaper than a shorter one.
    """
    at, window, most = low.at, block.window, block.indexer.top_k if block.indexer else None
    rows, nodes = at.new_tokens, at.contexts
    if at.generates:
        kinks = tuple(float(window + row) for row in range(rows))
        kinks += entry_kinks(rows, block.ratio, most) if block.ratio else ()
        nodes = split_at(nodes, *kinks, flat=False)
    found = []
    for end, share in nodes:
        pairs, entries = entries_at(at, end, block.ratio, most) if block.ratio else (0.0, 0.0)
        pairs += causal_pairs(rows, window, prefix=end - rows)
        found.append(Seen(pairs, entries + keys_seen(rows, window, prefix=end - rows), share))
    return tuple(found)


def _out(block: Compressed, low: Lowering, out_a: Tensor) -> list[Node]:
    """Return the grouped projection, a [o, N D / g] matrix for the heads of each group: 2 t r c flops of local rows."""
    at = low.at
    rows, width = local_rows(out_a, low.shards), block.heads * block.head_dim / at.tp
    work = Work(
        name="out_a",
        kind=OpKind.GEMM,
        dtype=at.dtypes[out_a.format],
        flops=at.tokens * (2 * out_a.cols * rows),
        traffic_bytes={
            Traffic.WEIGHTS: one_copy_bytes(out_a, low.shards),
            Traffic.ACTIVATIONS: at.tokens * (width * low.narrow_bytes(out_a.format) + rows * WIDE_BYTES),
        },
        replication=at.padding * (at.tp * rows / out_a.rows),
        stored=out_a.format,
        rows=at.tokens,
        features=rows,
        shape=f"{{g}} x [{{t}}, {out_a.cols}] x [{block.out_rank}, {out_a.cols}]",
        sizes={"g": rows / block.out_rank, "t": at.tokens},
    )
    return [*low.quantise("out_a", out_a.format, at.tokens * width), work]
