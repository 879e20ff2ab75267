"""Reads ops and choices back from a priced block of one candidate, in the order they run."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from inferometer.estimate.pricer import Pricer, total
from inferometer.estimate.result import ChoiceRow, OpRow
from inferometer.graph.ops import Choice, Column, Graph, Message, Node, Work

MOST_PLANS = 24
"""Plans of one Choice listed in full, the cheapest first."""


class Record(NamedTuple):
    """What a pass is made of."""

    ops: tuple[OpRow, ...]
    choices: tuple[ChoiceRow, ...]


def scalar(column: Column) -> float:
    """Return the one value of a column of one candidate."""
    return float(np.asarray(column).reshape(-1)[0])


def read_record(graph: Graph, pricer: Pricer, times: Iterable[float], residual: str) -> Record:
    """Return every op and Choice of a graph under one residual layout; `times` counts segments over the model."""
    reader = _Reader(pricer)
    for segment, count in zip(graph.segments, times, strict=True):
        if count:
            for node in (*segment.nodes, *segment.edges[residual]):
                reader.walk(node, segment.name, int(count), "")
    return Record(tuple(reader.ops), tuple(reader.choices))


class _Reader:
    def __init__(self, pricer: Pricer) -> None:
        self.pricer = pricer
        self.ops: list[OpRow] = []
        self.choices: list[ChoiceRow] = []

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
            shape=node.shape,
            dtype=node.dtype,
            flops=scalar(node.flops),
            replication=scalar(node.replication),
            traffic_bytes={str(k): scalar(v) for k, v in node.traffic_bytes.items()},
            seconds=scalar(busy.work_s) / share,
            compute_s=scalar(busy.compute_s) / share,
            memory_s=scalar(busy.memory_s) / share,
            network_s=0.0,
            share=share,
            plan=plan,
        )

    def _message(self, node: Message, segment: str, layers: int) -> OpRow | None:
        seconds = scalar(self.pricer.price_node(node).busy.network_s)
        if seconds == 0:
            return None
        size = scalar(node.message_bytes)
        return OpRow(
            name=f"{node.name}" if "(" in node.name else f"{node.name}({node.role})",
            kind=str(node.kind),
            segment=segment,
            layers=layers,
            shape=f"{node.role} x {scalar(self.pricer.group_sizes[node.role]):.0f}",
            dtype="",
            flops=0.0,
            replication=1.0,
            traffic_bytes={"message": size},
            seconds=seconds,
            compute_s=0.0,
            memory_s=0.0,
            network_s=seconds,
            share=1.0,
            plan=self.pricer.algorithm(node),
        )

    def _choice(self, node: Choice, segment: str, layers: int, plan: str) -> None:
        priced = self._plans(node)
        if not priced:
            return
        best = min(priced, key=lambda p: p.seconds)
        distinct = {p.seconds for p in priced}
        if len(priced) > 1 and (len(distinct) > 1 or best.seconds > 0):
            ranked = sorted((p for p in priced if p is not best), key=lambda p: p.seconds)
            self.choices.append(
                ChoiceRow(
                    name=node.name,
                    segment=segment,
                    plan=best.name,
                    seconds=best.seconds,
                    beaten={p.name: p.seconds for p in ranked[:MOST_PLANS]},
                )
            )
        taken = self._taken(node)
        label = "" if node.name == "reshard" else f"{node.name}={taken.name}"
        for inner in taken.nodes:
            self.walk(inner, segment, layers, label or plan)

    def _taken(self, node: Choice) -> "_Priced":
        """Return the plan that pricing took: the first of the cheapest that the engine allows."""
        allowed = self.pricer.allows.get(node.name)
        plans = [p for p in node.plans if allowed is None or p.name in allowed]
        costs = [_Priced(p.name, scalar(total(self.pricer.price(p.nodes).busy)), p.nodes) for p in plans]
        return min(costs, key=lambda p: p.seconds)

    def _plans(self, node: Choice) -> "list[_Priced]":
        """Return every plan of a Choice; a reshard's with its nested ways on written out."""
        allowed = self.pricer.allows.get(node.name)
        found: list[_Priced] = []
        for plan in node.plans:
            if allowed is not None and plan.name not in allowed:
                continue
            seconds = scalar(total(self.pricer.price(plan.nodes).busy))
            tail = plan.nodes[-1] if node.name == "reshard" and plan.nodes else None
            if isinstance(tail, Choice):
                first = scalar(total(self.pricer.price(plan.nodes[:-1]).busy))
                found += [_Priced(f"{plan.name} {p.name}", first + p.seconds, ()) for p in self._plans(tail)]
            else:
                found.append(_Priced(plan.name, seconds, plan.nodes))
        return found


class _Priced(NamedTuple):
    name: str
    seconds: float
    nodes: tuple[Node, ...]
