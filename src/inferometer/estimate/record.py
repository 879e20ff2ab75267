"""Reads ops and choices back from a priced block, of some of its candidates, in the order they run.

Columns are read once for all candidates asked for; then each one's way through the choices is walked.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from inferometer.cost.backend import KnowsOps, basis_of
from inferometer.estimate.candidates import GROUP_OF
from inferometer.estimate.pick import Rows, Shape
from inferometer.estimate.pricer import Cost, Pricer
from inferometer.estimate.result import ChoiceRow, OpRow
from inferometer.graph.ops import Choice, Graph, Item, Message, Node, Work, unwrapped
from inferometer.specs.hardware import Axis

MOST_PLANS = 24
"""Plans of one Choice listed in full, the cheapest first."""


class Record(NamedTuple):
    """What a pass is made of."""

    ops: tuple[OpRow, ...]
    choices: tuple[ChoiceRow, ...]


class _Worked(NamedTuple):
    """An op, by candidate; seconds of the passes it has these counts in."""

    flops: list[float]
    replication: list[float]
    traffic_bytes: dict[str, list[float]]
    alone_s: list[float]
    compute_s: list[float]
    memory_s: list[float]
    basis: list[str]


class _Sent(NamedTuple):
    """A message, by candidate."""

    seconds: list[float]
    message_bytes: list[float]
    ranks: list[float]
    algorithms: list[str]
    basis: list[str]


class _Way(NamedTuple):
    """A plan of a Choice that is allowed, by candidate."""

    name: str
    seconds: list[float]
    legal: list[float] | None
    before: list[float]
    """Seconds up to a Choice that ends it."""
    nodes: tuple[Item, ...]


class _Priced(NamedTuple):
    """A plan as one candidate has it."""

    name: str
    seconds: float
    before: float
    nodes: tuple[Item, ...]


class Reader:
    """Reads candidates of a priced block of one batch a sharding, in the order of `at`."""

    def __init__(self, pricer: Pricer, graph: Graph, at: Rows) -> None:
        self.pricer = pricer
        self.graph = graph
        self.at = at
        self._worked: dict[int, _Worked] = {}
        self._sent: dict[int, _Sent] = {}
        self._ways: dict[int, list[_Way]] = {}
        backend, self._chip = pricer.backend, pricer.machine.chip
        self._timed = backend.timed if isinstance(backend, KnowsOps) else None
        self._usual = basis_of(backend, self._chip)
        self._crossing: dict[tuple[Axis, ...], str] = {}

    def read(self, candidate: int, times: Iterable[float], residual: str) -> Record:
        """Return every op and Choice of one candidate, under one residual layout.

        `times` counts segments over the model.
        """
        walk = _Walk(self, candidate)
        for segment, count in zip(self.graph.segments, times, strict=True):
            if count:
                for node in unwrapped((*segment.nodes, *segment.edges[residual])):
                    walk.go(node, segment.name, int(count), "")
        return Record(tuple(walk.ops), tuple(walk.choices))

    def seconds(self, cost: Cost) -> list[float]:
        """Return the seconds of ops and messages one after another, by candidate."""
        along = self.pricer.spaces.positions(cost.space, self.at)
        work, network = self.at.values(cost.busy.work_s, along), self.at.values(cost.busy.network_s, along)
        return [a + b for a, b in zip(work, network, strict=True)]

    def worked(self, node: Work) -> _Worked:
        """Return an op's counts and seconds."""
        found = self._worked.get(id(node))
        if found is None:
            busy, values = self.pricer.price_node(node).busy, self.at.values
            found = self._worked[id(node)] = _Worked(
                values(node.flops),
                values(node.replication),
                {str(k): values(v) for k, v in node.traffic_bytes.items()},
                values(busy.work_s),
                values(busy.compute_s),
                values(busy.memory_s),
                self._basis(node),
            )
        return found

    def _basis(self, node: Work) -> list[str]:
        """Return an op's basis."""
        if self._timed is None:
            return [self._usual] * len(self.at.rows)
        near = self.at.values(np.asarray(self._timed(node, self._chip), dtype=np.float64))
        return ["measured" if one else self._usual for one in near]

    def _link_basis(self, node: Message) -> list[str]:
        """Return a message's basis: that of the axes it crosses."""
        pricer, at = self.pricer, self.at
        placements, axes = pricer.placements, pricer.machine.fabric.axes
        slot = placements.slots[GROUP_OF[node.role]][pricer.block.pairs[at.placements, at.rows]]
        signature = placements.slot_signatures[node.role][slot, pricer.block.sharding[at.rows]].tolist()
        known = {}
        for one in set(signature):
            spans = placements.signatures[node.role][one]
            crossed = tuple(axis for (factor, _), axis in zip(spans, axes, strict=True) if factor > 1)
            if crossed not in self._crossing:
                self._crossing[crossed] = basis_of(pricer.backend, self._chip, crossed)
            known[one] = self._crossing[crossed]
        return [known[one] for one in signature]

    def sent(self, node: Message) -> _Sent:
        """Return what a message takes."""
        found = self._sent.get(id(node))
        if found is None:
            found = self._sent[id(node)] = _Sent(
                self.seconds(self.pricer.price_node(node)),
                self.at.values(node.message_bytes),
                self.at.values(self.pricer.group_sizes[node.role]),
                self.pricer.algorithms(node, self.at),
                self._link_basis(node),
            )
        return found

    def ways(self, node: Choice) -> list[_Way]:
        """Return the plans of a Choice that are allowed."""
        found = self._ways.get(id(node))
        if found is None:
            allowed = self.pricer.allows.get(node.name)
            found = self._ways[id(node)] = [
                _Way(
                    plan.name,
                    self.seconds(self.pricer.price(plan.nodes)),
                    None if plan.legal is None else self.at.values(np.asarray(plan.legal, dtype=np.float64)),
                    self.seconds(self.pricer.price(plan.nodes[:-1])),
                    plan.nodes,
                )
                for plan in node.plans
                if allowed is None or plan.name in allowed
            ]
        return found


class _Walk:
    """One candidate's way through a graph."""

    def __init__(self, reader: Reader, candidate: int) -> None:
        self.reader = reader
        self.candidate = candidate
        self.ops: list[OpRow] = []
        self.choices: list[ChoiceRow] = []

    def go(self, node: Node, segment: str, layers: int, plan: str) -> None:
        """List a node: an op, a message that takes time, or a Choice with what it takes."""
        if isinstance(node, Work):
            self.ops.append(self._work(node, segment, layers, plan))
        elif isinstance(node, Message):
            row = self._message(node, segment, layers)
            if row is not None:
                self.ops.append(row)
        else:
            self._choice(node, segment, layers, plan)

    def _work(self, node: Work, segment: str, layers: int, plan: str) -> OpRow:
        worked, at, share = self.reader.worked(node), self.candidate, node.share
        return OpRow(
            name=node.name,
            kind=str(node.kind),
            segment=segment,
            layers=layers,
            shape=Shape(node.shape, node.sizes, int(self.reader.at.rows[at])),
            dtype=node.dtype,
            flops=worked.flops[at],
            replication=worked.replication[at],
            traffic_bytes={kind: moved[at] for kind, moved in worked.traffic_bytes.items()},
            alone_s=worked.alone_s[at] / share,
            compute_s=worked.compute_s[at] / share,
            memory_s=worked.memory_s[at] / share,
            network_s=0.0,
            share=share,
            plan=plan,
            basis=worked.basis[at],
        )

    def _message(self, node: Message, segment: str, layers: int) -> OpRow | None:
        sent, at = self.reader.sent(node), self.candidate
        seconds = sent.seconds[at]
        if seconds == 0:
            return None
        return OpRow(
            name=node.name if "(" in node.name else f"{node.name}({node.role})",
            kind=str(node.kind),
            segment=segment,
            layers=layers,
            shape=Shape(f"{node.role} x {sent.ranks[at]:.0f}"),
            dtype="",
            flops=0.0,
            replication=1.0,
            traffic_bytes={"message": sent.message_bytes[at]},
            alone_s=seconds,
            compute_s=0.0,
            memory_s=0.0,
            network_s=seconds,
            share=1.0,
            plan=sent.algorithms[at],
            basis=sent.basis[at],
        )

    def _choice(self, node: Choice, segment: str, layers: int, plan: str) -> None:
        plans = self._plans(node)
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
                self.go(inner, segment, layers, label)
                continue
            listed = len(self.choices)
            self.go(inner, segment, layers, label)
            del self.choices[listed:]

    def _plans(self, node: Choice) -> list[_Priced]:
        at = self.candidate
        ways = self.reader.ways(node)
        return [_Priced(w.name, w.seconds[at], w.before[at], w.nodes) for w in ways if w.legal is None or w.legal[at]]

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
            ways = self._written_out(tail, self._plans(tail))
            found += [_Priced(f"{plan.name} {on.name}", plan.before + on.seconds, 0.0, ()) for on in ways]
        return found
