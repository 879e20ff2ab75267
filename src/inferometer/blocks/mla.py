"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 section 2.1), absorbed or expanded.

Letters: B sequences, T tokens, S context, H hidden, N heads, q and c ranks of the latents, n/r nope and
rope dims of a query head, v value dim. The cache holds c + r elements a token, the same on every TP rank.

Absorbed: kv_b's halves are applied to the query (q_nope W_UK) and to the output (W_UV): the core works on the
latent, as one kv head of width c + r (values: c). Expanded: kv_b turns latents into K and V of every head.
"""

from inferometer.blocks.attention import causal_pairs, context_parallel
from inferometer.blocks.cache import Cache
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Heads, Tensor, one_copy_bytes
from inferometer.graph.ops import NONE, ONE, Choice, Column, Node, OpKind, Plan, Traffic, Work
from inferometer.specs.mixers import Mla


def tensors(block: Mla, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the projections, biases and latent norms. Latent projections are whole on every TP rank."""
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
            weight("q_a", block.q_rank, hidden),
            Tensor(name="q_a_norm", rows=block.q_rank, format=dtype, kind="norm"),
            weight("q_b", block.heads * head, block.q_rank, split_rows="tp"),
        ]
    found += [
        weight("kv_a", latent, hidden),
        Tensor(name="kv_a_norm", rows=block.kv_rank, format=dtype, kind="norm"),
        weight("kv_b", block.heads * (block.nope_dim + block.v_dim), block.kv_rank, split_rows="tp"),
        weight("o", hidden, block.heads * block.v_dim, split_cols="tp"),
    ]
    if block.gate != "none":
        found.append(weight("gate", gates(block), hidden, split_rows="tp"))
    if block.bias:
        biased = [("kv_a", latent), ("o", hidden)] + ([("q_a", block.q_rank)] if block.q_rank else [])
        found += [Tensor(name=f"{n}_bias", rows=r, format=dtype, kind="attention") for n, r in biased]
    return tuple(found)


def gates(block: Mla) -> int:
    """Return the gates of a token: one a head, or one an element of the output."""
    return block.heads * (block.v_dim if block.gate == "wide" else 1)


def heads(block: Mla) -> Heads:
    """Return N, and 1: the latent is one kv head."""
    return Heads(block.heads, 1)


def takes(block: Mla) -> tuple[str, ...]:
    """Return the tensors that fix the format of the layer's input."""
    return ("q_a" if block.q_rank else "q", "kv_a")


def caches(block: Mla) -> tuple[Cache, ...]:
    """Return the latent: c + r elements a token, copied over TP."""
    return (Cache(name="latent", width=block.kv_rank + block.rope_dim),)


def lower(block: Mla, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer's attention, from normed input to partial output sums."""
    at, tokens = low.at, low.at.tokens
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    if block.q_rank is None:
        nodes = [*low.gemm("q", (by_name["q"],), tokens), *low.gemm("kv_a", (by_name["kv_a"],), tokens)]
    else:
        nodes = low.gemm("q_a+kv_a", (by_name["q_a"], by_name["kv_a"]), tokens)
        nodes += low.gemm("q_b", (by_name["q_b"],), tokens)
    latent = block.kv_rank + block.rope_dim
    moved = (block.q_rank or 0) + latent
    rope = block.heads / at.tp * block.rope_dim
    nodes.append(
        low.elementwise(
            "latent-norm+rope+kv-write",
            tokens * ((2 * moved + 2 * rope) * WIDE_BYTES),
            kv=tokens * (latent * at.kv_bytes_per_element / at.dcp),
        )
    )
    absorbed = Plan(name="absorbed", nodes=tuple(_absorbed(block, low, by_name["kv_b"])))
    expanded = Plan(name="expanded", nodes=tuple(_expanded(block, low, by_name["kv_b"])))
    nodes.append(Choice(name="mla", plans=(absorbed, expanded)))
    if block.gate != "none":
        width, each = block.heads * block.v_dim / at.tp, gates(block) / at.tp
        nodes += low.gemm("gate", (by_name["gate"],), tokens)
        nodes.append(low.elementwise("gate-out", tokens * ((2 * width + each) * WIDE_BYTES)))
    nodes += low.gemm("o", (by_name["o"],), tokens)
    return nodes


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
        shape=f"heads x [t, {in_dim}] x [{in_dim}, {out_dim}]",
    )
    unpacked = low.unpacked((work,), kv_b.format, in_dim * out_dim * heads)
    return [*low.quantise(name, kv_b.format, at.tokens * (heads * in_dim)), *unpacked]


def _core(low: Lowering, *, flops: Column, kv: Column, io: Column, shape: str, share: float) -> Work:
    return Work(
        name="attention-core",
        kind=OpKind.ATTENTION,
        dtype=low.at.core_dtype,
        flops=flops,
        traffic_bytes={Traffic.KV: kv, Traffic.ACTIVATIONS: io},
        replication=low.at.padding,
        shape=shape,
        share=share,
    )


def _pairs(low: Lowering) -> tuple[tuple[float, float, float], ...]:
    """Return (query-key pairs a sequence, cached tokens read, share of passes)."""
    at = low.at
    if at.phase == "prefill":
        return ((causal_pairs(float(at.new_tokens), None), float(at.new_tokens), 1.0),)
    return tuple((at.new_tokens * context, context, share) for context, share in at.contexts)


def _absorbed(block: Mla, low: Lowering, kv_b: Tensor) -> list[Node]:
    at = low.at
    heads = block.heads / at.tp
    latent, nope, value = block.kv_rank + block.rope_dim, block.nope_dim, block.v_dim
    spread = at.dcp if at.phase == "decode" else ONE
    io = at.tokens * (heads * spread * ((latent + block.kv_rank) * WIDE_BYTES))
    cores: list[Node] = [
        _core(
            low,
            flops=at.sequences * (heads * (2 * (latent + block.kv_rank) * pairs)),
            kv=at.sequences / spread * (latent * seen * at.kv_bytes_per_element),
            io=io,
            shape=f"B x {block.heads} heads x latent {latent}, S={seen:.0f}",
            share=share,
        )
        for pairs, seen, share in _pairs(low)
    ]
    if at.phase == "decode":
        group = heads * at.dcp
        cores = context_parallel(low, group * latent, group * block.kv_rank, group, cores)
    first = _per_head_gemm(low, "q-absorb", kv_b, heads, in_dim=nope, out_dim=block.kv_rank)
    last = _per_head_gemm(low, "v-absorb", kv_b, heads, in_dim=block.kv_rank, out_dim=value)
    return [*first, *cores, *last]


def _expanded(block: Mla, low: Lowering, kv_b: Tensor) -> list[Node]:
    at = low.at
    qk, value, latent = block.nope_dim + block.rope_dim, block.v_dim, block.kv_rank + block.rope_dim
    spread = at.dcp if at.phase == "decode" else ONE
    heads = block.heads / at.tp
    group = heads * spread
    made = group * (block.nope_dim + value)
    expands: list[Work] = []
    cores: list[Node] = []
    for pairs, seen, share in _pairs(low):
        keys = at.sequences * seen / spread
        expand = Work(
            name="kv_b",
            kind=OpKind.GEMM,
            dtype=at.dtypes[kv_b.format],
            flops=keys * (made * (2 * block.kv_rank)),
            traffic_bytes={
                Traffic.WEIGHTS: one_copy_bytes(kv_b, low.shards) * spread,
                Traffic.KV: keys * (latent * at.kv_bytes_per_element),
                Traffic.ACTIVATIONS: keys * (made * WIDE_BYTES),
            },
            replication=low.at.padding,
            shape=f"[S={seen:.0f}, {block.kv_rank}] x [{kv_b.rows}, {block.kv_rank}]",
            share=share,
        )
        io = at.tokens * (group * ((qk + value) * WIDE_BYTES)) + keys * (made * WIDE_BYTES)
        flops = at.sequences * (heads * (2 * (qk + value) * pairs))
        shape = f"B x {block.heads} heads x {qk}, S={seen:.0f}"
        expands.append(expand)
        cores.append(_core(low, flops=flops, kv=NONE, io=io, shape=shape, share=share))
    nodes = [*low.unpacked(tuple(expands), kv_b.format, made * block.kv_rank), *cores]
    if at.phase == "decode":
        nodes = context_parallel(low, group * qk, group * value, group, nodes)
    return nodes
