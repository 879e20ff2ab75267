"""Reads ops and choices back from a priced block of one candidate, in the order they run."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from inferometer.estimate.pricer import PLACED, Cost, Pricer
from inferometer.estimate.result import ChoiceRow, OpRow
from inferometer.graph.ops import Choice, Column, Graph, Item, Message, Node, Work, unwrapped

MOST_PLANS = 24
"""Plans of one Choice listed in full, the cheapest first."""


class Record(NamedTuple):
    """What a pass is made of."""

    ops: tuple[OpRow, ...]
    choices: tuple[ChoiceRow, ...]


def pick(column: Column, row: int, along: int = 0) -> float:
    """Return a value of a column of shape (), (m, 1) or (S, m, 1): of one row, at `along` of the first axis."""
    if column.ndim == 0:
        return float(column)
    at_row = row if column.shape[-2] > 1 else 0
    if column.ndim < PLACED:
        return float(column[at_row, 0])
    return float(column[along if len(column) > 1 else 0, at_row, 0])


def shape_text(work: Work, row: int) -> str:
    """Return an op's shapes with the sizes of one row: whole numbers as such, means with a digit."""
    sizes = {name: pick(column, row) for name, column in work.sizes.items()}
    shown = {name: f"{size:.0f}" if size == round(size) else f"{size:.1f}" for name, size in sizes.items()}
    return work.shape.format(**shown)


def read_record(pricer: Pricer, graph: Graph, where: "Where", times: Iterable[float], residual: str) -> Record:
    """Return every op and Choice of one candidate of a priced block, under one residual layout.

    `times` counts segments over the model.
    """
    reader = _Reader(pricer, where)
    for segment, count in zip(graph.segments, times, strict=True):
        if count:
            for node in unwrapped((*segment.nodes, *segment.edges[residual])):
                reader.walk(node, segment.name, int(count), "")
    return Record(tuple(reader.ops), tuple(reader.choices))


class Where(NamedTuple):
    """One candidate of a block of one batch a sharding."""

    row: int
    placement: int


class _Priced(NamedTuple):
    name: str
    seconds: float
    nodes: tuple[Item, ...]


class _Reader:
    def __init__(self, pricer: Pricer, where: Where) -> None:
        self.pricer = pricer
        self.where = where
        self.ops: list[OpRow] = []
        self.choices: list[ChoiceRow] = []

    def seconds(self, cost: Cost) -> float:
        """Return the seconds of ops and messages one after another, at the placement."""
        at = self.pricer.spaces.position(cost.space, self.where.placement, self.where.row)
        return pick(cost.busy.work_s, self.where.row, at) + pick(cost.busy.network_s, self.where.row, at)

    def value(self, column: Column) -> float:
        """Return the value of a column over rows."""
        return pick(column, self.where.row)

    def walk(self, node: Node, segment: str, layers: int, plan: str) -> None:
        if isinstance(node, Work):
            self.ops.append(self._work(node, segment, layers, plan))
        elif isinstance(node, Message):
            row = self._message(node, segment, layers)
            if row is not None:
                self.ops.append(row)
        else:
            self._choice(node, segment, layers, plan)

    def _work(self, node: Work, segment: str, layers: int, plan: str) -> OpRow:
        busy = self.pricer.price_node(node).busy
        share = node.share
        return OpRow(
            name=node.name,
            kind=str(node.kind),
            segment=segment,
            layers=layers,
            shape=shape_text(node, self.where.row),
            dtype=node.dtype,
            flops=self.value(node.flops),
            replication=self.value(node.replication),
            traffic_bytes={str(k): self.value(v) for k, v in node.traffic_bytes.items()},
            alone_s=self.value(busy.work_s) / share,
            compute_s=self.value(busy.compute_s) / share,
            memory_s=self.value(busy.memory_s) / share,
            network_s=0.0,
            share=share,
            plan=plan,
        )

    def _message(self, node: Message, segment: str, layers: int) -> OpRow | None:
        seconds = self.seconds(self.pricer.price_node(node))
        if seconds == 0:
            return None
        return OpRow(
            name=node.name if "(" in node.name else f"{node.name}({node.role})",
            kind=str(node.kind),
            segment=segment,
            layers=layers,
            shape=f"{node.role} x {self.value(self.pricer.group_sizes[node.role]):.0f}",
            dtype="",
            flops=0.0,
            replication=1.0,
            traffic_bytes={"message": self.value(node.message_bytes)},
            alone_s=seconds,
            compute_s=0.0,
            memory_s=0.0,
            network_s=seconds,
            share=1.0,
            plan=self.pricer.algorithm(node, self.where.row, self.where.placement),
        )

    def _choice(self, node: Choice, segment: str, layers: int, plan: str) -> None:
        allowed = self.pricer.allows.get(node.name)
        plans = [
            _Priced(p.name, self.seconds(self.pricer.price(p.nodes)), p.nodes)
            for p in node.plans
            if (allowed is None or p.name in allowed)
            and (p.legal is None or self.value(np.asarray(p.legal, dtype=np.float64)))
        ]
        taken = min(plans, key=lambda p: p.seconds)
        written = self._written_out(node, plans)
        best = min(written, key=lambda p: p.seconds)
        ranked = sorted((p for p in written if p is not best), key=lambda p: p.seconds)
        if ranked and ranked[-1].seconds > 0:
            self.choices.append(
                ChoiceRow(
                    name=node.name,
                    segment=segment,
                    plan=best.name,
                    alone_s=best.seconds,
                    beaten_s={p.name: p.seconds for p in ranked[:MOST_PLANS]},
                )
            )
        label = plan if node.name == "reshard" else f"{node.name}={taken.name}"
        for inner in unwrapped(taken.nodes):
            if not (node.name == "reshard" and isinstance(inner, Choice)):
                self.walk(inner, segment, layers, label)
                continue
            listed = len(self.choices)
            self.walk(inner, segment, layers, label)
            del self.choices[listed:]

    def _written_out(self, node: Choice, plans: list[_Priced]) -> list[_Priced]:
        """Return the plans of a Choice; those of a reshard with their nested ways on written out."""
        if node.name != "reshard":
            return plans
        found: list[_Priced] = []
        for plan in plans:
            tail = plan.nodes[-1] if plan.nodes else None
            if not isinstance(tail, Choice):
                found.append(plan)
                continue
            first = self.seconds(self.pricer.price(plan.nodes[:-1]))
            ways = [_Priced(p.name, self.seconds(self.pricer.price(p.nodes)), p.nodes) for p in tail.plans]
            found += [_Priced(f"{plan.name} {p.name}", first + p.seconds, ()) for p in self._written_out(tail, ways)]
        return found
