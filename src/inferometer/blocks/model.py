"""A whole model from its blocks: the graph of a pass, and what stages hold of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from inferometer.blocks import ends, layer_inputs, lookup, moe, residual, tower
from inferometer.blocks.kinds import (
    ffn_input_format,
    ffn_kind,
    idle,
    input_format,
    is_moe,
    keeps_of_all,
    lower_mixer,
)
from inferometer.blocks.lowering import Lowering, Pass
from inferometer.graph.ops import Branch, Graph, Item, Node, Segment, unwrapped
from inferometer.specs.feedforward import FeedForward, Ffn, Moe
from inferometer.specs.lookup import Lookup
from inferometer.specs.mixers import Mixer
from inferometer.specs.model import Layer, ModelSpec

RESIDUALS = ("replicated", "sequence")


def layer_kinds(model: ModelSpec) -> tuple[Layer, ...]:
    """Return the distinct layers of a model, in order of first appearance."""
    return tuple(dict.fromkeys(model.layers))


def lower_model(model: ModelSpec, at: Pass) -> Graph:
    """Return the graph of one pass: a segment a layer kind and a part of a tower, the ends, and the stage hand-over.

    Segments come in the order layer kinds, towers, embedding, head, hand-over: `stage_kinds` counts them so. Layers
    that share a block share its nodes. A layer that the pass skips is an empty segment. Where a prompt's tail alone
    goes through a layer, all that surrounds it is of the tail; what stages hand over is of all tokens still, which
    charges those behind that layer too much.
    """
    low = Lowering(at=at, hidden=model.hidden, has_dpa=is_moe(model))
    kinds = layer_kinds(model)
    made: dict[int, Segment] = {}
    stops = [at.tail(kind.prompt_tail).stopped for kind in kinds]
    for stopped in dict.fromkeys(stops):
        alike = {i: kind for i, kind in enumerate(kinds) if stops[i] == stopped}
        made |= _layers(model, alike, _of_tail(low, at.new_tokens - stopped))
    segments = [
        *(made[index] for index in range(len(kinds))),
        *tower.lower(low, model, RESIDUALS),
        ends.embedding(low, model, RESIDUALS),
        ends.logits(low, model, RESIDUALS),
        ends.hand_over(low, model, RESIDUALS),
    ]
    return Graph(segments=tuple(segments), residuals=RESIDUALS)


def _of_tail(low: Lowering, tokens: int) -> Lowering:
    """Return what lowers layers that a prompt's last `tokens` go through, the same where those are all."""
    at = low.at.tail(tokens)
    return low if at is low.at else Lowering(at=at, hidden=low.hidden, has_dpa=low.has_dpa, whole=low)


def _layers(model: ModelSpec, kinds: Mapping[int, Layer], low: Lowering) -> dict[int, Segment]:
    """Return the segments of kinds of layer that the same tokens go through, by place."""
    used, at = ({kind.mixer for kind in kinds.values()}, {kind.ffn for kind in kinds.values()}), low.at
    mixers = {
        i: None if idle(block, at) else _mixer(block, low, model)
        for i, block in enumerate(model.mixers)
        if i in used[0]
    }
    ffns = {i: _ffn(block, low, model) for i, block in enumerate(model.ffns) if i in used[1]}
    around = {r: layer_inputs.lower_layer(low, model, r) for r in RESIDUALS}
    found = {}
    for index, kind in kinds.items():
        held: tuple[tuple[int | None, Mapping[int, Segment | None]], ...] = ((kind.mixer, mixers), (kind.ffn, ffns))
        blocks = [of_index[i] for i, of_index in held if i is not None]
        block = None if kind.ffn is None else model.ffns[kind.ffn]
        beside = isinstance(block, Ffn) and block.parallel
        found[index] = _layer(f"layer-{index}", blocks, around, beside=beside)
    return found


def _layer(
    name: str, blocks: Sequence[Segment | None], after: Mapping[str, tuple[Node, ...]], *, beside: bool
) -> Segment:
    """Return a layer of `blocks` and what comes after them; nothing where the pass skips one of them."""
    run = [block for block in blocks if block is not None]
    if len(run) < len(blocks):
        return Segment(name=name, nodes=(), edges=dict.fromkeys(RESIDUALS, ()))
    made = (_forked if beside and len(run) > 1 else _in_a_row)(name, *run)
    if not any(after.values()):
        return made
    return _in_a_row(name, made, Segment(name=layer_inputs.NAME, nodes=(), edges=after))


def _in_a_row(name: str, *blocks: Segment) -> Segment:
    """Return one layer of blocks one after another."""
    nodes = tuple(node for block in blocks for node in block.nodes)
    edges = {r: tuple(node for block in blocks for node in block.edges[r]) for r in RESIDUALS}
    return Segment(
        name=name, nodes=nodes, edges=edges, blocks=tuple(part for block in blocks for part in block.blocks or (block,))
    )


def _forked(name: str, mixer: Segment, ffn: Segment) -> Segment:
    """Return one layer of two blocks on branches, which join before their partial sums are reduced.

    Branches start after the norm they share, or, where each has its own, with it.
    """
    edges = dict(mixer.edges)
    for r in RESIDUALS:
        *before, after = mixer.edges[r]
        if ffn.edges[r]:
            edges[r] = (_side("left", before), after, _side("right", ffn.edges[r]))
    return Segment(
        name=name, nodes=(_side("left", mixer.nodes), _side("right", ffn.nodes)), edges=edges, blocks=(mixer, ffn)
    )


def _side(side: Literal["left", "right"], items: Iterable[Item]) -> Branch:
    return Branch(side=side, nodes=tuple(unwrapped(items)))


def _mixer(block: Mixer, low: Lowering, model: ModelSpec) -> Segment:
    """Return a layer's mixer; what it keeps of tokens that stop before the layer needs the way in of all."""
    fmt = input_format(block, model.dtype)
    came = low.all_tokens if keeps_of_all(block) else low
    return Segment(
        name="mixer",
        edges={r: (*_residual(came, model, "mixer", r), *low.edges("mixer", r, fmt, block, came)) for r in RESIDUALS},
        nodes=tuple(lower_mixer(block, low, model.dtype)),
    )


def _residual(low: Lowering, model: ModelSpec, place: str, layout: str) -> tuple[Node, ...]:
    return residual.around(model, low, place, low.residual_rows(layout))


def _ffn(block: FeedForward, low: Lowering, model: ModelSpec) -> Segment:
    edges: dict[str, tuple[Item, ...]]
    if isinstance(block, Lookup):
        edges = {r: lookup.edges(block, low, r, model.dtype) for r in RESIDUALS}
        return Segment(name="ffn", nodes=tuple(lookup.lower(block, low, model.dtype)), edges=edges)
    if isinstance(block, Moe):
        edges = {r: (*_residual(low, model, "ffn", r), *moe.edges(block, low, r, model.dtype)) for r in RESIDUALS}
        return Segment(name="ffn", nodes=tuple(moe.lower(block, low, model.dtype)), edges=edges)
    fmt = ffn_input_format(block, model.dtype)
    beside = isinstance(block, Ffn) and block.parallel
    edges = {
        r: (
            *_residual(low, model, "ffn", r),
            *(_beside(block, low, r, fmt) if beside else low.edges("ffn", r, fmt, block)),
        )
        for r in RESIDUALS
    }
    return Segment(name="ffn", nodes=tuple(ffn_kind(block).lower(block, low, model.dtype)), edges=edges)


def _beside(block: FeedForward, low: Lowering, residual: str, fmt: str) -> tuple[Node, ...]:
    """Return what surrounds a feed-forward beside its mixer: their partial sums are added, then reduced once."""
    return low.way_in("ffn", residual, fmt, block) if block.pre_norm else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """Stages that hold the same blocks: how many of each segment, and how many such stages."""

    multiplicities: tuple[int, ...]
    count: int


def unit_count(model: ModelSpec) -> int:
    """Return the units that stages are made of: what PP can split."""
    return len(model.units) or len(model.layers)


def split_layers(n_layers: int, stages: int, rule: str) -> tuple[int, ...]:
    """Return layers a stage. `even`: the first stages take the remainder. `vllm`: the later ones but the last.

    vLLM's rule (vllm/distributed/utils.py get_pp_indices) gives the remainder to stages from the second last
    backwards, since the last one also holds the head.

    >>> split_layers(61, 8, "even"), split_layers(61, 8, "vllm")
    ((8, 8, 8, 8, 8, 7, 7, 7), (7, 7, 8, 8, 8, 8, 8, 7))
    """
    base, left = divmod(n_layers, stages)
    splits = [base] * stages
    for i in range(left):
        splits[-2 - i if rule == "vllm" else i] += 1
    return tuple(splits)


def stage_layers(model: ModelSpec, stages: int, rule: str) -> tuple[int, ...]:
    """Return how many layers each stage holds; units stay whole."""
    units = iter(model.units or (1,) * len(model.layers))
    return tuple(sum(islice(units, n)) for n in split_layers(unit_count(model), stages, rule))


def stage_kinds(model: ModelSpec, splits: tuple[int, ...]) -> tuple[StageKind, ...]:
    """Return the distinct stages when stage s holds splits[s] units; equal stages are folded.

    A layer counts as often as it is visited. Towers and the embedding are on the first stage, the head on the last, a
    hand-over on all but the last.
    """
    kinds = layer_kinds(model)
    of_layer = np.array([kinds.index(layer) for layer in model.layers])
    before = np.array([np.concatenate(([0], np.cumsum(of_layer == k))) for k in range(len(kinds))])
    starts = np.cumsum([0, *(model.units or (1,) * len(model.layers))])
    bounds = starts[np.cumsum([0, *splits])]
    visits = np.array([[kind.visits] for kind in kinds])
    counts = (visits * (before[:, bounds[1:]] - before[:, bounds[:-1]])).T.tolist()
    towers = [part.running for _, part in tower.parts(model)]
    found: dict[tuple[int, ...], int] = {}
    for stage, held in enumerate(counts):
        ends_here = (int(stage == 0), int(stage == len(splits) - 1), int(stage < len(splits) - 1))
        key = (*held, *(runs * (stage == 0) for runs in towers), *ends_here)
        found[key] = found.get(key, 0) + 1
    return tuple(StageKind(multiplicities=key, count=count) for key, count in found.items())
