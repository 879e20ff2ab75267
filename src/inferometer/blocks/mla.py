"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 section 2.1), absorbed or expanded.

Letters: B sequences, T tokens, S context, H hidden, N heads, q and c ranks of the latents, n/r nope and
rope dims of a query head, v value dim. The cache holds c + r elements a token, the same on every TP rank.

Absorbed: kv_b's halves are applied to the query (q_nope W_UK) and to the output (W_UV): the core works on the
latent, as one kv head of width c + r (values: c). Expanded: kv_b turns latents into K and V of every head.

With an indexer, a query reads the latents it picks. Where tokens are generated both forms read those alone. A prompt's
queries pick differently: absorbed, a token's heads share what they read, and the core works on the pairs picked;
expanded, every pair is worked out and the others masked. A prompt's latents come from memory once, as elsewhere.
"""

import numpy as np

from inferometer.blocks import indexer
from inferometer.blocks.attention import context_parallel
from inferometer.blocks.cache import Cache
from inferometer.blocks.causal import Seen, prefix_gathered, seen
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.reads import chosen
from inferometer.blocks.tensors import Heads, Tensor, one_copy_bytes
from inferometer.graph.ops import LATENTS, NONE, ONE, Choice, Column, Node, OpKind, Plan, Traffic, Work
from inferometer.specs.mixers import Mla

SCALE_BYTES = 4.0
"""An fp32 scale."""

SCALED = 128
"""Elements of a latent that share one."""


def tensors(block: Mla, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the projections, biases and latent norms. Latent projections are whole on every TP rank unless cut."""
    latents = "tp" if block.cut_latents else ""
    head = block.nope_dim + block.rope_dim
    latent = block.kv_rank + block.rope_dim

    def weight(name: str, rows: int, cols: int, split_rows: str = "", split_cols: str = "") -> Tensor:
        fmt = block.formats.get(name, dtype)
        return Tensor(
            name=name, rows=rows, cols=cols, format=fmt, kind="attention", split_rows=split_rows, split_cols=split_cols
        )

    found: list[Tensor] = []
    if block.q_rank is None:
        found.append(weight("q", block.heads * head, hidden, split_rows="tp"))
    else:
        found += [
            weight("q_a", block.q_rank, hidden, split_rows=latents),
            Tensor(name="q_a_norm", rows=block.q_rank, format=dtype, kind="norm"),
            weight("q_b", block.heads * head, block.q_rank, split_rows="tp"),
        ]
    if not block.kv_shared:
        found.append(weight("kv_a", latent, hidden, split_rows=latents))
        found.append(Tensor(name="kv_a_norm", rows=block.kv_rank, format=dtype, kind="norm"))
    found.append(weight("kv_b", block.heads * (block.nope_dim + block.v_dim), block.kv_rank, split_rows="tp"))
    if block.gate != "none":
        found.append(weight("gate", _gates(block), hidden, split_rows="tp"))
    found.append(weight("o", hidden, block.heads * block.v_dim, split_cols="tp"))
    if block.indexer:
        found += indexer.tensors(block.indexer, hidden, block.q_rank or hidden, dtype, block.formats)
    return (*found, *_vectors(block, hidden, dtype))


def _gates(block: Mla) -> int:
    """Return the gates of a token: one a head, or one an element of the output."""
    return block.heads * (block.v_dim if block.gate == "wide" else 1)


def _vectors(block: Mla, hidden: int, dtype: str) -> list[Tensor]:
    """Return biases, sinks, the softmax's scales and the norm of the rotated keys."""
    found: list[Tensor] = []
    if block.bias:
        biased = {"kv_a": 0 if block.kv_shared else block.kv_rank + block.rope_dim, "o": hidden, "q_a": block.q_rank}
        found += [Tensor(name=f"{n}_bias", rows=r, format=dtype, kind="attention") for n, r in biased.items() if r]
    names = (("sinks", block.sinks), ("scale", block.head_scales), ("scale_bias", block.head_scales))
    for name, held in names:
        if held:
            found.append(Tensor(name=name, rows=block.heads, format=dtype, kind="attention", split_rows="tp"))
    if block.rope_norm:
        found.append(Tensor(name="rope_norm", rows=block.rope_dim, format=dtype, kind="norm"))
    return found


def heads(block: Mla) -> Heads:
    """Return N, and 1: the latent is one kv head."""
    return Heads(block.heads, 1)


def takes(block: Mla) -> tuple[str, ...]:
    """Return the tensors that fix the format of the layer's input."""
    own = () if block.kv_shared else ("kv_a",)
    return ("q_a" if block.q_rank else "q", *own, *indexer.takes(block.indexer))


def caches(block: Mla) -> tuple[Cache, ...]:
    """Return the latent, copied over TP, unless it is another layer's, and the keys of an indexer."""
    return (*(() if block.kv_shared else (_latent(block),)), *indexer.caches(block.indexer))


def _latent(block: Mla) -> Cache:
    """Return the latent: c + r elements a token.

    Kernels that read chosen tokens lay an fp8 entry out as c elements, an fp32 scale for each 128 of them, and the
    rotated part in bf16: 512 + 16 + 128 = 656 bytes (deepseek-ai/FlashMLA).
    """
    packed = block.kv_rank + SCALE_BYTES * block.kv_rank / SCALED + 2.0 * block.rope_dim
    return Cache(
        name="latent",
        width=block.kv_rank + block.rope_dim,
        most=block.window,
        layouts_bytes={"fp8": packed} if block.indexer else {},
    )


def expanded_caches(block: Mla) -> tuple[Cache, ...]:
    """Return K and V of every head, n + r + v elements a head and token; the latent where kv_b is stored in halves."""
    if block.split_up or block.kv_shared:
        return caches(block)
    width = block.nope_dim + block.rope_dim + block.v_dim
    heads = Cache(name="kv", heads=block.heads, width=width, split="tp", most=block.window)
    return (heads, *indexer.caches(block.indexer))


def lower(block: Mla, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer's attention, from normed input to partial output sums."""
    at, tokens = low.at, low.at.tokens
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    own = () if block.kv_shared else (by_name["kv_a"],)
    if block.q_rank is None:
        nodes = [*low.gemm("q", (by_name["q"],), tokens), *(low.gemm("kv_a", own, tokens) if own else ())]
        nodes += _gathered(block, low)
    else:
        first = (by_name["q_a"], *own)
        nodes = low.gemm("+".join(t.name for t in first), first, tokens)
        nodes += _gathered(block, low)
        nodes += low.gemm("q_b", (by_name["q_b"],), tokens)
    nodes.append(_prepare(block, low))
    nodes += indexer.lower(block.indexer, low, by_name)
    prefix = seen(at, block.window)[0].keys - at.new_tokens
    nodes += prefix_gathered(low, prefix, _latent(block).entry_bytes(at.kv_format))
    absorbed = Plan(name="absorbed", nodes=tuple(_absorbed(block, low, by_name["kv_b"])))
    expanded = Plan(name="expanded", nodes=tuple(_expanded(block, low, by_name["kv_b"])))
    nodes.append(Choice(name="mla", plans=(absorbed, expanded)))
    if block.gate != "none":
        width = block.heads * block.v_dim / at.tp
        nodes += low.gemm("out-gate", (by_name["gate"],), tokens)
        nodes.append(low.elementwise("out-gate.apply", tokens * ((2 * width + _gates(block) / at.tp) * WIDE_BYTES)))
    nodes += low.gemm("o", (by_name["o"],), tokens)
    return nodes


def _latent_width(block: Mla) -> int:
    """Return the elements a token has in latents that the layer makes: of q, and of K and V."""
    return (block.q_rank or 0) + (0 if block.kv_shared else block.kv_rank + block.rope_dim)


def _gathered(block: Mla, low: Lowering) -> list[Node]:
    """Return the message that makes latents whole where TP splits the projections to them."""
    return [low.gathered_latents(_latent_width(block))] if block.cut_latents else []


def _prepare(block: Mla, low: Lowering) -> Work:
    """Return norms of the latents, rotation, and the write of the latent; none is written where it is another's."""
    at, tokens = low.at, low.at.tokens
    moved = _latent_width(block)
    rope = block.heads / at.tp * block.rope_dim
    activations = tokens * ((2 * moved + 2 * rope) * WIDE_BYTES)
    shape, sizes = f"[{{t}}, {moved}] [{{t}}, {{n}}, {block.rope_dim}]", {"t": tokens, "n": block.heads / at.tp}
    if block.kv_shared:
        return low.elementwise("latent-norm+rope", activations, shape=shape, sizes=sizes)
    written = tokens * (_latent(block).entry_bytes(at.kv_format) / at.dcp)
    return low.elementwise("latent-norm+rope+kv-write", activations, kv=written, shape=shape, sizes=sizes)


def _per_head_gemm(low: Lowering, name: str, kv_b: Tensor, heads: Column, *, in_dim: int, out_dim: int) -> list[Node]:
    """Return a batched GEMM, a [in, out] matrix a head: one half of kv_b in absorbed form."""
    at = low.at
    narrow = low.narrow_bytes(kv_b.format)
    part = in_dim * out_dim * heads / (kv_b.rows * kv_b.cols / at.tp)
    work = Work(
        name=name,
        kind=OpKind.GEMM,
        dtype=at.dtypes[kv_b.format],
        flops=at.tokens * (2 * in_dim * out_dim * heads),
        traffic_bytes={
            Traffic.WEIGHTS: one_copy_bytes(kv_b, low.shards) * part,
            Traffic.ACTIVATIONS: at.tokens * (heads * (in_dim * narrow + out_dim * WIDE_BYTES)),
        },
        replication=low.at.padding,
        stored=kv_b.format,
        rows=at.tokens,
        features=np.asarray(float(out_dim)),
        items=heads,
        shape=f"{{n}} x [{{t}}, {in_dim}] x [{in_dim}, {out_dim}]",
        sizes={"n": heads, "t": at.tokens},
    )
    unpacked = low.unpacked((work,), kv_b.format, in_dim * out_dim * heads)
    return [*low.quantise(name, kv_b.format, at.tokens * (heads * in_dim)), *unpacked]


def _core(
    low: Lowering,
    *,
    flops: Column,
    kv: Column,
    io: Column,
    shape: str,
    heads: Column,
    sharing: Column,
    keys: Column,
    share: float,
) -> Work:
    """Return a core; `sharing` query heads read each cached head."""
    return Work(
        rows=np.asarray(float(low.at.new_tokens)),
        features=sharing,
        items=low.at.sequences,
        name="attention-core",
        kind=OpKind.ATTENTION,
        stored=LATENTS + low.at.kv_format,
        dtype=low.at.core_dtype,
        flops=flops,
        traffic_bytes={Traffic.KV: kv, Traffic.ACTIVATIONS: io},
        replication=low.at.padding,
        shape=shape,
        sizes={"b": low.at.sequences, "t": np.asarray(float(low.at.new_tokens)), "n": heads, "s": keys},
        share=share,
    )


def _seen(block: Mla, low: Lowering, *, masked: bool) -> tuple[Seen, ...]:
    """Return what the rows of a sequence read; `masked` works out all of a prompt's pairs, whatever is picked."""
    if block.indexer is None or (masked and not low.at.generates):
        return seen(low.at, block.window)
    return chosen(low.at, block.indexer)


def _absorbed(block: Mla, low: Lowering, kv_b: Tensor) -> list[Node]:
    at = low.at
    heads = block.heads / at.tp
    latent, nope, value = block.kv_rank + block.rope_dim, block.nope_dim, block.v_dim
    spread = at.dcp if at.generates else ONE
    entry = _latent(block).entry_bytes(at.kv_format)
    io = at.tokens * (heads * spread * ((latent + block.kv_rank) * WIDE_BYTES))
    cores: list[Node] = [
        _core(
            low,
            flops=at.sequences * (heads * (2 * (latent + block.kv_rank) * pairs)),
            kv=at.sequences / spread * (entry * keys),
            io=io,
            shape=f"q [{{b}}, {{t}}, {{n}}, {latent}] kv [{{b}}, {{s}}, 1, {latent}]",
            heads=heads * spread,
            sharing=heads * spread,
            keys=keys / spread,
            share=share,
        )
        for pairs, keys, share in _seen(block, low, masked=False)
    ]
    if at.generates:
        group = heads * at.dcp
        cores = context_parallel(low, group * latent, group * block.kv_rank, group, cores)
    first = _per_head_gemm(low, "q-absorb", kv_b, heads, in_dim=nope, out_dim=block.kv_rank)
    last = _per_head_gemm(low, "v-absorb", kv_b, heads, in_dim=block.kv_rank, out_dim=value)
    return [*first, *cores, *last]


def _expanded(block: Mla, low: Lowering, kv_b: Tensor) -> list[Node]:
    at = low.at
    qk, value = block.nope_dim + block.rope_dim, block.v_dim
    entry = _latent(block).entry_bytes(at.kv_format)
    spread = at.dcp if at.generates else ONE
    heads = block.heads / at.tp
    group = heads * spread
    made = group * (block.nope_dim + value)
    expands: list[Work] = []
    cores: list[Node] = []
    for pairs, each, share in _seen(block, low, masked=True):
        keys = at.sequences * each / spread
        expand = Work(
            name="kv_b",
            kind=OpKind.GEMM,
            dtype=at.dtypes[kv_b.format],
            flops=keys * (made * (2 * block.kv_rank)),
            traffic_bytes={
                Traffic.WEIGHTS: one_copy_bytes(kv_b, low.shards) * spread,
                Traffic.KV: keys * entry,
                Traffic.ACTIVATIONS: keys * (made * WIDE_BYTES),
            },
            replication=low.at.padding,
            stored=kv_b.format,
            rows=keys,
            features=made,
            shape=f"[{{t}}, {block.kv_rank}] x [{{r}}, {block.kv_rank}] -> [{{t}}, {{r}}]",
            sizes={"t": keys, "r": made},
            share=share,
        )
        io = at.tokens * (group * ((qk + value) * WIDE_BYTES)) + keys * (made * WIDE_BYTES)
        flops = at.sequences * (heads * (2 * (qk + value) * pairs))
        shape = f"q [{{b}}, {{t}}, {{n}}, {qk}] kv [{{b}}, {{s}}, {{n}}, {qk + value}]"
        expands.append(expand)
        core = _core(
            low, flops=flops, kv=NONE, io=io, shape=shape, heads=group, sharing=ONE, keys=each / spread, share=share
        )
        cores.append(core)
    nodes = [*low.unpacked(tuple(expands), kv_b.format, made * block.kv_rank), *cores]
    if at.generates:
        nodes = context_parallel(low, group * qk, group * value, group, nodes)
    return nodes
