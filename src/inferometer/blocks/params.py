"""Parameter counts and checkpoint bytes, from the declarations the graph is lowered from."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from inferometer.blocks import ends, layer_inputs, tower
from inferometer.blocks.kinds import ffn_tensors, mixer_tensors
from inferometer.blocks.tensors import Tensor, chip_bytes
from inferometer.specs.feedforward import Moe
from inferometer.specs.model import Layer, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamCount:
    """Parameters of a model. Totals leave MTP layers out, as published totals do."""

    total: int
    active: int
    """total - routed (1 - k/E): parameters one token touches, embeddings included."""
    active_one_table: int
    """`active` less the tables of which a token reads one row: of what it brings to each layer, and the input
    embedding where the head is its own table."""
    mtp: int
    by_kind: dict[str, int]
    checkpoint_bytes: int


def layer_blocks(model: ModelSpec, layer: Layer) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the tensors of a layer's mixer and of its feed-forward."""
    mixer = () if layer.mixer is None else mixer_tensors(model.mixers[layer.mixer], model.hidden, model.dtype)
    ffn = () if layer.ffn is None else ffn_tensors(model.ffns[layer.ffn], model.hidden, model.dtype)
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


def count_params(model: ModelSpec) -> ParamCount:
    """Return the exact parameter counts of a model, with the bytes they take as stored.

    An MTP layer is a copy of the last layer behind two norms, a [H, 2H] projection and an output norm; it shares
    embedding and head with the model (DeepSeek-V3, arXiv:2412.19437 section 2.2).
    """
    by_kind: Counter[str] = Counter()
    routed_idle = 0.0
    stored = 0.0
    for tensor, times in all_tensors(model):
        by_kind[tensor.kind] += tensor.params * times
        stored += (
            float(chip_bytes((tensor,), dict.fromkeys(("tp", "kv", "groups", "ep", "etp", "heads"), np.asarray(1.0))))
            * times
        )
    for layer in model.layers:
        block = None if layer.ffn is None else model.ffns[layer.ffn]
        if isinstance(block, Moe):
            experts = sum(t.params for t in ffn_tensors(block, model.hidden, model.dtype) if t.kind == "experts")
            routed_idle += experts * (block.experts - block.top_k) / block.experts
    total = sum(by_kind.values())
    active = round(total - routed_idle)
    last = sum(t.params for t in layer_tensors(model, model.layers[-1]))
    table = 0 if model.tied else (model.vocab + model.more_rows) * model.hidden
    table += model.layer_inputs.rows * layer_inputs.features(model) if model.layer_inputs else 0
    return ParamCount(
        total=total,
        active=active,
        active_one_table=active - table,
        mtp=model.mtp_layers * (last + 3 * model.hidden + 2 * model.hidden * model.hidden),
        by_kind=dict(by_kind),
        checkpoint_bytes=round(stored),
    )
