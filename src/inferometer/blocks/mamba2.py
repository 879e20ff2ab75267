"""Mamba-2, state-space duality (arXiv:2405.21060 sections 6 and 7).

Letters: T new tokens, H hidden, N heads, P channels a head, G groups, S state width, C chunk. N P is the inner width.
A head holds h [P, S]. A token: h <- decay h + (dt x) B^T; y = h C + D x; B and C are a group's.

Decode, a head and token: decay P S, update 2 P S, h C 2 P S: 5 P S.

Prefill in chunks of C, c the tokens of a chunk. Between chunks, a head and token: the chunk's state 2 P S and the
output of the state before it 2 P S. Inside, a pair of c^2: C B^T 2 S a group (not a head), the masked scores times x
2 P a head. Decays, dt, D x, gate and norm are not counted.
"""

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
from inferometer.graph.ops import Column, Node
from inferometer.specs.recurrent import Mamba2


def inner(block: Mamba2) -> int:
    """Return the inner width N P."""
    return block.heads * block.head_dim


def tensors(block: Mamba2, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the projections, the convolution, and the vectors of time step, decay, skip and norm."""
    wide, shared, fmt = inner(block), block.groups * block.state, block.formats
    ins = (
        *(("z", wide, "tp"), ("x", wide, "tp"), ("b", shared, "groups"), ("c", shared, "groups")),
        ("dt", block.heads, "tp"),
    )
    found = [matrix(n, rows, hidden, fmt.get(n, dtype), split_rows=split) for n, rows, split in ins]
    found.append(matrix("o", hidden, wide, fmt.get("o", dtype), split_cols="tp"))
    if block.in_bias:
        found += [vector(f"{n}_bias", rows, dtype, split) for n, rows, split in ins]
    if block.out_bias:
        found.append(vector("o_bias", hidden, dtype, ""))
    found += taps(block, dtype)
    if block.conv_bias:
        found += [vector(f"{tap.name}_bias", tap.rows, dtype, tap.split_rows) for tap in taps(block, dtype)]
    found += [vector(n, block.heads, dtype, "tp") for n in ("a_log", "d", "step_bias")]
    if block.gated_norm:
        found.append(vector("out_norm", wide, dtype, "tp", "norm"))
    return tuple(found)


def taps(block: Mamba2, dtype: str) -> tuple[Tensor, ...]:
    """Return the convolution's weights, a row a channel: of x, and of B and C."""
    return (
        filters("conv_x", inner(block), block.conv, dtype, "tp"),
        filters("conv_bc", 2 * block.groups * block.state, block.conv, dtype, "groups"),
    )


def heads(block: Mamba2) -> Heads:
    """Return N and G."""
    return Heads(query=block.heads, groups=block.groups, what=STATE_HEADS)


def takes(block: Mamba2) -> tuple[str, ...]:
    """Return the tensors that fix the format of the layer's input."""
    del block
    return ("z", "x")


def caches(block: Mamba2) -> tuple[Cache, ...]:
    """Return the state, P S elements a head, and what the convolution keeps of x and of B and C."""
    return (
        state_cache(block.heads, block.head_dim * block.state),
        conv_cache(block.heads, block.head_dim, block.conv, "tp"),
        conv_cache(block.groups, 2 * block.state, block.conv, "groups"),
    )


def scan_flops(block: Mamba2, heads_here: Column | float, groups_here: Column | float, new: float | None) -> Column:
    """Return FLOPs of one sequence over some heads and groups: one token of decode, or a prefill of `new`."""
    both = block.head_dim * block.state
    if new is None:
        return heads_here * (5.0 * both)  # type: ignore[return-value]  # a column where heads are one
    pairs = chunk_pairs(new, block.chunk)
    of_heads = new * (4 * both) + pairs * (2 * block.head_dim)
    return heads_here * of_heads + groups_here * (pairs * (2 * block.state))  # type: ignore[return-value]  # same


def lower(block: Mamba2, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer, from normed input to partial output sums."""
    at = low.at
    low.shards["groups"] = group_shards(at.tp, block.groups)
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    ins = tuple(by_name[name] for name in ("z", "x", "b", "c", "dt"))
    new, steps = (None, float(at.new_tokens)) if at.generates else (float(at.new_tokens), 1.0)
    local, groups = block.heads / at.tp, block.groups / low.shards["groups"]
    width = inner(block) / at.tp
    work = scan(
        low,
        flops=steps * scan_flops(block, local, groups, new),
        whole_flops=steps * float(scan_flops(block, float(block.heads), float(block.groups), new)),
        state=local * (block.head_dim * block.state),
        io=(2 * width + 2 * groups * block.state + local) * WIDE_BYTES,
        heads=local,
        shape=f"[{block.head_dim}, {block.state}]",
    )
    finish: list[Node] = [low.elementwise("gate", at.tokens * (3 * width * WIDE_BYTES))]
    if block.gated_norm:
        finish = gated_norm(low, width, width, block.groups)
    return [
        *low.gemm("z+x+b+c+dt", ins, at.tokens),
        conv(low, dtype, taps(block, dtype)),
        work,
        *finish,
        *low.gemm("o", (by_name["o"],), at.tokens),
    ]
