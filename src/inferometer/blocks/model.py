"""A whole model from its blocks: tensors, cache and graph. The only place that maps specs to block modules."""

from dataclasses import dataclass

import numpy as np

from inferometer.blocks import attention, ends, ffn, mla, moe
from inferometer.blocks.lowering import Lowering, Pass
from inferometer.blocks.tensors import Tensor
from inferometer.graph.ops import Column, Graph, Node, Segment
from inferometer.specs.model import Attention, Block, FeedForward, Ffn, Layer, Mixer, Mla, ModelSpec, Moe

RESIDUALS = ("replicated", "sequence")


def mixer_tensors(block: Mixer, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a mixer's tensors with the norms around it."""
    inside = (
        attention.tensors(block, hidden, dtype) if isinstance(block, Attention) else mla.tensors(block, hidden, dtype)
    )
    return (*_norms("mixer", block, hidden, dtype), *inside)


def ffn_tensors(block: FeedForward, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a feed-forward's tensors with the norms around it."""
    inside = ffn.tensors(block, hidden, dtype) if isinstance(block, Ffn) else moe.tensors(block, hidden, dtype)
    return (*_norms("ffn", block, hidden, dtype), *inside)


def _norms(name: str, block: Block, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    places = ((f"{name}_norm", block.pre_norm), (f"{name}_post_norm", block.post_norm))
    return tuple(
        tensor
        for place, held in places
        if held
        for tensor in ends.norm(place, hidden, dtype, weight=block.norm_weight, bias=block.norm_bias)
    )


def kv_elements_per_token(block: Mixer, tp: Column, dcp: Column) -> Column:
    """Return the cache elements a chip stores for one token of one layer, a column."""
    if isinstance(block, Attention):
        return attention.kv_elements_per_token(block, tp, dcp)
    return mla.kv_elements_per_token(block, tp, dcp)


def cached_tokens(block: Mixer, context: float) -> float:
    """Return how many tokens of a sequence of length `context` a layer keeps."""
    return attention.cached_tokens(block, context) if isinstance(block, Attention) else context


def is_moe(model: ModelSpec) -> bool:
    """Return whether any layer has routed experts: DPA, EP and ETP are then roles."""
    return any(isinstance(block, Moe) for block in model.ffns)


def layer_kinds(model: ModelSpec) -> tuple[Layer, ...]:
    """Return the distinct layers of a model, in order of first appearance."""
    return tuple(dict.fromkeys(model.layers))


def lower_model(model: ModelSpec, at: Pass) -> Graph:
    """Return the graph of one pass: a segment a layer kind, the ends, and the stage hand-over.

    Segments come in the order layer kinds, embedding, head, hand-over: `stage_kinds` counts them so. Layers that
    share a block share its nodes.
    """
    low = Lowering(at=at, hidden=model.hidden, has_dpa=is_moe(model))
    mixers = [_mixer(block, low, model) for block in model.mixers]
    ffns = [_ffn(block, low, model) for block in model.ffns]
    segments = [
        Segment(
            name=f"layer-{index}",
            nodes=(*mixers[kind.mixer].nodes, *ffns[kind.ffn].nodes),
            edges={r: (*mixers[kind.mixer].edges[r], *ffns[kind.ffn].edges[r]) for r in RESIDUALS},
        )
        for index, kind in enumerate(layer_kinds(model))
    ]
    segments += [
        ends.embedding(low, model, RESIDUALS),
        ends.logits(low, model, RESIDUALS),
        ends.hand_over(low, RESIDUALS),
    ]
    return Graph(segments=tuple(segments), residuals=RESIDUALS)


def _mixer(block: Mixer, low: Lowering, model: ModelSpec) -> Segment:
    lower = mla.lower(block, low, model.dtype) if isinstance(block, Mla) else attention.lower(block, low, model.dtype)
    return Segment(
        name="mixer",
        nodes=tuple(lower),
        edges={r: low.edges("mixer", r, _first_format(block, model.dtype), block) for r in RESIDUALS},
    )


def _first_format(block: Mixer, dtype: str) -> str:
    """Return the format of the weights that take a mixer's input; the wider where they differ."""
    names = ("q", "k") if isinstance(block, Attention) else ("q_a" if block.q_rank else "q", "kv_a")
    formats = {block.formats.get(name, dtype) for name in names}
    return formats.pop() if len(formats) == 1 else dtype


def _ffn(block: FeedForward, low: Lowering, model: ModelSpec) -> Segment:
    if isinstance(block, Moe):
        edges = {r: moe.edges(block, low, r, model.dtype) for r in RESIDUALS}
        return Segment(name="ffn", nodes=tuple(moe.lower(block, low, model.dtype)), edges=edges)
    fmt = block.formats.get("up", model.dtype)
    edges = {r: _beside(block, low, r, fmt) if block.parallel else low.edges("ffn", r, fmt, block) for r in RESIDUALS}
    return Segment(name="ffn", nodes=tuple(ffn.lower(block, low, model.dtype)), edges=edges)


def _beside(block: Ffn, low: Lowering, residual: str, fmt: str) -> tuple[Node, ...]:
    """Return what surrounds a feed-forward beside its mixer: their partial sums are added, then reduced once."""
    return low.way_in("ffn", residual, fmt, block) if block.pre_norm else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """Stages that hold the same blocks: how many of each segment, and how many such stages."""

    multiplicities: tuple[int, ...]
    count: int


def stage_kinds(model: ModelSpec, splits: tuple[int, ...]) -> tuple[StageKind, ...]:
    """Return the distinct stages when stage s holds splits[s] layers; equal stages are folded.

    The embedding is on the first stage, the head on the last, a hand-over on all but the last.
    """
    kinds = layer_kinds(model)
    of_layer = np.array([kinds.index(layer) for layer in model.layers])
    before = np.array([np.concatenate(([0], np.cumsum(of_layer == k))) for k in range(len(kinds))])
    bounds = np.cumsum([0, *splits])
    counts = (before[:, bounds[1:]] - before[:, bounds[:-1]]).T.tolist()
    found: dict[tuple[int, ...], int] = {}
    for stage, held in enumerate(counts):
        ends_here = (int(stage == 0), int(stage == len(splits) - 1), int(stage < len(splits) - 1))
        key = (*held, *ends_here)
        found[key] = found.get(key, 0) + 1
    return tuple(StageKind(multiplicities=key, count=count) for key, count in found.items())
