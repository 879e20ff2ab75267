"""Mamba, the selective state space (arXiv:2312.00752).

Letters: T tokens, H hidden, I inner channels, S state width, R rank of the time step.
A channel holds h [S]. A token: h <- exp(dt A) h + dt B x; y = h . C + D x. B, C and the latent of dt come from x: a
[R + 2 S, I] projection, whose partial sums over TP are reduced before each rank makes the time steps of its channels.

Every token, in decode and in prefill, takes 8 S FLOPs a channel: dt A and its exponential 2, dt B and times x 2, decay
and update 2, h . C 2. A scan is no matrix product: kernels run it far below the rate of one.
"""

from inferometer.blocks.cache import Cache
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.recurrent import conv, conv_cache, filters, matrix, scan, state_cache, vector
from inferometer.blocks.tensors import STATE_HEADS, Heads, Tensor, one_copy_bytes
from inferometer.graph.ops import CollectiveKind, Node
from inferometer.specs.recurrent import Mamba1

SCAN_FLOPS = 8
"""A channel, state element and token."""


def tensors(block: Mamba1, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the projections, the convolution, the time step, decay and skip."""
    wide, fmt = block.inner, block.formats
    picked = block.dt_rank + 2 * block.state
    found = [matrix(n, wide, hidden, fmt.get(n, dtype), split_rows="tp") for n in ("z", "x")]
    found += [
        matrix("select", picked, wide, fmt.get("select", dtype), split_cols="tp"),
        matrix("dt", wide, block.dt_rank, fmt.get("dt", dtype), split_rows="tp"),
        matrix("o", hidden, wide, fmt.get("o", dtype), split_cols="tp"),
        filters("conv", wide, block.conv, dtype, "tp"),
        filters("a_log", wide, block.state, dtype, "tp"),
        vector("d", wide, dtype, "tp"),
        vector("dt_bias", wide, dtype, "tp"),
    ]
    if block.conv_bias:
        found.append(vector("conv_bias", wide, dtype, "tp"))
    if block.bias:
        found += [vector("z_bias", wide, dtype, "tp"), vector("x_bias", wide, dtype, "tp")]
        found.append(vector("o_bias", hidden, dtype, ""))
    if block.inner_norms:
        sizes = {"dt_norm": block.dt_rank, "b_norm": block.state, "c_norm": block.state}
        found += [vector(name, rows, dtype, "", "norm") for name, rows in sizes.items()]
    return tuple(found)


def heads(block: Mamba1) -> Heads:
    """Return I: TP splits channels."""
    return Heads(query=block.inner, what=STATE_HEADS)


def takes(block: Mamba1) -> tuple[str, ...]:
    """Return the tensors that fix the format of the layer's input."""
    del block
    return ("z", "x")


def caches(block: Mamba1) -> tuple[Cache, ...]:
    """Return the state, S elements a channel, and what the convolution keeps of x."""
    return (state_cache(block.inner, block.state), conv_cache(block.inner, 1, block.conv, "tp"))


def lower(block: Mamba1, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer, from normed input to partial output sums."""
    at = low.at
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    width, picked = block.inner / at.tp, block.dt_rank + 2 * block.state
    each = float(SCAN_FLOPS * block.state * at.new_tokens)
    work = scan(
        low,
        flops=width * each,
        whole_flops=block.inner * each,
        state=width * block.state,
        io=(4 * width + 2 * block.state) * WIDE_BYTES,
        heads=width,
        shape=f"[{block.state}]",
        weights=one_copy_bytes(by_name["a_log"], low.shards),
    )
    norms = [low.elementwise("select-norm", at.tokens * (2 * picked * WIDE_BYTES))] if block.inner_norms else []
    return [
        *low.gemm("z+x", (by_name["z"], by_name["x"]), at.tokens),
        conv(low, dtype, (by_name["conv"],)),
        *low.gemm("select", (by_name["select"],), at.tokens),
        low.message("select", CollectiveKind.ALL_REDUCE, "tp", at.tokens * (picked * WIDE_BYTES)),
        *norms,
        *low.gemm("dt", (by_name["dt"],), at.tokens),
        work,
        *low.gemm("o", (by_name["o"],), at.tokens),
    ]
