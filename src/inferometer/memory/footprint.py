"""Bytes a chip of each stage holds, as columns over shardings, and the sequences that fit.

A simple model, stated: visible bytes = weights + KV + reserve. The reserve (activations, graphs, runtime) is a
share of visible memory, 10 % unless told, as engines leave by default (vLLM gpu_memory_utilization 0.9, `assumed`),
or a number of bytes. Every sequence holds its KV at full length. Where the reserve is a share, the activations of one
pass must lie in it; a pass that is too large for that would be run in chunks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inferometer.blocks import ends, layer_inputs, residual
from inferometer.blocks.cache import Cache
from inferometer.blocks.model import layer_kinds
from inferometer.blocks.params import layer_blocks
from inferometer.blocks.routing import experts_a_token
from inferometer.blocks.tensors import local_rows
from inferometer.errors import InferometerError
from inferometer.graph.ops import Column
from inferometer.memory.weights import TOWER, cache_format, layer_caches, layer_shards, weights_by_kind
from inferometer.specs.feedforward import Moe
from inferometer.specs.model import ModelSpec

RESERVE_SHARE = 0.1
"""Left for activations, graphs and runtime: as `--gpu-memory-utilization 0.9`, vLLM's default, leaves (assumed)."""

ACTIVATION_BYTES = 2.0
"""bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What is left alone: a share of visible memory, or bytes."""

    share: float = RESERVE_SHARE
    fixed_bytes: float | None = None

    def for_activations(self, visible_bytes: float) -> float:
        """Return the bytes one pass's activations may take; a reserve stated in bytes answers for itself."""
        return self.share * visible_bytes if self.fixed_bytes is None else float("inf")

    def of(self, visible_bytes: float) -> float:
        """Return the bytes reserved on a chip."""
        kept = self.share * visible_bytes if self.fixed_bytes is None else self.fixed_bytes
        if not 0 <= kept < visible_bytes:
            raise InferometerError(f"a reserve of {kept:.0f} bytes leaves nothing of {visible_bytes:.0f} visible bytes")
        return kept


class Footprint(NamedTuple):
    """Columns over m shardings; the first axis is the stage kind (C, m)."""

    weights_bytes: Column
    tower_bytes: Column
    """Of the weights, those of towers."""
    kv_bytes_per_sequence: Column
    """Entries that grow, at full length."""
    state_bytes_per_sequence: Column
    """States of fixed size."""
    activation_bytes_per_token: Column
    """(m,)."""
    room_bytes: float
    """Visible bytes less the reserve."""

    @property
    def bytes_per_sequence(self) -> Column:
        """KV and state of one sequence, (C, m)."""
        return self.kv_bytes_per_sequence + self.state_bytes_per_sequence

    def tokens_per_pass(self, activation_room_bytes: float) -> Column:
        """Return the tokens of a DPA rank whose activations fit in `activation_room_bytes`, (m,)."""
        return np.floor(activation_room_bytes / self.activation_bytes_per_token)

    def sequences(self) -> Column:
        """Return B, the sequences of a DPA rank that fit in the tightest stage, (m,); below 1: does not fit.

        floor((room - weights) / (KV + state) a sequence), the least over stages; unlimited stages hold no layer.
        """
        free, each = self.room_bytes - self.weights_bytes, self.bytes_per_sequence
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.floor(free / each)
        fits = np.where(each > 0, fits, np.where(free >= 0, np.inf, -1.0))
        tightest: Column = np.maximum(fits.min(axis=0), -1.0)
        return tightest


def kv_bytes_per_token(model: ModelSpec, *, windows: bool = True) -> float:
    """Return the KV bytes of one token of text over all layers, unsharded.

    As if windows had no end; or without windows.
    """
    total = 0.0
    for layer in model.layers:
        for cache in layer_caches(model, layer):
            grows = not (cache.fixed or cache.images) and (windows or cache.most is None)
            each = cache.entry_bytes(cache_format(cache, model)) / cache.tokens if grows else 0.0
            total += layer.visits * each
    return total


def state_bytes_per_sequence(model: ModelSpec) -> float:
    """Return the bytes of a sequence's recurrent and convolution states over all layers, unsharded, one copy."""
    total = 0.0
    for layer in model.layers:
        for cache in layer_caches(model, layer):
            total += layer.visits * cache.entry_bytes(cache_format(cache, model)) if cache.fixed else 0.0
    return total


class CacheLine(NamedTuple):
    """One cache of the layers that have it, unsharded."""

    cache: Cache
    layers: int
    format: str
    bytes_per_token: float
    """All these layers, a token of text; 0 of a state and of images."""
    bytes_per_sequence: float
    """All these layers, at a length."""


def cache_lines(model: ModelSpec, length: int, cross_tokens: int = 0) -> list[CacheLine]:
    """Return what the layers keep of a sequence of `length` tokens, equal caches together, one a visit.

    `cross_tokens` are those of images that cross-attention keeps beside them.
    """
    every = [cache for layer in model.layers for cache in layer_caches(model, layer) * layer.visits]
    found: list[CacheLine] = []
    for cache in every:
        if any(line.cache == cache for line in found):
            continue
        layers, kv_format = every.count(cache), cache_format(cache, model)
        entry = cache.entry_bytes(kv_format) * layers
        per_token = 0.0 if cache.fixed or cache.images else entry / cache.tokens
        held = entry * cache.entries(float(length), cross_tokens)
        found.append(CacheLine(cache, layers, cache.stored(kv_format), per_token, held))
    return found


def footprint(
    model: ModelSpec,
    sizes: dict[str, Column],
    multiplicities: Column,
    *,
    length: int,
    room_bytes: float,
    state_slots: int = 1,
    cross_tokens: int = 0,
    all_token_logits: bool = False,
) -> Footprint:
    """Return weights, KV and state a chip, by stage kind; a layer has a cache for each visit.

    `sizes` are columns of shape (m,), `multiplicities` (C, segments, m) in the order of `lower_model`, `length` the
    tokens a sequence reaches, `cross_tokens` those of images that cross-attention keeps beside them, `state_slots` the
    copies of its states that it holds. Towers are on the first stage. A tied head on its own stage is a second copy of
    the table.
    """
    by_kind = weights_by_kind(model, sizes, multiplicities)
    held, towers = np.zeros_like(multiplicities[:, 0]), by_kind.get(TOWER, np.zeros_like(multiplicities[:, 0]))
    for part in by_kind.values():
        held = held + part
    kv, state = np.zeros_like(held), np.zeros_like(held)
    for kind, times in zip(layer_kinds(model), multiplicities.swapaxes(0, 1), strict=False):
        shards = layer_shards(model, kind, sizes)
        for cache in layer_caches(model, kind):
            entry = cache.local_bytes(shards, sizes["dcp"], cache_format(cache, model))
            if cache.fixed:
                state = state + times * (state_slots * entry)
            else:
                kv = kv + times * (entry * cache.entries(float(length), cross_tokens))
    activations = activation_bytes_per_token(model, sizes, all_token_logits=all_token_logits)
    return Footprint(held, towers, kv, state, activations, room_bytes)


def activation_bytes_per_token(
    model: ModelSpec, sizes: Mapping[str, Column], *, all_token_logits: bool = False
) -> Column:
    """Return the bytes a chip needs at the widest block, for each token of a DPA rank in the pass, (m,).

    bf16: what a token carries from layer to layer (H, or more under a residual scheme) and its normed copy (H), and the
    outputs of all projections of one block at once; routed experts count k DPA / EP copies of a token. What a token
    brings to each layer is kept through the pass. With logits of every token the head is such a block.
    """
    widest = np.zeros_like(sizes["tp"])
    if all_token_logits:
        widest = widest + local_rows(ends.head(model), sizes)
    for kind in layer_kinds(model):
        own = layer_shards(model, kind, sizes)
        ffn = None if kind.ffn is None else model.ffns[kind.ffn]
        copies = experts_a_token(ffn) * sizes["dpa"] / sizes["ep"] if isinstance(ffn, Moe) else np.ones_like(widest)
        for tensors in layer_blocks(model, kind):
            width = np.zeros_like(widest)
            for tensor in tensors:
                if tensor.multiplies:
                    width = width + local_rows(tensor, own) * (copies if tensor.kind == "experts" else 1.0)
            widest = np.maximum(widest, width)
    return ACTIVATION_BYTES * ((1 + residual.vectors(model)) * model.hidden + layer_inputs.features(model) + widest)
