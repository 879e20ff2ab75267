"""The time of a pass, for a block of candidates: lower, price, choose, schedule.

Letters: P placements, m shardings, G batches, C stage kinds, M microbatches, t_s the time of stage s, p the hand-over
between stages.

decode: TPOT = max(M max_s(t_s + p), sum_s(t_s + p)), where M = min(PP, B) microbatches of ceil(B / M) sequences:
either the slowest stage is always busy, or a token's own way through all stages is longer.
prefill: sum_s(t_s + p) + (M - 1) max_s(t_s + p): fill the pipeline, then one microbatch per slowest stage.
The last stage hands nothing over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from inferometer.blocks.attention import simpson
from inferometer.blocks.lowering import Pass
from inferometer.blocks.model import lower_model
from inferometer.cost.backend import CostBackend
from inferometer.cost.schedulers import Busy, Overlap, Scheduler
from inferometer.estimate.candidates import Block, Placements, Shardings
from inferometer.estimate.precision import Precision
from inferometer.estimate.pricer import NOTHING, PLACED, ZERO, Cost, LinkTables, Pricer, add, select, total
from inferometer.graph.ops import Column, Graph, Mask
from inferometer.specs.deployment import EngineSpec, Workload
from inferometer.specs.formats import bytes_per_element, find_format
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec


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
    activation_room_bytes: float = float("inf")
    """Bytes the activations of one pass may take."""

    @property
    def max_length(self) -> int:
        """Tokens a sequence holds in cache when it is longest."""
        work = self.workload
        if work.phase == "prefill":
            return work.isl
        return work.context or work.isl + work.osl

    @property
    def new_tokens(self) -> int:
        """Tokens each sequence brings to a pass."""
        return self.workload.isl if self.workload.phase == "prefill" else 1

    @property
    def contexts(self) -> tuple[tuple[float, float], ...]:
        """(context, share of passes): one, or Simpson's nodes over isl..isl+osl."""
        work = self.workload
        if work.phase == "prefill":
            return ((float(work.isl), 1.0),)
        if work.context is not None:
            return ((float(work.context), 1.0),)
        return simpson(float(work.isl), float(work.isl + work.osl))

    @property
    def allows(self) -> Mapping[str, tuple[str, ...]]:
        """The engine's masks in this phase: a key `choice.phase` wins over `choice`."""
        suffix = f".{self.workload.phase}"
        plain = {k: v for k, v in self.engine.allows.items() if "." not in k}
        return plain | {k.removesuffix(suffix): v for k, v in self.engine.allows.items() if k.endswith(suffix)}


class Step(NamedTuple):
    """Priced candidates, (P, m, G)."""

    step_s: Column
    stages: tuple[Busy, ...]
    """Busy seconds of one microbatch by stage kind."""
    stage_s: tuple[Column, ...]
    """Scheduled seconds of one microbatch by stage kind, without hand-over."""
    hand_over_s: Column
    residual_s: tuple[tuple[str, Column], ...]
    """What each residual layout costs the whole model."""


@dataclass(slots=True)
class StepModel:
    """Prices blocks of candidates of one problem. `record` keeps graph and choices of the last block."""

    problem: Problem
    shardings: Shardings
    placements: Placements
    record: bool = False
    links: LinkTables = field(init=False)
    graph: Graph | None = None
    pricer: Pricer | None = None

    def __post_init__(self) -> None:
        """Start with no link table built."""
        self.links = LinkTables(self.placements, self.problem.machine, self.problem.backend)

    def price(self, block: Block) -> Step:
        """Return the step times of a block."""
        sizes = {name: column[block.sharding, None] for name, column in self.shardings.sizes.items()}
        micro = np.minimum(sizes["pp"], block.sequences)
        graph = lower_model(self.problem.model, self._pass(sizes, np.ceil(block.sequences / micro)))
        pricer = Pricer(
            block=block,
            placements=self.placements,
            links=self.links,
            machine=self.problem.machine,
            backend=self.problem.backend,
            allows=self.problem.allows,
            group_sizes={**sizes, "stage": sizes["dpa"] * sizes["tp"]},
        )
        if self.record:
            self.graph, self.pricer = graph, pricer
        return self._scheduled(graph, pricer, block, micro)

    def _pass(self, sizes: Mapping[str, Column], sequences: Column) -> Pass:
        problem = self.problem
        return Pass(
            phase=problem.workload.phase,
            sequences=sequences,
            new_tokens=problem.new_tokens,
            contexts=problem.contexts,
            tp=sizes["tp"],
            dpa=sizes["dpa"],
            ep=sizes["ep"],
            etp=sizes["etp"],
            dcp=sizes["dcp"],
            dtypes=problem.precision.dtypes,
            core_dtype=problem.precision.core_dtype,
            kv_bytes_per_element=bytes_per_element(find_format(problem.model.kv_format)),
        )

    def _scheduled(self, graph: Graph, pricer: Pricer, block: Block, micro: Column) -> Step:
        counts = self.shardings.stage_counts[:, block.sharding, None]
        times = self.shardings.multiplicities[:, :, block.sharding, None]
        deep = int((counts > 0).any(axis=(1, 2)).sum())
        everywhere = times[0] if deep == 1 else (times * counts[:, None]).sum(axis=0)
        core = [self._needed(pricer.price(segment.nodes)) for segment in graph.segments]
        edges = {r: [pricer.price(segment.edges[r]) for segment in graph.segments] for r in self._residuals(graph)}
        whole = [_weighted(pricer, [_alone(cost) for cost in costs], everywhere) for costs in edges.values()]
        taken = _taken(pricer, whole)
        around = [
            _chosen(pricer, taken, [self._needed(costs[i]) for costs in edges.values()]) for i in range(len(core))
        ]
        hand_over_s = total(pricer.spaces.to_all(around.pop()))
        segments = [pricer.add(own, edge) for own, edge in zip(core, around, strict=False)]
        stages = [pricer.spaces.to_all(_weighted(pricer, segments, times[c])) for c in range(deep)]
        stage_s = tuple(self.problem.scheduler.seconds(busy, self.problem.overlap) for busy in stages)
        slowest: Column = ZERO
        through: Column = ZERO
        for c, alone in enumerate(stage_s):
            stage = alone if hand_over_s is ZERO else alone + times[c, -1] * hand_over_s
            slowest = stage if slowest is ZERO else np.maximum(slowest, np.where(counts[c] > 0, stage, 0.0))
            through = add(through, stage * counts[c])
        if self.problem.workload.phase == "prefill":
            step_s = through + (micro - 1) * slowest
        else:
            step_s = np.maximum(micro * slowest, through)
        residual_s = tuple(
            (r, pricer.spaces.to_all(x).network_s) for r, x in zip(edges, whole, strict=True) if self.record
        )
        return Step(step_s, tuple(stages), stage_s, hand_over_s, residual_s)

    def _needed(self, cost: Cost) -> Cost:
        """Return a cost without the sums that the scheduler does not ask for."""
        if self.record:
            return cost
        busy = cost.busy
        if self.problem.scheduler.by_op:
            return Cost(Busy(ZERO, ZERO, busy.work_s, busy.network_s), cost.space)
        return Cost(busy._replace(work_s=ZERO), cost.space)

    def _residuals(self, graph: Graph) -> list[str]:
        allowed = self.problem.allows.get("residual", graph.residuals)
        return [r for r in graph.residuals if r in allowed]


def _alone(cost: Cost) -> Cost:
    """Return a cost's seconds one after another, as one column."""
    return Cost(Busy(ZERO, ZERO, ZERO, total(cost.busy)), cost.space)


def _weighted(pricer: Pricer, costs: list[Cost], times: Column) -> Cost:
    """Return the sum of segments' costs, each `times` its row of occurrences."""
    cost = NOTHING
    for one, count in zip(costs, times, strict=False):
        if one is not NOTHING and count.any():
            scaled = Busy(*(x if x is ZERO else x * count for x in one.busy))
            cost = pricer.add(cost, Cost(scaled, one.space))
    return cost


def _taken(pricer: Pricer, costs: list[Cost]) -> list[tuple[Mask, str]]:
    """Return, for each layout after the first, where it beats those before it, and the space of that mask.

    `costs` are each one column, see `_alone`.
    """
    taken: list[tuple[Mask, str]] = []
    best = costs[0]
    for cost in costs[1:]:
        left, right, space = pricer.spaces.common(best, cost)
        taken.append((right.network_s < left.network_s, space))
        best = pricer.cheaper(best, cost)
    return taken


def _chosen(pricer: Pricer, taken: list[tuple[Mask, str]], costs: list[Cost]) -> Cost:
    """Return the cost under the layouts taken."""
    best = costs[0]
    for (take, where), cost in zip(taken, costs[1:], strict=True):
        left, right, space = pricer.spaces.common(best, cost)
        if space == "rows" and take.ndim == PLACED:
            best = Cost(select(take, right, left), where)
        elif take.ndim == PLACED and space != where:
            left, right = pricer.spaces.to_all(Cost(left, space)), pricer.spaces.to_all(Cost(right, space))
            best = Cost(select(pricer.spaces.mask_to_all(take, where), right, left), "all")
        else:
            best = Cost(select(take, right, left), space)
    return best
