"""Room for sequences: by the simple footprint, or where an engine is named by its allocator, as `memory` prints it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inferometer.blocks.model import stage_layers
from inferometer.estimate.candidates import Placements, Shardings
from inferometer.estimate.result import MemoryLines
from inferometer.estimate.step import Problem
from inferometer.graph.ops import Column, Mask
from inferometer.memory.asked import Asked
from inferometer.memory.division import Plan
from inferometer.memory.footprint import Footprint
from inferometer.memory.plan import Divider, Sharding
from inferometer.memory.solve import max_rounds
from inferometer.memory.weights import TOWER
from inferometer.specs.deployment import Sizes


@dataclass(slots=True, kw_only=True)
class Divided:
    """Shardings of one problem whose memory an engine divides."""

    divider: Divider
    place: Mapping[int, int]
    """Sharding -> its place in the divider; those that break a rule of model or engine have none."""

    def plan(self, sharding: int, batch: int) -> Plan:
        """Return how memory is divided with `batch` sequences in flight over the deployment."""
        return self.divider.plan(self.place[sharding], batch)

    def lacks_bytes(self, sharding: int) -> float:
        """Return the bytes that a chip lacks for one sequence a rank."""
        sizes = self.divider.shardings[self.place[sharding]].sizes
        return self.plan(sharding, sizes.r * sizes.dpa).deficit_bytes


def divide(problem: Problem, asked: Asked, sizes: Mapping[str, Column], legal: Mask) -> tuple[Divided, Column]:
    """Return the memory of the legal shardings, or of one that is asked for, legal or not; and what a rank holds.

    (m,) most sequences of a rank, -1 where a rule is broken.
    """
    at = np.flatnonzero(legal if len(legal) > 1 else np.ones_like(legal))
    splits: dict[int, tuple[int, ...]] = {}
    shardings = []
    for index in at.tolist():
        one = Sizes(**{role: int(column[index]) for role, column in sizes.items()})
        if one.pp not in splits:
            splits[one.pp] = stage_layers(problem.model, one.pp, problem.engine.partition)
        shardings.append(Sharding(one, splits[one.pp]))
    found = Divided(
        divider=Divider(asked, shardings), place={int(index): place for place, index in enumerate(at.tolist())}
    )
    most = np.full(len(legal), -1.0)
    for index, place in found.place.items():
        most[index] = max_rounds(found.divider, place)
    return found, most


class Candidates(NamedTuple):
    """Shardings and placements of one machine, with what their chips hold."""

    shardings: Shardings
    placements: Placements
    held: Footprint
    most: Column
    """(m,) most sequences of a DPA rank: their KV fits, and the activations of one pass do."""
    divided: Divided | None = None
    """By the engine's own allocator, which then says what fits."""

    def room(self) -> Column:
        """Return the most sequences of a DPA rank whose caches fit, (m,)."""
        return self.held.sequences() if self.divided is None else self.most

    def lacks_bytes(self, legal: Mask) -> Column:
        """Return what the fullest stage holds of weights and one sequence, or lacks for it, (m,); inf where illegal."""
        if self.divided is None:
            lacks = (self.held.weights_bytes + self.held.bytes_per_sequence).max(axis=0)
            return np.where(legal, lacks, np.inf)
        return np.array([self.divided.lacks_bytes(i) if ok else np.inf for i, ok in enumerate(legal)])


class Held(NamedTuple):
    """One deployment: its sharding, sequences in flight over all, and of a rank."""

    sharding: int
    batch: int
    sequences: int


def memory_of(problem: Problem, found: Candidates, held: Held) -> tuple[MemoryLines, Sequence[str]]:
    """Return the memory of a chip of the fullest stage, and why what is asked for does not fit."""
    each = float(found.held.activation_bytes_per_token[held.sharding])
    if found.divided is not None:
        plan = found.divided.plan(held.sharding, held.batch)
        return _engine_lines(plan, float(found.most[held.sharding]), each), plan.reasons
    lines = _simple_lines(problem, found.held, held, each)
    return lines, memory_reasons(lines)


def _simple_lines(problem: Problem, of: Footprint, held: Held, activation_bytes_per_token: float) -> MemoryLines:
    index, sequences = held.sharding, held.sequences
    worst = int(np.argmax(of.weights_bytes[:, index] + sequences * of.bytes_per_sequence[:, index]))
    visible = float(problem.machine.chip.memory_bytes)
    return MemoryLines(
        visible_bytes=visible,
        reserve_bytes=visible - problem.room_bytes,
        weights_bytes=float(of.weights_bytes[worst, index]),
        tower_bytes=float(of.tower_bytes[worst, index]),
        kv_bytes_per_sequence=float(of.kv_bytes_per_sequence[worst, index]),
        state_bytes_per_sequence=float(of.state_bytes_per_sequence[worst, index]),
        sequences=sequences,
        fits_sequences=float(of.sequences()[index]),
        activation_bytes_per_token=activation_bytes_per_token,
        used_share=1 - (visible - problem.room_bytes) / visible,
    )


def _engine_lines(plan: Plan, fits_sequences: float, activation_bytes_per_token: float) -> MemoryLines:
    """Return the memory of a chip of the tightest stage; what is neither weights nor caches nor free is reserved."""
    asked, stage = plan.asked, plan.tightest
    weights, state = stage.parts_bytes["weights"], stage.pools.state_bytes
    return MemoryLines(
        visible_bytes=asked.visible_bytes,
        reserve_bytes=asked.visible_bytes - stage.room_bytes - weights,
        weights_bytes=weights,
        tower_bytes=stage.weights_bytes.get(TOWER, 0.0),
        kv_bytes_per_sequence=sum(stage.pools.needs_bytes(asked.context)) - state,
        state_bytes_per_sequence=state,
        sequences=asked.sequences,
        fits_sequences=fits_sequences,
        activation_bytes_per_token=activation_bytes_per_token,
        used_share=asked.used_share,
        pass_tokens=asked.pass_tokens,
        deficit_bytes=plan.deficit_bytes,
        lines=plan.lines,
    )


def memory_reasons(memory: MemoryLines) -> list[str]:
    """Return why the weights or the sequences asked for do not fit; nothing where they do."""
    gib = 2.0**30
    free = memory.visible_bytes - memory.reserve_bytes - memory.weights_bytes
    if free < 0:
        return [f"weights-do-not-fit: {-free / gib:.2f} GiB a chip too many; shard over more chips or quantise"]
    if memory.fits_sequences < 1:
        lacks = memory.kv_bytes_per_sequence + memory.state_bytes_per_sequence - free
        return [f"no-room-for-kv: one sequence lacks {lacks / gib:.2f} GiB a chip; shorten it or shard further"]
    if memory.sequences > memory.fits_sequences:
        return [f"batch-does-not-fit: {memory.sequences:.0f} sequences a rank, room for {memory.fits_sequences:.0f}"]
    return []
