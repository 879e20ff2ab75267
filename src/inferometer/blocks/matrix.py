"""One matrix [H, H] in place of a mixer or feed-forward. TP splits its input features: ranks give partial sums.

Letters: T tokens, H hidden.
"""

from inferometer.blocks.cache import Cache
from inferometer.blocks.lowering import Lowering
from inferometer.blocks.tensors import Heads, Tensor
from inferometer.graph.ops import Node
from inferometer.specs.matrix import Matrix


def tensors(block: Matrix, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the matrix, and its bias."""
    fmt = block.formats.get("matrix", dtype)
    found = [Tensor(name="matrix", rows=hidden, cols=block.width, format=fmt, kind="matrix", split_cols="tp")]
    if block.bias:
        found.append(Tensor(name="matrix_bias", rows=hidden, format=dtype, kind="matrix"))
    return tuple(found)


def lower(block: Matrix, low: Lowering, dtype: str) -> list[Node]:
    """Return its GEMM: 2 T H H over TP flops a rank."""
    return low.gemm("matrix", tensors(block, low.hidden, dtype)[:1], low.at.tokens)


def heads(block: Matrix) -> Heads:
    """Return H: as many ways as TP could split it."""
    return Heads(query=block.width, what="features of a matrix")


def takes(block: Matrix) -> tuple[str, ...]:
    """Return the tensor that fixes the format of the layer's input."""
    del block
    return ("matrix",)


def caches(block: Matrix) -> tuple[Cache, ...]:
    """Return nothing: it keeps nothing of a sequence."""
    del block
    return ()
