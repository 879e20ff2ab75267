"""Linear attention: gated delta net (arXiv:2412.06464), KDA (arXiv:2510.26692), lightning (arXiv:2401.04658).

Letters: T new tokens, H hidden, N heads (of v and the state), G heads of q and k, D key dim, E value dim, C chunk.
A head holds S [D, E]. A token: S <- decay S; with the delta rule v <- beta (v - S^T k); S <- S + k v^T; o = S^T q.

Decode, a head and token: decay D E, S^T k 2 D E (delta rule only), update 2 D E, S^T q 2 D E: 7 D E, or 5 D E.

Prefill in chunks of C (arXiv:2406.06484 section 3), c the tokens of a chunk. Between chunks, a token: S^T q and the
update, 4 D E, and with the delta rule S^T of the decayed keys, 6 D E. Inside, a pair of c^2: q k^T 2 D and the scores
times v 2 E; with the delta rule also k k^T 2 D, and the inverse times beta v and beta k, 2 E + 2 D: 2 (3 D + 2 E); the
unit triangular [c, c] is inverted by substitution, c^3 / 3. Decays, beta and the norms of q and k are not counted.
"""

from collections.abc import Mapping

from inferometer.blocks.cache import Cache
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.recurrent import (
    chunk_pairs,
    conv,
    conv_cache,
    filters,
    gated_norm,
    matrix,
    scan,
    state_cache,
    vector,
)
from inferometer.blocks.tensors import STATE_HEADS, Heads, Tensor, group_shards
from inferometer.graph.ops import Node
from inferometer.specs.recurrent import LinearAttention


def tensors(block: LinearAttention, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the projections, the convolution, and the vectors of decay and norm."""
    keys, values = block.key_heads * block.key_dim, block.heads * block.value_dim
    fmt, latents = block.formats, "tp" if block.cut_latents else ""
    found = [
        matrix(name, rows, hidden, fmt.get(name, dtype), split_rows=split)
        for name, rows, split in (("q", keys, "groups"), ("k", keys, "groups"), ("v", values, "tp"))
    ]
    if block.delta:
        found.append(matrix("beta", block.heads, hidden, fmt.get("beta", dtype), split_rows="tp"))
    if block.decay != "fixed":
        found += _projection("decay", (decays(block), block.decay_rank, hidden), fmt, dtype, latents)
    if block.gate != "none":
        wide = values if block.gate == "wide" else block.heads
        found += _projection("gate", (wide, block.gate_rank, hidden), fmt, dtype, latents)
    found.append(matrix("o", hidden, values, fmt.get("o", dtype), split_cols="tp"))
    return (*found, *taps(block, dtype), *_vectors(block, dtype))


def _projection(
    name: str, sizes: tuple[int, int | None, int], formats: Mapping[str, str], dtype: str, split: str
) -> list[Tensor]:
    """Return one matrix of the input, or two with a latent between, whose first is whole on every TP rank.

    `sizes` are rows, the rank of the latent or None, and H; `split` is what cuts the first of two, nothing unless told.
    """
    rows, rank, hidden = sizes
    if rank is None:
        return [matrix(name, rows, hidden, formats.get(name, dtype), split_rows="tp")]
    first, second = f"{name}_a", f"{name}_b"
    return [
        matrix(first, rank, hidden, formats.get(first, dtype), split_rows=split),
        matrix(second, rows, rank, formats.get(second, dtype), split_rows="tp"),
    ]


def decays(block: LinearAttention) -> int:
    """Return the decays of a token: one a head, or one a key channel of each."""
    return block.heads * (block.key_dim if block.decay == "channel" else 1)


def taps(block: LinearAttention, dtype: str) -> tuple[Tensor, ...]:
    """Return the convolution's weights, a row a channel: of q and k, and of v."""
    if not block.conv:
        return ()
    return (
        filters("conv_qk", 2 * block.key_heads * block.key_dim, block.conv, dtype, "groups"),
        filters("conv_v", block.heads * block.value_dim, block.conv, dtype, "tp"),
    )


def _vectors(block: LinearAttention, dtype: str) -> list[Tensor]:
    found = []
    if block.decay != "fixed":
        found += [vector("a_log", block.heads, dtype, "tp"), vector("dt_bias", decays(block), dtype, "tp")]
    if block.qk_norm:
        found += [vector(f"{n}_norm", block.key_dim, dtype, "", "norm") for n in "qk"]
    if block.out_norm_groups is None:
        return [*found, vector("out_norm", block.value_dim, dtype, "", "norm")]
    return [*found, vector("out_norm", block.heads * block.value_dim, dtype, "tp", "norm")]


def heads(block: LinearAttention) -> Heads:
    """Return N and G."""
    return Heads(query=block.heads, groups=block.key_heads, what=STATE_HEADS)


def takes(block: LinearAttention) -> tuple[str, ...]:
    """Return the tensors that fix the format of the layer's input."""
    del block
    return ("q", "k")


def caches(block: LinearAttention) -> tuple[Cache, ...]:
    """Return the state, D E elements a head, and what the convolution keeps of q and k and of v."""
    state = state_cache(block.heads, block.key_dim * block.value_dim)
    if not block.conv:
        return (state,)
    keys = conv_cache(block.key_heads, 2 * block.key_dim, block.conv, "groups")
    return (state, keys, conv_cache(block.heads, block.value_dim, block.conv, "tp"))


def decode_flops(block: LinearAttention) -> float:
    """Return FLOPs of a head and token of decode: 7 D E with the delta rule, 5 D E without."""
    return float((7 if block.delta else 5) * block.key_dim * block.value_dim)


def prefill_flops(block: LinearAttention, new: float) -> float:
    """Return FLOPs of a head over `new` tokens in chunks: T inter + sum of c^2 intra (+ c^3 / 3)."""
    both, key, value = block.key_dim * block.value_dim, block.key_dim, block.value_dim
    pairs = chunk_pairs(new, block.chunk)
    if not block.delta:
        return new * (4 * both) + pairs * (2 * key + 2 * value)
    whole, rest = divmod(new, block.chunk)
    solve = (whole * block.chunk**3 + rest**3) / 3
    return new * (6 * both) + pairs * (2 * (3 * key + 2 * value)) + solve


def lower(block: LinearAttention, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer, from normed input to partial output sums."""
    at, hidden = low.at, low.hidden
    low.shards["groups"] = group_shards(at.tp, block.key_heads)
    all_tensors = tensors(block, hidden, dtype)
    by_name = {t.name: t for t in all_tensors}
    ins = tuple(by_name[name] for name in block.matrices() if name != "o" and by_name[name].cols == hidden)
    nodes: list[Node] = low.gemm("+".join(t.name for t in ins), ins, at.tokens)
    latents = sum(t.rows for t in ins if t.name in ("decay_a", "gate_a"))
    if block.cut_latents and latents:
        nodes.append(low.gathered_latents(latents))
    for name in ("decay_b", "gate_b"):
        nodes += low.gemm(name, (by_name[name],), at.tokens) if name in by_name else []
    if block.conv:
        nodes.append(conv(low, dtype, taps(block, dtype)))
    nodes.append(_scan(block, low))
    width = block.heads * block.value_dim / at.tp
    gates = {"none": 0.0, "head": block.heads, "wide": block.heads * block.value_dim}[block.gate] / at.tp
    nodes += gated_norm(low, width, gates, block.out_norm_groups)
    return [*nodes, *low.gemm("o", (by_name["o"],), at.tokens)]


def _scan(block: LinearAttention, low: Lowering) -> Node:
    at = low.at
    local = block.heads / at.tp
    groups = block.key_heads / low.shards["groups"]
    new = float(at.new_tokens)
    each = new * decode_flops(block) if at.generates else prefill_flops(block, new)
    gates = block.heads * int(block.delta) + (decays(block) if block.decay != "fixed" else 0)
    io = 2 * groups * block.key_dim + (2 * block.heads * block.value_dim + gates) / at.tp
    return scan(
        low,
        flops=local * each,
        whole_flops=block.heads * each,
        state=local * (block.key_dim * block.value_dim),
        io=io * WIDE_BYTES,
        heads=local,
        shape=f"[{block.key_dim}, {block.value_dim}]",
    )
