"""What attention without rotations knows of nearness: short convolutions of k and v, logits by distance (Inkling).

Letters: B sequences, T tokens, N query heads, K kv heads, D head dim, E head dim of v, w taps, d width of a head's
relative state, x distances. TP splits heads, and kv heads with their channels; the bank of logits by distance [x, d]
is whole on every TP rank. Convolutions keep w - 1 tokens of K (D + E) channels a sequence, in bf16.
Source: Inkling's class in huggingface/transformers 5.24.0, which runs them in fp32 and keeps them in bf16.
"""

from inferometer.blocks.cache import CONV, Cache
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Tensor
from inferometer.graph.ops import Column, Node
from inferometer.specs.mixers import Attention

STATE_FORMAT = "bf16"


def tensors(block: Attention, dtype: str) -> list[Tensor]:
    """Return the taps of every channel of k and v, and the bank of logits by distance."""
    found = []
    if block.conv:
        for name, width in (("k", block.head_dim), ("v", block.v_dim or block.head_dim)):
            channels = block.kv_heads * width
            found.append(
                Tensor(name=f"{name}_conv", rows=channels, count=block.conv, format=dtype, kind="conv", split_rows="kv")
            )
    if block.relative:
        found.append(_bank(block, dtype))
    return found


def _bank(block: Attention, dtype: str) -> Tensor:
    rows, cols = block.relative_extent, block.relative
    return Tensor(name="relative", rows=rows, cols=cols, format=dtype, kind="attention")


def caches(block: Attention) -> tuple[Cache, ...]:
    """Return the last w - 1 tokens of k and v."""
    if not block.conv:
        return ()
    width = (block.conv - 1) * (block.head_dim + (block.v_dim or block.head_dim))
    return (Cache(name=CONV, heads=block.kv_heads, width=width, split="kv", holds="dtype", fixed=True),)


def lower(block: Attention, low: Lowering, kv_local: Column, dtype: str) -> list[Node]:
    """Return the convolutions, and the logits of x distances from each head's state: 2 T N d x flops."""
    at = low.at
    nodes: list[Node] = []
    if block.conv:
        width = kv_local * (block.head_dim + (block.v_dim or block.head_dim))
        kept = at.sequences * ((block.conv - 1 + (at.new_tokens if at.generates else 1)) * WIDE_BYTES)
        nodes.append(low.elementwise("kv-conv", width * (at.tokens * (2 * WIDE_BYTES) + kept)))
    if block.relative:
        rows = at.tokens * block.heads
        nodes += low.gemm("relative-logits", (_bank(block, dtype),), rows / at.tp, rows)
    return nodes
