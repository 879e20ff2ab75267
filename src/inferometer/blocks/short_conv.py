"""Gated short convolution (LFM2): y = o(C * conv(B * x)), with [B, C, x] one projection. TP splits channels.

Letters: w channels, H hidden. What it keeps is K - 1 tokens of B * x: there is no other state.
"""

from inferometer.blocks.cache import Cache
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.recurrent import conv, conv_cache, filters, matrix, vector
from inferometer.blocks.tensors import STATE_HEADS, Heads, Tensor
from inferometer.graph.ops import Node
from inferometer.specs.recurrent import ShortConv


def tensors(block: ShortConv, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the projections in (of B, C and x) and out, and the convolution."""
    wide, fmt = block.width, block.formats
    found = [
        matrix("in", 3 * wide, hidden, fmt.get("in", dtype), split_rows="tp"),
        matrix("o", hidden, wide, fmt.get("o", dtype), split_cols="tp"),
        filters("conv", wide, block.conv, dtype, "tp"),
    ]
    if block.bias:
        sizes = (("in_bias", 3 * wide, "tp"), ("conv_bias", wide, "tp"), ("o_bias", hidden, ""))
        found += [vector(name, rows, dtype, split) for name, rows, split in sizes]
    return tuple(found)


def heads(block: ShortConv) -> Heads:
    """Return w: TP splits channels."""
    return Heads(query=block.width, what=STATE_HEADS)


def takes(block: ShortConv) -> tuple[str, ...]:
    """Return the tensor that fixes the format of the layer's input."""
    del block
    return ("in",)


def caches(block: ShortConv) -> tuple[Cache, ...]:
    """Return what the convolution keeps."""
    return (conv_cache(block.width, 1, block.conv, "tp"),)


def lower(block: ShortConv, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer, from normed input to partial output sums: each gate reads two and writes one."""
    at = low.at
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    gate = at.tokens * (3 * block.width / at.tp * WIDE_BYTES)
    return [
        *low.gemm("in", (by_name["in"],), at.tokens),
        low.elementwise("gate-in", gate),
        conv(low, dtype, (by_name["conv"],)),
        low.elementwise("gate-out", gate),
        *low.gemm("o", (by_name["o"],), at.tokens),
    ]
