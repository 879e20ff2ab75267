"""One pipeline stage of a deployment: its parts, and the room they leave for caches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from inferometer.memory.asked import Asked
from inferometer.memory.pools import Pools


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: its parts, and the room for caches."""

    weights_bytes: Mapping[str, float]
    """Kind of tensor -> bytes."""
    parts_bytes: Mapping[str, float]
    """Part -> bytes; `weights` is the sum of the kinds."""
    pools: Pools
    room_bytes: float
    """For caches; below 0 there is none."""
    left_bytes: float
    """Of what lies outside the share, beside the parts there; below 0 they do not fit."""


class Taken(NamedTuple):
    """What a stage is worked out from, beside its weights and pools."""

    used_share: float
    """Of memory, by the engine."""
    layers: int
    """On the chip."""
    activations_bytes: float
    """Of the largest pass."""


def stage_of(asked: Asked, weights: Mapping[str, float], pools: Pools, taken: Taken) -> Stage:
    """Return a stage with what its weights and the other parts leave room for."""
    rules = asked.rules
    parts = {"weights": sum(weights.values()), **_beside(asked, taken)}
    if asked.reserve_bytes is not None:
        # Reserved bytes stand for all that is not weights: nothing else is charged.
        room, left = asked.visible_bytes - asked.reserve_bytes - parts["weights"], 0.0
    else:
        share, base = taken.used_share, asked.visible_bytes - sum(parts[part] for part in rules.before)
        room = share * base - sum(parts[part] for part in rules.charged)
        left = (1 - share) * base - sum(parts[part] for part in rules.outside)
    return Stage(weights_bytes=weights, parts_bytes=parts, pools=pools, room_bytes=room, left_bytes=left)


def _beside(asked: Asked, taken: Taken) -> dict[str, float]:
    """Return the parts beside the weights, those that the engine's rules name."""
    rules = asked.rules
    found = {
        "activations": taken.activations_bytes,
        "graphs": 0.0 if asked.eager else rules.graph_bytes_per_layer * taken.layers,
        "runtime": rules.runtime_bytes + (rules.collective_bytes if asked.sizes.tp > 1 else 0.0),
        "context": rules.context_bytes,
    }
    named = {*rules.before, *rules.charged, *rules.outside}
    return {part: size if part in named else 0.0 for part, size in found.items()}
