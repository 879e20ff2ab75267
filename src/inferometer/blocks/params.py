"""Parameter counts and checkpoint bytes, from the declarations the graph is lowered from."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from inferometer.blocks import ends, layer_inputs, residual, tower
from inferometer.blocks.kinds import ffn_tensors, mixer_tensors
from inferometer.blocks.routing import experts_a_token
from inferometer.blocks.tensors import INDEX, Tensor, chip_bytes
from inferometer.specs.drafter import Drafter
from inferometer.specs.feedforward import Moe
from inferometer.specs.lookup import Lookup
from inferometer.specs.model import Layer, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamCount:
    """Parameters of a model. Totals leave drafters out, as published totals do."""

    total: int
    active: int
    """total - routed (1 - k/E): parameters one token touches, embeddings included; k are those it is sent to."""
    active_one_table: int
    """`active` less the tables of which a token reads one row: of what it brings to each layer, and the input
    embedding where the head is its own table."""
    mtp: int
    """Of all drafters."""
    by_kind: dict[str, int]
    by_dtype: dict[str, int]
    """By the format they are stored in."""
    bytes_by_kind: dict[str, int]
    """As stored; they add up to `checkpoint_bytes`, but for a byte of rounding each."""
    checkpoint_bytes: int


def layer_blocks(model: ModelSpec, layer: Layer) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the tensors of a layer's mixer and of its feed-forward."""
    mixer: tuple[Tensor, ...] = ()
    ffn: tuple[Tensor, ...] = ()
    if layer.mixer is not None:
        mixer = (
            *mixer_tensors(model.mixers[layer.mixer], model.hidden, model.dtype),
            *residual.tensors(model, "mixer"),
        )
    if layer.ffn is not None:
        block = model.ffns[layer.ffn]
        around = () if isinstance(block, Lookup) else residual.tensors(model, "ffn")
        ffn = (*ffn_tensors(block, model.hidden, model.dtype), *around)
    return mixer, ffn


def layer_tensors(model: ModelSpec, layer: Layer) -> tuple[Tensor, ...]:
    """Return every tensor of one layer."""
    mixer, ffn = layer_blocks(model, layer)
    return (*mixer, *ffn, *layer_inputs.of_layer(model))


def all_tensors(model: ModelSpec) -> tuple[tuple[Tensor, int], ...]:
    """Return (tensor, times it occurs) over the whole model and its towers, MTP left out."""
    times = Counter(model.layers)
    layers = [(t, n) for layer, n in times.items() for t in layer_tensors(model, layer)]
    towers = [(t, part.layers) for _, part in tower.parts(model) for t in tower.tensors(part, model.dtype)]
    return (*layers, *((t, 1) for t in ends.tensors(model)), *towers)


def drafter_params(model: ModelSpec, drafter: Drafter) -> int:
    """Return the parameters of a drafter; embedding and head are the model's."""
    stack = tuple(Layer(mixer=layer.mixer, ffn=layer.ffn) for layer in drafter.layers)
    own = msgspec.structs.replace(model, mixers=drafter.mixers, ffns=drafter.ffns, layers=stack, units=(), drafters=())
    layers = sum(t.params for layer in stack for t in layer_tensors(own, layer) if t.kind != INDEX)
    return layers + sum(rows * cols * n for rows, cols, n in drafter.shapes.values())


def stored_once(tensor: Tensor) -> float:
    """Return the bytes of all copies of a tensor, unsharded."""
    return float(chip_bytes((tensor,), dict.fromkeys(("tp", "kv", "groups", "ep", "etp", "heads"), np.asarray(1.0))))


class LayerRun(NamedTuple):
    """Consecutive layers of one kind, with what one of them holds."""

    first: int
    last: int
    layer: Layer
    mixer_params: int
    ffn_params: int
    other_params: int
    """Of what a token brings to each layer."""
    stored_bytes: int
    """One layer."""


def layer_runs(model: ModelSpec) -> list[LayerRun]:
    """Return the layers in order, consecutive ones of one kind together."""
    found: list[LayerRun] = []
    for index, layer in enumerate(model.layers):
        if found and found[-1].layer == layer:
            found[-1] = found[-1]._replace(last=index)
            continue
        parts = (*layer_blocks(model, layer), layer_inputs.of_layer(model))
        held = round(sum(stored_once(tensor) for part in parts for tensor in part))
        mixer, ffn, others = (sum(t.params for t in part if t.kind != INDEX) for part in parts)
        found.append(LayerRun(index, index, layer, mixer, ffn, others, held))
    return found


def count_params(model: ModelSpec) -> ParamCount:
    """Return the exact parameter counts of a model, with the bytes they take as stored.

    A token reads few rows of memory tables: those tables are idle but for them.
    """
    by_kind: Counter[str] = Counter()
    by_dtype: Counter[str] = Counter()
    kind_bytes: dict[str, float] = defaultdict(float)
    routed_idle = 0.0
    stored = 0.0
    for tensor, times in all_tensors(model):
        if tensor.kind != INDEX:
            by_kind[tensor.kind] += tensor.params * times
            by_dtype[tensor.format] += tensor.params * times
        held = stored_once(tensor) * times
        kind_bytes[tensor.kind] += held
        stored += held
    for layer in model.layers:
        block = None if layer.ffn is None else model.ffns[layer.ffn]
        if isinstance(block, Moe):
            experts = sum(t.params for t in ffn_tensors(block, model.hidden, model.dtype) if t.kind == "experts")
            routed_idle += experts * (block.experts - experts_a_token(block)) / block.experts
        if isinstance(block, Lookup):
            routed_idle += block.width * (block.rows - block.reads)
    total = sum(by_kind.values())
    active = round(total - routed_idle)
    table = 0 if model.tied else (model.vocab + model.more_rows) * model.hidden
    table += model.layer_inputs.rows * layer_inputs.features(model) if model.layer_inputs else 0
    return ParamCount(
        total=total,
        active=active,
        active_one_table=active - table,
        mtp=sum(drafter_params(model, drafter) for drafter in model.drafters),
        by_kind=dict(by_kind),
        by_dtype=dict(by_dtype),
        bytes_by_kind={kind: round(held) for kind, held in kind_bytes.items()},
        checkpoint_bytes=round(stored),
    )
