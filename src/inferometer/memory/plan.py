"""Divides a chip's memory as an engine does, under one sharding or many: one rule for `memory` and for `search`.

Weights and activations are columns over the shardings; what several shardings share (caches of a layer, pools of a
stage) is worked out once. Stages that hold the same are folded.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from inferometer.blocks.model import layer_kinds
from inferometer.graph.ops import Column
from inferometer.memory.activations import Experts, activation_bytes, experts_of
from inferometer.memory.adapters import adapter_bytes
from inferometer.memory.asked import Asked
from inferometer.memory.division import Plan
from inferometer.memory.footprint import activation_bytes_per_token
from inferometer.memory.layers import Kind, image_bytes, kinds_by_layer, stage_slices
from inferometer.memory.pools import Pools, pools_by
from inferometer.memory.stage import Stage, Taken, stage_of
from inferometer.memory.weights import weights_by_kind
from inferometer.specs.deployment import ROLES, Sizes


def plan(asked: Asked) -> Plan:
    """Return how memory is divided for one question."""
    return Divider(asked, (Sharding(asked.sizes, asked.splits),)).plan(0, asked.batch)


class Sharding(NamedTuple):
    """Role sizes, and the layers of each pipeline stage."""

    sizes: Sizes
    splits: tuple[int, ...]


class _Place(NamedTuple):
    """A stage: its layers on the chip, and which of the distinct stages it is."""

    span: range
    kind: int
    first: bool
    last: bool


class _Stages(NamedTuple):
    """The stages of one split of the layers."""

    places: tuple[_Place, ...]
    times: tuple[tuple[float, ...], ...]
    """Of each distinct stage: how often it holds each segment, in the order of `weights_by_kind`."""


class Divider:
    """Divides memory for one question under several shardings."""

    def __init__(self, asked: Asked, shardings: Sequence[Sharding]) -> None:
        """Start with nothing divided; sizes, splits and batch of `asked` do not count."""
        self.asked = asked
        self.shardings = tuple(shardings)
        self._stages = {splits: self._stages_of(splits) for splits in dict.fromkeys(s.splits for s in self.shardings)}
        self._layers: dict[tuple[int, int], list[list[Kind]]] = {}
        self._pools_by: dict[tuple[int, ...], Callable[[range], Pools]] = {}
        self._pools: dict[tuple[object, ...], tuple[tuple[_Place, Pools], ...]] = {}
        self._weights: dict[int, list[dict[str, float]]] = {}

    def at_length(self, length: int) -> "Divider":
        """Return the divider of sequences of `length`, for which the engine is started; weights are worked out once."""
        other = Divider(replace(self.asked, context=length, max_model_len=length), ())
        other.shardings, other._stages, other._weights = self.shardings, self._stages, self._weights
        shared = ("_columns", "_per_token", "_columns_of_weights")
        other.__dict__.update({name: getattr(self, name) for name in shared})
        return other

    def plan(self, index: int, batch: int) -> Plan:
        """Return how memory is divided under a sharding, with `batch` sequences in flight over the deployment."""
        sizes, splits = self.shardings[index]
        asked = replace(self.asked, sizes=sizes, splits=splits, batch=batch)
        weights, each = self._weights_at(asked, index), self._per_token[index]
        held = [(place, pools, (place.first, place.last)) for place, pools in self._pools_at(asked)]
        needs = {
            (first, last): activation_bytes(asked, each, self._experts, first=first, last=last)
            for first, last in {ends for _, _, ends in held}
        }
        share = asked.used_share
        stages: list[Stage] = [
            stage_of(asked, weights[place.kind], pools, Taken(share, len(place.span), needs[ends]))
            for place, pools, ends in held
        ]
        return Plan(asked=asked, stages=tuple(stages))

    @cached_property
    def _experts(self) -> tuple[Experts, ...]:
        return experts_of(self.asked)

    @cached_property
    def _columns(self) -> dict[str, Column]:
        return {role: np.array([float(getattr(one.sizes, role)) for one in self.shardings]) for role in ROLES}

    @cached_property
    def _per_token(self) -> list[float]:
        each: list[float] = activation_bytes_per_token(self.asked.model, self._columns).tolist()
        return each

    def _stages_of(self, splits: tuple[int, ...]) -> _Stages:
        """Return the stages; the embedding is on the first, the head on the last."""
        asked, slices = self.asked, stage_slices(splits)
        kinds, places = layer_kinds(asked.model), []
        known: dict[tuple[float, ...], int] = {}
        for index, held in enumerate(slices):
            span = range(max(held.start, asked.first_layer), held.stop)
            layers = asked.model.layers[span.start : span.stop]
            first, last = index == 0, index == len(slices) - 1
            ends = (float(first), float(last and asked.holds_head), float(not last))
            times = (*(float(kind.visits * layers.count(kind)) for kind in kinds), *ends)
            places.append(_Place(span, known.setdefault(times, len(known)), first, last))
        return _Stages(tuple(places), tuple(known))

    @cached_property
    def _columns_of_weights(self) -> dict[tuple[int, ...], tuple[dict[int, int], dict[str, list[list[float]]]]]:
        """Splits -> place of its shardings in the columns, and kind of tensor -> bytes by stage and sharding."""
        found = {}
        for splits, stages in self._stages.items():
            at = [index for index, one in enumerate(self.shardings) if one.splits == splits]
            sizes = {role: column[at] for role, column in self._columns.items()}
            by_kind = weights_by_kind(
                self.asked.model, sizes, np.array(stages.times)[:, :, None], self.asked.rules.pads
            )
            shape = (len(stages.times), len(at))
            columns = {kind: np.broadcast_to(column, shape).tolist() for kind, column in by_kind.items()}
            found[splits] = ({index: place for place, index in enumerate(at)}, columns)
        return found

    def _weights_at(self, asked: Asked, index: int) -> list[dict[str, float]]:
        """Return kind -> bytes of each distinct stage of a sharding."""
        if index not in self._weights:
            places, columns = self._columns_of_weights[asked.splits]
            away, at = () if asked.unified else asked.rules.host_kinds, places[index]
            of_kind = {place.kind: place.span for place in self._stages[asked.splits].places}
            found = []
            for kind, span in sorted(of_kind.items()):
                held = {k: rows[kind][at] for k, rows in columns.items() if rows[kind][at] and k not in away}
                found.append(held | _beside_weights(asked, span, sum(held.values())))
            self._weights[index] = found
        return self._weights[index]

    def _pools_at(self, asked: Asked) -> tuple[tuple[_Place, Pools], ...]:
        """Return the stages of a sharding that differ, with their pools."""
        sizes = asked.sizes
        width = (sizes.tp, sizes.dcp, asked.pass_tokens)
        key = (width, asked.splits)
        if key not in self._pools:
            split = (sizes.tp, sizes.dcp)
            if split not in self._layers:
                self._layers[split] = kinds_by_layer(asked)
            if width not in self._pools_by:
                self._pools_by[width] = pools_by(asked, self._layers[split])
            found: dict[tuple[int, float], tuple[_Place, Pools]] = {}
            for place in self._stages[asked.splits].places:
                pools = self._pools_by[width](place.span).beside(image_bytes(asked, place.span))
                found.setdefault((place.kind, pools.unit_bytes), (place, pools))
            self._pools[key] = tuple(found.values())
        return self._pools[key]


def _beside_weights(asked: Asked, span: range, weights_bytes: float) -> dict[str, float]:
    """Return adapters, and what the host keeps of the weights, below 0."""
    found = {}
    if asked.adapters:
        found["LoRA adapters"] = adapter_bytes(asked, asked.model.layers[span.start : span.stop])
    if asked.offload_bytes:
        found["kept on the host"] = -min(asked.offload_bytes, weights_bytes)
    return found
