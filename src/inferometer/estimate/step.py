"""The time of a pass, for a block of candidates: lower, price, choose, schedule.

Letters: P placements, m shardings, G batches, C stage kinds, M microbatches, t_s the time of stage s, p the hand-over
between stages.

decode, verify: TPOT = max(M max_s(t_s + p), sum_s(t_s + p)), where M = min(PP, B) microbatches of ceil(B / M)
sequences: either the slowest stage is always busy, or a token's own way through all stages is longer.
prefill, extend: sum_s(t_s + p) + (M - 1) max_s(t_s + p): fill the pipeline, then one microbatch per slowest stage.
Prompts can be cut anywhere, so M = min(4 PP, B) microbatches of B / M.
The last stage hands nothing over.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

import numpy as np

from inferometer.blocks.images import ImageCount
from inferometer.blocks.model import lower_model
from inferometer.cost.backend import CostBackend
from inferometer.cost.schedulers import Busy, Overlap, Scheduler
from inferometer.estimate.candidates import Block, Placements, Shardings
from inferometer.estimate.passes import make_pass
from inferometer.estimate.precision import Precision
from inferometer.estimate.pricer import (
    NOTHING,
    PLAIN,
    ZERO,
    Cost,
    LinkTables,
    Pricer,
    add,
    asked_for,
    network_only,
    total,
)
from inferometer.graph.ops import ONE, Column, Graph
from inferometer.memory.asked import Asked
from inferometer.specs.deployment import EngineSpec, Workload
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec

PREFILL_MICROBATCHES = 4
"""Microbatches of a prefill for each stage: filling costs (PP - 1) / (M + PP - 1) < 1/5 of the pass (`assumed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything about an estimate but the candidates."""

    model: ModelSpec
    machine: Machine
    workload: Workload
    engine: EngineSpec
    backend: CostBackend
    scheduler: Scheduler
    overlap: Overlap
    precision: Precision
    room_bytes: float
    """Bytes a chip has for weights and KV."""
    state_slots: int = 1
    """Copies of its recurrent states that a sequence holds."""
    activation_room_bytes: float = float("inf")
    """Bytes the activations of one pass may take."""
    asked: Asked | None = None
    """What the engine is asked for, by whose allocator sequences are admitted; None: the simple footprint."""
    image: ImageCount | None = None
    """What an image of the workload is to the model's tower; None without images."""

    @property
    def max_length(self) -> int:
        """Tokens a sequence holds in cache when it is longest."""
        return self.workload.ends[1]

    @property
    def new_tokens(self) -> int:
        """Tokens each sequence brings to a pass."""
        return self.workload.new_tokens

    def microbatches(self, pp: Column, sequences: Column) -> Column:
        """Return M: min(PP, B) in decode; in prefill up to 4 PP, so that filling the pipeline is a small part."""
        return np.minimum(pp if self.workload.generates else PREFILL_MICROBATCHES * pp, sequences) * (pp > 1) + (
            pp <= 1
        )

    @property
    def allows(self) -> Mapping[str, tuple[str, ...]]:
        """The engine's masks in this phase."""
        return self.engine.in_phase(self.workload.phase)


class Way(NamedTuple):
    """A pass under one residual layout, (P, m, G)."""

    step_s: Column
    stages: tuple[Busy, ...]
    """Busy seconds of one microbatch by stage kind."""
    stage_s: tuple[Column, ...]
    """Scheduled seconds of one microbatch by stage kind, hand-over included."""


class Step(NamedTuple):
    """Priced candidates, (P, m, G)."""

    step_s: Column
    """Under the layout that gives the least."""
    ways: dict[str, Way]
    """By residual layout, in record mode."""


@dataclass(slots=True)
class StepModel:
    """Prices blocks of candidates of one problem. `record` keeps graph and choices of the last block.

    `known` are the link tables of another one of the same problem and placements.
    """

    problem: Problem
    shardings: Shardings
    placements: Placements
    record: bool = False
    known: InitVar[LinkTables | None] = None
    links: LinkTables = field(init=False)
    graph: Graph | None = None
    pricer: Pricer | None = None
    wanted: tuple[bool, ...] = field(init=False)
    """Which fields of `Busy` the scheduler reads; those of branches left out where it reads none of them."""

    def __post_init__(self, known: LinkTables | None) -> None:
        """Start with no link table built, or with those of another one."""
        self.links = known or LinkTables(self.placements, self.problem.machine, self.problem.backend)
        wanted = tuple(name in self.problem.scheduler.needs for name in Busy._fields)
        self.wanted = wanted if any(wanted[PLAIN:]) else wanted[:PLAIN]

    def price(self, block: Block) -> Step:
        """Return the step times of a block."""
        sizes = {name: column[block.sharding, None] for name, column in self.shardings.sizes.items()}
        micro = self.problem.microbatches(sizes["pp"], block.sequences)
        in_flight = block.sequences * sizes["dpa"] if block.in_flight is None else block.in_flight
        problem = self.problem
        at = make_pass(
            problem.model,
            problem.workload,
            problem.precision,
            sizes,
            sequences=block.sequences / micro,
            replica_sequences=in_flight / micro,
            image=problem.image,
        )
        graph = lower_model(problem.model, at)
        pricer = Pricer(
            block=block,
            placements=self.placements,
            links=self.links,
            machine=self.problem.machine,
            backend=self.problem.backend,
            allows=self.problem.allows,
            group_sizes={**sizes, "stage": sizes["dpa"] * sizes["tp"]},
            steady="steady_s" in self.problem.scheduler.needs,
            forks=self.problem.scheduler.forks,
            left=Counter() if self.record else asked_for(graph),
        )
        if self.record:
            self.graph, self.pricer = graph, pricer
        return self._scheduled(graph, pricer, block, micro)

    def _scheduled(self, graph: Graph, pricer: Pricer, block: Block, micro: Column) -> Step:
        """Return the step under each residual layout, and the least.

        The layout is the one Choice taken by the step it gives: with stages in a row, the layout that is cheapest
        over the model need not be cheapest in the slowest stage, and the step would fall when a batch grows.
        """
        counts = self.shardings.stage_counts[:, block.sharding, None]
        times = self.shardings.multiplicities[:, :, block.sharding, None]
        deep = int((counts > 0).any(axis=(1, 2)).sum())
        often = [[_occurring(count) for count in of_stage] for of_stage in times[:deep]]
        core = [pricer.price(segment.nodes, self._needed) for segment in graph.segments]
        own = [_weighted(pricer, core[:-1], of_stage) for of_stage in often]
        ways: dict[str, Way] = {}
        step_s: Column = ZERO
        for residual in self._residuals(graph):
            edges = [pricer.price(segment.edges[residual], self._needed) for segment in graph.segments]
            hand_over_s = total(pricer.spaces.to_all(edges.pop()))
            around = [_weighted(pricer, edges, of_stage) for of_stage in often]
            stages = tuple(pricer.spaces.to_all(pricer.add(a, b)) for a, b in zip(own, around, strict=True))
            stage_s = self._stage_seconds(pricer, stages, list(zip(core, edges, strict=False)), times)
            if hand_over_s is not ZERO:
                stage_s = tuple(plus(alone, hand_over_s, times[c, -1]) for c, alone in enumerate(stage_s))
            one_s = self._pipelined(stage_s, counts, micro)
            step_s = one_s if step_s is ZERO else np.minimum(step_s, one_s)
            if self.record:
                ways[residual] = Way(one_s, stages, stage_s)
        return Step(step_s, ways)

    def _pipelined(self, stage_s: tuple[Column, ...], counts: Column, micro: Column) -> Column:
        """Return the step of stages in a row, hand-overs included; `counts` stages of each kind."""
        if len(stage_s) == 1 and not (micro > 1).any():
            return stage_s[0]
        slowest, through = stage_s[0], stage_s[0] * counts[0]
        for alone, count in zip(stage_s[1:], counts[1:], strict=False):
            slowest = np.maximum(slowest, alone if count.all() else np.where(count > 0, alone, 0.0))
            through = through + alone * count
        if not self.problem.workload.generates:
            filled: Column = through + (micro - 1) * slowest
            return filled
        longest: Column = np.maximum(micro * slowest, through)
        return longest

    def _stage_seconds(
        self, pricer: Pricer, stages: tuple[Busy, ...], segments: list[tuple[Cost, Cost]], times: Column
    ) -> tuple[Column, ...]:
        """Return the time of each stage kind: from its sums, or run by run of its segments (core, edges)."""
        scheduler, overlap = self.problem.scheduler, self.problem.overlap
        if scheduler.later is None:
            return tuple(scheduler.seconds(busy, overlap) for busy in stages)
        runs = [pricer.spaces.to_all(pricer.add(own, around)) for own, around in segments]
        first = [scheduler.seconds(busy, overlap) for busy in runs]
        later = [scheduler.later(busy, overlap) for busy in runs]
        found: list[Column] = []
        for count in times[: len(stages)]:
            stage_s: Column = ZERO
            for once, again, runs_here in zip(first, later, count, strict=False):
                stage_s = add(stage_s, np.minimum(runs_here, 1) * once + np.maximum(runs_here - 1, 0) * again)
            found.append(stage_s)
        return tuple(found)

    def _needed(self, cost: Cost) -> Cost:
        """Return a cost without the sums that the scheduler does not ask for."""
        if self.record or all(self.wanted) or network_only(cost.busy):
            return cost
        kept = (x if wanted else ZERO for x, wanted in zip(cost.busy, self.wanted, strict=False))
        return Cost(Busy(*kept), cost.space)

    def _residuals(self, graph: Graph) -> list[str]:
        allowed = self.problem.allows.get("residual", graph.residuals)
        return [r for r in graph.residuals if r in allowed]


def _occurring(count: Column) -> Column | None:
    """Return how often a segment occurs; None where it nowhere does, ONE where it does once everywhere."""
    if not count.any():
        return None
    return ONE if (count == 1).all() else count


def _weighted(pricer: Pricer, costs: list[Cost], often: list[Column | None]) -> Cost:
    """Return the sum of segments' costs, each as `often` as it occurs."""
    cost = NOTHING
    for one, count in zip(costs, often, strict=False):
        if one is NOTHING or count is None:
            continue
        scaled = one if count is ONE else Cost(Busy(*(x if x is ZERO else x * count for x in one.busy)), one.space)
        cost = pricer.add(cost, scaled)
    return cost


def plus(a: Column, b: Column, times: Column) -> Column:
    """Return a + times b; `times` is 0 or 1 throughout where it can be."""
    if not times.any():
        return a
    return a + b if (times == 1).all() else a + times * b
