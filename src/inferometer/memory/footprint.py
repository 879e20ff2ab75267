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

from inferometer.blocks import ends
from inferometer.blocks.model import cached_tokens, ffn_tensors, kv_elements_per_token, layer_kinds, mixer_tensors
from inferometer.blocks.tensors import Shards, chip_bytes, local_rows
from inferometer.errors import InferometerError
from inferometer.graph.ops import Column
from inferometer.specs.formats import bytes_per_element, find_format
from inferometer.specs.model import Attention, ModelSpec, Moe

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
    kv_bytes_per_sequence: Column
    activation_bytes_per_token: Column
    """(m,)."""
    room_bytes: float
    """Visible bytes less the reserve."""

    def tokens_per_pass(self, activation_room_bytes: float) -> Column:
        """Return the tokens of a DPA rank whose activations fit in `activation_room_bytes`, (m,)."""
        return np.floor(activation_room_bytes / self.activation_bytes_per_token)

    def sequences(self) -> Column:
        """Return B, the sequences of a DPA rank that fit in the tightest stage, (m,); below 1: does not fit.

        floor((room - weights) / KV a sequence), the least over stages; unlimited stages hold no layer.
        """
        free = self.room_bytes - self.weights_bytes
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.floor(free / self.kv_bytes_per_sequence)
        fits = np.where(self.kv_bytes_per_sequence > 0, fits, np.where(free >= 0, np.inf, -1.0))
        tightest: Column = np.maximum(fits.min(axis=0), -1.0)
        return tightest


def kv_bytes_per_token(model: ModelSpec) -> float:
    """Return the KV bytes of one token over all layers, unsharded, windows not applied."""
    one = np.ones(1)
    element = bytes_per_element(find_format(model.kv_format))
    return sum(float(kv_elements_per_token(model.mixers[x.mixer], one, one)[0]) for x in model.layers) * element


def footprint(
    model: ModelSpec, sizes: dict[str, Column], multiplicities: Column, *, length: int, room_bytes: float
) -> Footprint:
    """Return weights and KV a chip, by stage kind.

    `sizes` are columns of shape (m,), `multiplicities` (C, segments, m) in the order of `lower_model`, `length` the
    tokens a sequence reaches. A tied head on its own stage is a second copy of the table.
    """
    tp, dcp = sizes["tp"], sizes["dcp"]
    element = bytes_per_element(find_format(model.kv_format))
    shards = _shards(sizes, 1)
    held = np.zeros_like(multiplicities[:, 0])
    kv = np.zeros_like(held)
    for kind, times in zip(layer_kinds(model), multiplicities.swapaxes(0, 1), strict=False):
        mixer, ffn = model.mixers[kind.mixer], model.ffns[kind.ffn]
        own = _shards(sizes, mixer.kv_heads if isinstance(mixer, Attention) else 1)
        weights = chip_bytes(mixer_tensors(mixer, model.hidden, model.dtype), own)
        weights = weights + chip_bytes(ffn_tensors(ffn, model.hidden, model.dtype), shards)
        held = held + times * weights
        per_token = kv_elements_per_token(mixer, tp, dcp) * element
        kv = kv + times * (per_token * cached_tokens(mixer, float(length)))
    table, *beside = ends.first(model)
    first, last = multiplicities[:, -3], multiplicities[:, -2]
    head = 0.0 if model.tied else chip_bytes((ends.head(model),), shards)
    holds_table = (first + last > 0) if model.tied else first
    held = held + holds_table * chip_bytes((table,), shards) + first * chip_bytes(tuple(beside), shards)
    held = held + last * (chip_bytes(ends.last(model), shards) + head)
    return Footprint(held, kv, activation_bytes_per_token(model, sizes), room_bytes)


def activation_bytes_per_token(model: ModelSpec, sizes: Mapping[str, Column]) -> Column:
    """Return the bytes a chip needs at the widest block, for each token of a DPA rank in the pass, (m,).

    bf16: residual stream and normed copy (2 H), and the outputs of all projections of one block at once; routed
    experts count k DPA / EP copies of a token.
    """
    widest = np.zeros_like(sizes["tp"])
    for kind in layer_kinds(model):
        mixer, ffn = model.mixers[kind.mixer], model.ffns[kind.ffn]
        own = _shards(sizes, mixer.kv_heads if isinstance(mixer, Attention) else 1)
        copies = ffn.top_k * sizes["dpa"] / sizes["ep"] if isinstance(ffn, Moe) else np.ones_like(widest)
        blocks = (mixer_tensors(mixer, model.hidden, model.dtype), ffn_tensors(ffn, model.hidden, model.dtype))
        for tensors in blocks:
            width = np.zeros_like(widest)
            for tensor in tensors:
                if tensor.cols > 1:
                    width = width + local_rows(tensor, own) * (copies if tensor.kind == "experts" else 1.0)
            widest = np.maximum(widest, width)
    return ACTIVATION_BYTES * (2 * model.hidden + widest)


def _shards(sizes: Mapping[str, Column], kv_heads: int) -> Shards:
    kv = np.minimum(np.maximum(sizes["tp"] / sizes["dcp"], 1.0), float(kv_heads))
    return {"tp": sizes["tp"], "ep": sizes["ep"], "etp": sizes["etp"], "kv": kv}
