"""What attention is made of where layers are visited again, and where q, k and v have an input each (Inkling 2).

Letters: T tokens, H hidden, r rank. A message is what the visit before left for q, k, v and the feed-forward of a
layer: an average of its stored vectors by a learned query [H], mixed in by a gate of both: `message_in` [r, 2 H], then
two of [H, r], four of each. Nothing is split over TP. The first visit has no messages: here each visit pays for them.
Source: huggingface/transformers 5.24.0, `inkling2` and `inkling2_loop`.
"""

from collections.abc import Mapping

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import RESIDUAL, Tensor
from inferometer.graph.ops import Node
from inferometer.specs.mixers import Attention

MESSAGES = 4
"""Of a layer: to q, k, v and its feed-forward."""

OUT_FORMAT = "fp32"
"""Of queries and of the gates' last matrices."""


def tensors(block: Attention, hidden: int, dtype: str) -> list[Tensor]:
    """Return norms and queries of the inputs beyond the first, gates and queries of messages."""
    found: list[Tensor] = []
    if block.inputs > 1:
        more = (block.inputs - 1) * hidden
        found.append(Tensor(name="input_norms", rows=more, format=dtype, kind="norm"))
        found.append(Tensor(name="input_queries", rows=more, format=OUT_FORMAT, kind=RESIDUAL))
    if block.message_rank:
        rank = MESSAGES * block.message_rank
        form = block.formats.get("message_in", dtype)
        out = block.formats.get("message_out", OUT_FORMAT)
        found += [
            Tensor(name="message_in", rows=rank, cols=2 * hidden, format=form, kind=RESIDUAL),
            Tensor(name="message_out", rows=2 * MESSAGES * hidden, cols=block.message_rank, format=out, kind=RESIDUAL),
            Tensor(name="message_queries", rows=MESSAGES * hidden, format=OUT_FORMAT, kind=RESIDUAL),
        ]
    return found


def lower(block: Attention, low: Lowering, by_name: Mapping[str, Tensor]) -> list[Node]:
    """Return the inputs beyond the first, and messages: their average, their gates and what is mixed in.

    An input reads and writes a vector. A message is written once and read twice, beside two reads and a write of what
    it is mixed into; its average reads what the visit before stored, which is left out.
    """
    at, wide = low.at, low.hidden * WIDE_BYTES
    nodes: list[Node] = []
    if block.inputs > 1:
        nodes.append(low.elementwise("inputs", at.tokens * (2 * (block.inputs - 1) * wide)))
    if block.message_rank:
        nodes += low.gemm("message_in", (by_name["message_in"],), at.tokens)
        nodes += low.gemm("message_out", (by_name["message_out"],), at.tokens)
        nodes.append(low.elementwise("messages", at.tokens * (MESSAGES * 6 * wide)))
    return nodes
