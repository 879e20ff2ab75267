"""Bytes a chip of each stage holds, as columns over shardings, and the sequences that fit.

A simple model, stated: visible bytes = weights + KV + reserve. The reserve (activations, graphs, runtime) is a
share of visible memory, 10 % unless told, as engines leave by default (vLLM gpu_memory_utilization 0.9, `assumed`),
or a number of bytes. Every sequence holds its KV at full length.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inferometer.blocks import ends
from inferometer.blocks.model import cached_tokens, ffn_tensors, kv_elements_per_token, layer_kinds, mixer_tensors
from inferometer.blocks.tensors import Shards, chip_bytes
from inferometer.errors import InferometerError
from inferometer.graph.ops import Column
from inferometer.specs.formats import bytes_per_element, find_format
from inferometer.specs.model import Attention, ModelSpec

RESERVE_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What is left alone: a share of visible memory, or bytes."""

    share: float = RESERVE_SHARE
    fixed_bytes: float | None = None

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
    room_bytes: float
    """Visible bytes less the reserve."""

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
    tables = {t.name: t for t in ends.tensors(model)}
    embedding = chip_bytes((tables["embedding"],), shards)
    norm = chip_bytes((tables["final_norm"],), shards)
    first, last = multiplicities[:, -3], multiplicities[:, -2]
    if model.tied:
        held = held + (first + last > 0) * embedding + last * norm
    else:
        held = held + first * embedding + last * (norm + chip_bytes((ends.head(model),), shards))
    return Footprint(held, kv, room_bytes)


def _shards(sizes: dict[str, Column], kv_heads: int) -> Shards:
    kv = np.minimum(np.maximum(sizes["tp"] / sizes["dcp"], 1.0), float(kv_heads))
    return {"tp": sizes["tp"], "ep": sizes["ep"], "etp": sizes["etp"], "kv": kv}
