"""The two ends of a model, and the hand-over between pipeline stages.

Letters: B sequences, T tokens, H hidden, V vocabulary. TP splits the vocabulary of both tables.
"""

from dataclasses import replace

from inferometer.blocks import layer_inputs, residual
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Tensor, local_rows
from inferometer.graph.ops import NONE, ONE, Choice, CollectiveKind, Node, OpKind, Plan, Segment, Traffic, Work
from inferometer.specs.model import ModelSpec

CANDIDATE_BYTES = 8.0
"""A sequence's best local token and its score."""


def tensors(model: ModelSpec) -> tuple[Tensor, ...]:
    """Return what is on the first stage and on the last, the head only where it is not the embedding."""
    return (*first(model), *last(model), *(() if model.tied else (head(model),)))


def first(model: ModelSpec) -> tuple[Tensor, ...]:
    """Return the embedding, what a token brings to each layer, learned positions and the embedding's norm."""
    rows, cols = model.vocab + model.more_rows, model.hidden
    fmt = model.embedding_format or model.dtype
    table = Tensor(name="embedding", rows=rows, cols=cols, format=fmt, kind="embedding", split_rows="tp")
    found = [table, *layer_inputs.first(model)]
    if model.positions:
        rows, cols = model.positions, model.hidden
        found.append(Tensor(name="positions", rows=rows, cols=cols, format=model.dtype, kind="embedding"))
    if model.embedding_norm:
        found += _norm("embedding_norm", model)
    return tuple(found)


def last(model: ModelSpec) -> tuple[Tensor, ...]:
    """Return the residual's last step, the final norm and the head's bias; the head is apart: it may be tied."""
    found = [*residual.tensors(model, "final"), *_norm("final_norm", model)]
    if model.head_bias:
        found.append(Tensor(name="head_bias", rows=model.vocab, format=model.dtype, kind="head", split_rows="tp"))
    return tuple(found)


def _norm(name: str, model: ModelSpec) -> tuple[Tensor, ...]:
    return norm(name, model.hidden, model.dtype, weight=model.norm_weight, bias=model.norm_bias)


def norm(name: str, hidden: int, dtype: str, *, weight: bool, bias: bool) -> tuple[Tensor, ...]:
    """Return the vectors of a norm over H."""
    names = ((name, weight), (f"{name}_bias", bias))
    return tuple(Tensor(name=n, rows=hidden, format=dtype, kind="norm") for n, held in names if held)


def head(model: ModelSpec) -> Tensor:
    """Return the table that turns hidden states into logits; tied, it is the embedding, in the embedding's format."""
    fmt = (model.embedding_format if model.tied else model.head_format) or model.dtype
    return Tensor(name="head", rows=model.vocab, cols=model.hidden, format=fmt, kind="head", split_rows="tp")


def embedding(low: Lowering, model: ModelSpec, residuals: tuple[str, ...]) -> Segment:
    """Return the lookup of T rows in a table split over TP: each rank gives a partial sum.

    Learned positions are a row more; a norm of the embedding reads and writes it once it is whole.
    """
    at = low.at
    lookup = Work(
        name="embedding",
        kind=OpKind.LOOKUP,
        dtype=at.core_dtype,
        flops=NONE,
        traffic_bytes={
            Traffic.WEIGHTS: at.tokens * ((2 if model.positions else 1) * low.hidden * WIDE_BYTES),
            Traffic.ACTIVATIONS: at.tokens * (low.hidden * WIDE_BYTES),
        },
        replication=ONE,
        shape=f"[{{t}}] of [{{v}}, {low.hidden}] -> [{{t}}, {low.hidden}]",
        sizes={"t": at.tokens, "v": local_rows(first(model)[0], low.shards)},
    )
    edges: dict[str, tuple[Node, ...]] = {
        r: (
            low.reshard(low.layout(tp="P"), low.residual_layout(r)),
            *layer_inputs.gather(low, model, r),
            *_embedding_norm(low, model, r),
            *residual.spread(model, low, low.residual_rows(r)),
        )
        for r in residuals
    }
    return Segment(name="embedding", nodes=(lookup, *layer_inputs.lower_first(low, model)), edges=edges)


def _embedding_norm(low: Lowering, model: ModelSpec, residual: str) -> tuple[Node, ...]:
    if not model.embedding_norm:
        return ()
    return (low.elementwise("embedding-norm", low.residual_rows(residual) * (2 * low.hidden * WIDE_BYTES)),)


def logits(low: Lowering, model: ModelSpec, residuals: tuple[str, ...]) -> Segment:
    """Return final norm, head and sampling of the rows whose logits are made: each sequence's last, or all."""
    at = low.at
    rows = at.logit_tokens
    table = head(model)
    local = local_rows(table, low.shards)
    gathered = low.message("gather-logits", CollectiveKind.ALL_GATHER, "tp", rows * (model.vocab * WIDE_BYTES))
    best = low.message("gather-best", CollectiveKind.ALL_GATHER, "tp", rows * (at.tp * CANDIDATE_BYTES))
    sample = low.elementwise("sample", rows * (local * WIDE_BYTES), shape="[{t}, {v}]", sizes={"t": rows, "v": local})
    nodes: list[Node] = [
        *residual.around(model, low, "final", rows),
        low.norm("final-norm", rows, summed=at.tp),
        *low.gemm("head", (table,), rows),
        replace(sample, sequences=at.sequences),
        Choice(name="logits", plans=(Plan(name="gather", nodes=(gathered,)), Plan(name="local", nodes=(best,)))),
    ]
    last = low.message("gather-last", CollectiveKind.ALL_GATHER, "tp", rows * (low.hidden * WIDE_BYTES))
    edges: dict[str, tuple[Node, ...]] = {r: ((last,) if r == "sequence" else ()) for r in residuals}
    return Segment(name="head", nodes=tuple(nodes), edges=edges)


def hand_over(low: Lowering, model: ModelSpec, residuals: tuple[str, ...]) -> Segment:
    """Return the send of the residual stream to the next stage: whole, or a slice a TP rank and a gather.

    A token's all is sent: every stream, or what is stored of earlier layers, and what it brings to each layer.
    """
    at = low.at
    whole = at.tokens * ((residual.vectors(model) * low.hidden + layer_inputs.features(model)) * WIDE_BYTES)
    part = whole / at.tp
    sliced = low.message("send", CollectiveKind.P2P, "pp", part)
    full = Plan(name="whole", nodes=(low.message("send", CollectiveKind.P2P, "pp", whole),))
    gathered = Plan(name="sliced", nodes=(sliced, low.message("gather", CollectiveKind.ALL_GATHER, "tp", whole)))
    edges: dict[str, tuple[Node, ...]] = {
        r: ((sliced,) if r == "sequence" else (Choice(name="pp-send", plans=(full, gathered)),)) for r in residuals
    }
    return Segment(name="hand-over", nodes=(), edges=edges)
