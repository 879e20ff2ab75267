"""A whole model from its blocks: tensors, cache and graph. The only place that maps specs to block modules."""

from dataclasses import dataclass

import numpy as np

from inferometer.blocks import attention, ends, ffn, mla, moe
from inferometer.blocks.lowering import Lowering, Pass
from inferometer.blocks.tensors import Tensor
from inferometer.graph.ops import Column, Graph, Segment
from inferometer.specs.model import Attention, Ffn, FeedForward, Mixer, Mla, ModelSpec, Moe

RESIDUALS = ("replicated", "sequence")


def mixer_tensors(block: Mixer, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a mixer's tensors with its input norm."""
    norm = Tensor(name="mixer_norm", rows=hidden, format=dtype, kind="norm")
    inside = attention.tensors(block, hidden, dtype) if isinstance(block, Attention) else mla.tensors(block, hidden, dtype)
    return (norm, *inside)


def ffn_tensors(block: FeedForward, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a feed-forward's tensors with its input norm."""
    norm = Tensor(name="ffn_norm", rows=hidden, format=dtype, kind="norm")
    inside = ffn.tensors(block, hidden, dtype) if isinstance(block, Ffn) else moe.tensors(block, hidden, dtype)
    return (norm, *inside)


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


def lower_model(model: ModelSpec, at: Pass) -> Graph:
    """Return the graph of one pass: a segment a block kind, the ends, and the stage hand-over.

    Segments come in the order mixers, ffns, embedding, head, hand-over: `multiplicities` counts them.
    """
    low = Lowering(at=at, hidden=model.hidden, has_dpa=is_moe(model))
    segments = [_mixer(block, index, low, model) for index, block in enumerate(model.mixers)]
    segments += [_ffn(block, index, low, model) for index, block in enumerate(model.ffns)]
    segments += [ends.embedding(low, RESIDUALS), ends.logits(low, model, RESIDUALS), ends.hand_over(low, RESIDUALS)]
    return Graph(segments=tuple(segments), residuals=RESIDUALS)


def _mixer(block: Mixer, index: int, low: Lowering, model: ModelSpec) -> Segment:
    if isinstance(block, Mla):
        nodes = mla.lower(block, low, model.dtype)
    else:
        nodes = attention.lower(block, low, model.dtype)
    name = f"{block.__struct_config__.tag}.{index}"
    return Segment(name=name, nodes=tuple(nodes), edges={r: low.edges("mixer", r) for r in RESIDUALS})


def _ffn(block: FeedForward, index: int, low: Lowering, model: ModelSpec) -> Segment:
    name = f"{block.__struct_config__.tag}.{index}"
    if isinstance(block, Moe):
        nodes = moe.lower(block, low, model.dtype)
        return Segment(
            name=name, nodes=tuple(nodes), edges={r: moe.edges(block, low, r, model.dtype) for r in RESIDUALS}
        )
    return Segment(
        name=name,
        nodes=tuple(ffn.lower(block, low, model.dtype)),
        edges={r: low.edges("ffn", r) for r in RESIDUALS},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """Stages that hold the same blocks: how many of each segment, and how many such stages."""

    multiplicities: tuple[int, ...]
    count: int


def layer_counts(model: ModelSpec, first: int, last: int) -> tuple[int, ...]:
    """Return how often each mixer and ffn occurs in layers first..last-1."""
    counts = [0] * (len(model.mixers) + len(model.ffns))
    for layer in model.layers[first:last]:
        counts[layer.mixer] += 1
        counts[len(model.mixers) + layer.ffn] += 1
    return tuple(counts)


def stage_kinds(model: ModelSpec, splits: tuple[int, ...]) -> tuple[StageKind, ...]:
    """Return the distinct stages when stage s holds splits[s] layers; equal stages are folded.

    The embedding is on the first stage, the head on the last, a hand-over on all but the last.
    """
    bounds = np.cumsum([0, *splits]).tolist()
    kinds: dict[tuple[int, ...], int] = {}
    for stage, (first, last) in enumerate(zip(bounds, bounds[1:], strict=False)):
        ends_here = (int(stage == 0), int(stage == len(splits) - 1), int(stage < len(splits) - 1))
        key = (*layer_counts(model, first, last), *ends_here)
        kinds[key] = kinds.get(key, 0) + 1
    return tuple(StageKind(multiplicities=key, count=count) for key, count in kinds.items())
