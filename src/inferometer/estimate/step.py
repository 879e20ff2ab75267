"""The time of a pass, for a block of candidates: lower, price, choose, schedule.

Letters: P placements, n rows, C stage kinds, m microbatches, t_s the time of stage s, p the hand-over between stages.

decode: TPOT = max(m max_s(t_s + p), sum_s(t_s + p)), where m = min(PP, B) microbatches of ceil(B / m) sequences:
either the slowest stage is always busy, or a token's own way through all stages is longer.
prefill: sum_s(t_s + p) + (m - 1) max_s(t_s + p): fill the pipeline, then one microbatch per slowest stage.
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
from inferometer.estimate.pricer import NOTHING, ZERO, Cost, LinkTables, Pricer, add, select, total
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
    scheduler_name: str
    scheduler: Scheduler
    overlap: Overlap
    precision: Precision
    room_bytes: float
    """Bytes a chip has for weights and KV."""

    @property
    def max_length(self) -> int:
        """Tokens a sequence holds in cache when it is longest."""
        work = self.workload
        if work.phase == "prefill":
            return work.isl
        return work.context or work.isl + work.osl

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
    """Priced candidates, (P, n)."""

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
        sizes = {name: column[block.sharding] for name, column in self.shardings.sizes.items()}
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
            totals={} if self.record else None,
        )
        if self.record:
            self.graph, self.pricer = graph, pricer
        return self._scheduled(graph, pricer, block, micro)

    def _pass(self, sizes: Mapping[str, Column], sequences: Column) -> Pass:
        problem = self.problem
        return Pass(
            phase=problem.workload.phase,
            sequences=sequences,
            new_tokens=problem.workload.isl if problem.workload.phase == "prefill" else 1,
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
        counts = self.shardings.stage_counts[:, block.sharding]
        times = self.shardings.multiplicities[:, :, block.sharding]
        deep = int((counts > 0).any(axis=1).sum())
        core = [pricer.price(segment.nodes) for segment in graph.segments]
        edges = {r: [pricer.price(segment.edges[r]) for segment in graph.segments] for r in self._residuals(graph)}
        everywhere = times[0] if deep == 1 else (times * counts[:, None]).sum(axis=0)
        whole = {r: _weighted(pricer, costs, everywhere) for r, costs in edges.items()}
        taken = _first_where_cheapest(pricer, list(whole.values()))
        hand_over_s = total(pricer.spaces.to_all(_chosen(pricer, taken, [costs[-1] for costs in edges.values()])))
        stages: list[Busy] = []
        stage_s: list[Column] = []
        slowest: Column = ZERO
        through: Column = ZERO
        for c in range(deep):
            own = _weighted(pricer, core[:-1], times[c])
            around = [
                cost if deep == 1 else _weighted(pricer, edges[r][:-1], times[c]) for r, cost in whole.items()
            ]
            cost = pricer.add(own, _chosen(pricer, taken, around))
            busy = pricer.spaces.to_all(cost)
            alone = self.problem.scheduler(busy, self.problem.overlap)
            stages.append(busy)
            stage_s.append(alone)
            if deep == 1:
                return Step(micro * alone, (busy,), (alone,), ZERO, _totals(pricer, whole))
            stage = alone + times[c, -1] * hand_over_s
            slowest = np.maximum(slowest, np.where(counts[c] > 0, stage, 0.0))
            through = add(through, stage * counts[c])
        if self.problem.workload.phase == "prefill":
            step_s = through + (micro - 1) * slowest
        else:
            step_s = np.maximum(micro * slowest, through)
        return Step(step_s, tuple(stages), tuple(stage_s), hand_over_s, _totals(pricer, whole))

    def _residuals(self, graph: Graph) -> list[str]:
        allowed = self.problem.allows.get("residual", graph.residuals)
        return [r for r in graph.residuals if r in allowed]


def _weighted(pricer: Pricer, costs: list[Cost], times: Column) -> Cost:
    """Return the sum of segments' costs, each `times` its row of occurrences."""
    cost = NOTHING
    for one, count in zip(costs, times, strict=False):
        if count.any():
            cost = pricer.add(cost, one, count)
    return cost


def _first_where_cheapest(pricer: Pricer, costs: list[Cost]) -> list[tuple[Mask, str]]:
    """Return, for each layout after the first, where it beats those before it, and the space of that mask."""
    taken: list[tuple[Mask, str]] = []
    best = costs[0]
    for cost in costs[1:]:
        left, right, space = pricer.spaces.common(best, cost)
        taken.append((total(right) < total(left), space))
        best = pricer.cheaper(best, cost)
    return taken


def _chosen(pricer: Pricer, taken: list[tuple[Mask, str]], costs: list[Cost]) -> Cost:
    """Return the cost under the layouts taken."""
    best = costs[0]
    for (take, where), cost in zip(taken, costs[1:], strict=True):
        left, right, space = pricer.spaces.common(best, cost)
        if take.ndim > 1 and space != where:
            left, right = pricer.spaces.to_all(Cost(left, space)), pricer.spaces.to_all(Cost(right, space))
            mask = pricer.spaces.to_all(Cost(Busy(take, ZERO, ZERO, ZERO), where)).compute_s
            best = Cost(select(mask, right, left), "all")
        else:
            best = Cost(select(take, right, left), space)
    return best


def _totals(pricer: Pricer, whole: dict[str, Cost]) -> tuple[tuple[str, Column], ...]:
    return tuple((r, total(pricer.spaces.to_all(cost))) for r, cost in whole.items()) if pricer.totals is not None else ()
