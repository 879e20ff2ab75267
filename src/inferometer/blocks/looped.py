"""What attention is made of where layers are visited again, and where q, k and v have an input each (Inkling 2).

Letters: T tokens, H hidden, r rank. A message is what the visit before left for q, k, v and the feed-forward of a
layer: an average of its stored vectors by a learned query [H], mixed in by a gate of both: `message_in` [r, 2 H], then
two of [H, r], four of each. Nothing is split over TP, nor quantised. The first visit has no messages: here each visit
pays for them. Source: huggingface/transformers 5.24.0, `inkling2` and `inkling2_loop`.
"""

import numpy as np

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import RESIDUAL, Tensor, one_copy_bytes
from inferometer.graph.ops import Node, OpKind, Traffic, Work
from inferometer.specs.mixers import Attention

MESSAGES = 4
"""Of a layer: to q, k, v and its feed-forward."""

QUERY_FORMAT = "fp32"
"""Of queries and of the gates' last matrices."""


def tensors(block: Attention, hidden: int, dtype: str) -> list[Tensor]:
    """Return norms and queries of the inputs beyond the first, gates and queries of messages."""
    found: list[Tensor] = []
    if block.inputs > 1:
        more = (block.inputs - 1) * hidden
        found.append(Tensor(name="input_norms", rows=more, format=dtype, kind="norm"))
        found.append(Tensor(name="input_queries", rows=more, format=QUERY_FORMAT, kind="norm"))
    return [*found, *_messages(block, hidden, dtype)]


def _messages(block: Attention, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the gates' first matrices, their last, and the queries."""
    rank = block.message_rank
    if not rank:
        return ()
    wide = MESSAGES * hidden
    return (
        Tensor(name="message_in", rows=MESSAGES * rank, cols=2 * hidden, format=dtype, kind=RESIDUAL),
        Tensor(name="message_out", rows=2 * wide, cols=rank, format=QUERY_FORMAT, kind=RESIDUAL),
        Tensor(name="message_queries", rows=wide, format=QUERY_FORMAT, kind="norm"),
    )


def lower(block: Attention, low: Lowering, dtype: str) -> list[Node]:
    """Return the inputs beyond the first, and messages: 2 T flops an element of their gates.

    An input reads and writes a vector. A message is written once and read twice, beside two reads and a write of what
    it is mixed into; its average reads what the visit before stored, which is left out.
    """
    at, wide = low.at, low.hidden * WIDE_BYTES
    nodes: list[Node] = []
    if block.inputs > 1:
        nodes.append(low.elementwise("inputs", at.tokens * (2 * (block.inputs - 1) * wide)))
    held = _messages(block, low.hidden, dtype)
    if not held:
        return nodes
    gates = [tensor for tensor in held if tensor.cols > 1]
    work = Work(
        name="messages.residual",
        kind=OpKind.GEMM,
        dtype=at.core_dtype,
        flops=at.tokens * (2.0 * sum(tensor.params for tensor in gates)),
        traffic_bytes={
            Traffic.WEIGHTS: sum((one_copy_bytes(tensor, low.shards) for tensor in gates), start=at.tokens * 0),
            Traffic.ACTIVATIONS: at.tokens * (MESSAGES * 6 * wide),
        },
        replication=at.padding * at.tp,
        rows=at.tokens,
        features=np.asarray(float(held[0].rows)),
        shape=f"{MESSAGES} messages of H, rank {block.message_rank}",
    )
    return [*nodes, work]
