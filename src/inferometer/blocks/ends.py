"""The two ends of a model, and the hand-over between pipeline stages.

Letters: B sequences, T tokens, H hidden, V vocabulary. TP splits the vocabulary of both tables.
"""

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Tensor, local_rows
from inferometer.graph.ops import NONE, ONE, Choice, CollectiveKind, Node, OpKind, Plan, Segment, Traffic, Work
from inferometer.specs.model import ModelSpec

CANDIDATE_BYTES = 8.0
"""A sequence's best local token and its score."""


def tensors(model: ModelSpec) -> tuple[Tensor, ...]:
    """Return the embedding, the final norm and (where not tied) the head."""
    table = {"rows": model.vocab, "cols": model.hidden, "split_rows": "tp"}
    found = [
        Tensor(name="embedding", format=model.dtype, kind="embedding", **table),  # type: ignore[arg-type]
        Tensor(name="final_norm", rows=model.hidden, format=model.dtype, kind="norm"),
    ]
    if not model.tied:
        found.append(head(model))
    return tuple(found)


def head(model: ModelSpec) -> Tensor:
    """Return the table that turns hidden states into logits; tied, it is the embedding, in the embedding's format."""
    fmt = model.dtype if model.tied else model.head_format or model.dtype
    return Tensor(name="head", rows=model.vocab, cols=model.hidden, format=fmt, kind="head", split_rows="tp")


def embedding(low: Lowering, residuals: tuple[str, ...]) -> Segment:
    """Return the lookup of T rows in a table split over TP: each rank gives a partial sum."""
    at = low.at
    lookup = Work(
        name="embedding",
        kind=OpKind.LOOKUP,
        dtype=at.core_dtype,
        flops=NONE,
        traffic_bytes={
            Traffic.WEIGHTS: at.tokens * (low.hidden * WIDE_BYTES),
            Traffic.ACTIVATIONS: at.tokens * (low.hidden * WIDE_BYTES),
        },
        replication=ONE,
        shape="[t] -> [t, H]",
    )
    edges = {r: (low.reshard(low.layout(tp="P"), low.residual_layout(r)),) for r in residuals}
    return Segment(name="embedding", nodes=(lookup,), edges=edges)


def logits(low: Lowering, model: ModelSpec, residuals: tuple[str, ...]) -> Segment:
    """Return final norm, head on the last token of each sequence, and sampling."""
    at = low.at
    table = head(model)
    local = local_rows(table, low.shards)
    gathered = low.message("gather-logits", CollectiveKind.ALL_GATHER, "tp", at.sequences * (model.vocab * WIDE_BYTES))
    best = low.message("gather-best", CollectiveKind.ALL_GATHER, "tp", at.sequences * (at.tp * CANDIDATE_BYTES))
    nodes: list[Node] = [
        low.norm("final-norm", at.sequences),
        *low.gemm("head", (table,), at.sequences),
        low.elementwise("sample", at.sequences * (local * WIDE_BYTES)),
        Choice(name="logits", plans=(Plan(name="gather", nodes=(gathered,)), Plan(name="local", nodes=(best,)))),
    ]
    last = low.message("gather-last", CollectiveKind.ALL_GATHER, "tp", at.sequences * (low.hidden * WIDE_BYTES))
    edges: dict[str, tuple[Node, ...]] = {r: ((last,) if r == "sequence" else ()) for r in residuals}
    return Segment(name="head", nodes=tuple(nodes), edges=edges)


def hand_over(low: Lowering, residuals: tuple[str, ...]) -> Segment:
    """Return the send of the residual stream to the next stage: whole, or a slice a TP rank and a gather."""
    at = low.at
    whole = at.tokens * (low.hidden * WIDE_BYTES)
    part = whole / at.tp
    sliced = low.message("send", CollectiveKind.P2P, "pp", part)
    full = Plan(name="whole", nodes=(low.message("send", CollectiveKind.P2P, "pp", whole),))
    gathered = Plan(name="sliced", nodes=(sliced, low.message("gather", CollectiveKind.ALL_GATHER, "tp", whole)))
    edges: dict[str, tuple[Node, ...]] = {
        r: ((sliced,) if r == "sequence" else (Choice(name="pp-send", plans=(full, gathered)),)) for r in residuals
    }
    return Segment(name="hand-over", nodes=(), edges=edges)
