"""Weights of a chip by kind of tensor, as columns over shardings: the one declaration that totals are sums of.

Letters: C stage kinds, m shardings, r rows, c columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from inferometer.blocks import ends, tower
from inferometer.blocks.cache import CONV, Cache
from inferometer.blocks.kinds import caches, expanded_caches, mixer_shards, out_caches
from inferometer.blocks.model import layer_kinds
from inferometer.blocks.params import layer_tensors
from inferometer.blocks.tensors import Shards, Tensor, held_on_chip, local_cols, local_count, local_rows
from inferometer.graph.ops import Column
from inferometer.specs.formats import find_format, stored_bytes
from inferometer.specs.model import Layer, ModelSpec

TOWER = "tower"
"""Kind of the tensors of towers, which are on the first stage."""

Pads = Mapping[str, int]
"""Format -> multiple to which an engine's kernels pad the width of routed experts."""


class Held(NamedTuple):
    """Tensors with the shards they are in, and how often a stage of each kind holds them, (C, m)."""

    tensor: Tensor
    shards: Shards
    times: Column


def held_tensors(model: ModelSpec, sizes: Mapping[str, Column], multiplicities: Column) -> Iterator[Held]:
    """Yield every tensor of the model; a tied head on its own stage is a second copy of the table.

    `sizes` are columns of shape (m,), `multiplicities` (C, segments, m) in the order of `lower_model`.
    """
    for kind, times in zip(layer_kinds(model), multiplicities.swapaxes(0, 1), strict=False):
        shards = layer_shards(model, kind, sizes)
        for tensor in held_on_chip(layer_tensors(model, kind)):
            yield Held(tensor, shards, times / kind.visits)
    shards = layer_shards(model, Layer(), sizes)
    table, *beside = ends.first(model)
    first, last = multiplicities[:, -3], multiplicities[:, -2]
    if model.tied:
        table = replace(table, kind="embedding and head")
    yield Held(table, shards, np.minimum(first + last, 1.0) if model.tied else first)
    for tensor in beside:
        yield Held(tensor, shards, first)
    for _, part in tower.parts(model):
        for tensor in tower.tensors(part, model.dtype):
            yield Held(tensor, tower.shards(part, sizes["tp"]), first * part.layers)
    for tensor in (*ends.last(model), *(() if model.tied else (ends.head(model),))):
        yield Held(tensor, shards, last)


def weights_by_kind(
    model: ModelSpec, sizes: Mapping[str, Column], multiplicities: Column, pads: Pads | None = None
) -> dict[str, Column]:
    """Return kind of tensor -> bytes a chip of each stage kind holds, (C, m)."""
    found: dict[str, Column] = {}
    for tensor, shards, times in held_tensors(model, sizes, multiplicities):
        part = times * tensor_bytes(tensor, shards, pads or {})
        found[tensor.kind] = found[tensor.kind] + part if tensor.kind in found else part
    return found


def tensor_bytes(tensor: Tensor, shards: Shards, pads: Pads) -> Column:
    """Return the bytes of a chip's copies of a tensor, scales included.

    The side of routed experts that ETP cuts is their width; kernels of some formats want it a multiple of `pads`.
    """
    rows, cols = local_rows(tensor, shards), local_cols(tensor, shards)
    multiple = pads.get(tensor.format, 1) if tensor.kind == "experts" and tensor.cols > 1 else 1
    if multiple > 1 and tensor.split_cols:
        cols = np.ceil(cols / multiple) * multiple
    elif multiple > 1:
        rows = np.ceil(rows / multiple) * multiple
    return stored_bytes(find_format(tensor.format), rows, cols) * local_count(tensor, shards)


def layer_caches(model: ModelSpec, layer: Layer, *, expanded: bool = False) -> tuple[Cache, ...]:
    """Return what a layer keeps of a sequence: its mixer, and the convolutions after its blocks.

    `expanded`: latents as the K and V of every head. What convolutions keep only where the model counts it.
    """
    mixer = None if layer.mixer is None else model.mixers[layer.mixer]
    ffn = None if layer.ffn is None else model.ffns[layer.ffn]
    kept = () if mixer is None else expanded_caches(mixer) if expanded else caches(mixer)
    kept = (*kept, *(c for block in (mixer, ffn) if block is not None for c in out_caches(block, model.hidden)))
    return kept if model.conv_states else tuple(cache for cache in kept if cache.name != CONV)


def cache_format(cache: Cache, model: ModelSpec) -> str:
    """Return the model's format that a cache's elements have unless they have one of their own."""
    return {"kv": model.kv_format, "state": model.state_format, "dtype": model.dtype}[cache.holds]


def layer_shards(model: ModelSpec, layer: Layer, sizes: Mapping[str, Column]) -> Shards:
    """Return shard key -> distinct shards, for a layer."""
    mixer = None if layer.mixer is None else model.mixers[layer.mixer]
    whole = {"tp": sizes["tp"], "ep": sizes["ep"], "etp": sizes["etp"]}
    return whole | mixer_shards(mixer, sizes["tp"], sizes["dcp"])
