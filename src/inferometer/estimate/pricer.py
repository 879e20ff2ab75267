"""Prices the nodes of a graph for a block of rows and placements.

Shapes: m shardings, G batches, S slots of a role group, P placements, A lines of a collective. Work is priced once
a row, (m, G). A message is priced once a slot of its group and row, (S, m, G), and stays there as long as sums and
Choices stay within the group; where both groups meet, values are gathered to (P, m, G). A Choice takes the cheapest
legal plan of each candidate. Sums run in node order, so a block of one gives the same bits as a block of many.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from inferometer.cost.backend import CostBackend
from inferometer.cost.collectives import envelope_table, merged_line
from inferometer.cost.schedulers import Busy, on_branch
from inferometer.estimate.candidates import GROUP_OF, GROUPS, Block, Index, Placements
from inferometer.estimate.pick import PLACED, Rows
from inferometer.graph.ops import (
    NONE,
    Branch,
    Choice,
    Column,
    Graph,
    Item,
    Mask,
    Message,
    Node,
    Plan,
    Traffic,
    Work,
    unwrapped,
)
from inferometer.specs.hardware import Machine

ZERO = NONE
"""No time at all; sums skip it."""


class Cost(NamedTuple):
    """Busy seconds, and the space their three-dimensional columns live in: a group, `all`, or nothing but rows."""

    busy: Busy
    space: str = "rows"


PLAIN = Busy._fields.index("left_s")
"""Fields of `Busy` that are told of every op, branch or not."""

NOTHING = Cost(Busy(ZERO, ZERO, ZERO, ZERO))


def add(a: Column, b: Column) -> Column:
    """Return a + b, skipping the shared zero."""
    if a is ZERO:
        return b
    return a if b is ZERO else a + b


def summed(a: Busy, b: Busy, *, forks: bool) -> Busy:
    """Return a + b; what is told by branch only where branches are told apart."""
    return Busy(*map(add, a, b)) if forks else Busy(*map(add, a[:PLAIN], b[:PLAIN]))


def network_only(busy: Busy) -> bool:
    """Return whether only messages take time, and on no branch."""
    return busy.work_s is ZERO and busy.memory_s is ZERO and busy.compute_s is ZERO and busy.fork_network_s is ZERO


class OwnSlots(NamedTuple):
    """A role's own slots: its group's slots, with those where it lies alike taken as one."""

    signature: Index
    """(s, m) signature by own slot; past a sharding's own, its first again."""
    slot: Index
    """(S, m) own slot by slot of the group."""
    sizes: Index
    """(m,) own slots."""


def own_slots(signature: Index) -> OwnSlots:
    """Return a role's own slots from its signatures by slot of the group, (S, m)."""
    column = np.arange(signature.shape[1])
    at = np.argsort(signature, axis=0, kind="stable") * len(column) + column
    ranked = signature.take(at)
    rank = np.zeros_like(ranked)
    np.cumsum(ranked[1:] != ranked[:-1], axis=0, out=rank[1:])
    slot = np.empty_like(rank)
    slot.put(at, rank)
    count = rank[-1] + 1
    own = np.tile(signature[:1], (int(count.max()), 1))
    own.put(rank * len(column) + column, ranked)
    return OwnSlots(own, slot, count)


class LinkTables:
    """Collectives' lines by (role, kind), for every signature a role takes; built when first asked for."""

    def __init__(self, placements: Placements, machine: Machine, backend: CostBackend) -> None:
        self._placements = placements
        self._fabric = machine.fabric
        self._rates = [backend.link(axis) for axis in machine.fabric.axes]
        self._tables: dict[tuple[str, str], tuple[Column, Column, Index, list[list[str]]]] = {}
        self._own: dict[str, OwnSlots] = {}
        self._merged: dict[tuple[str, str], tuple[Column, Column, Column, Column]] = {}

    def merged(self, role: str) -> tuple[Column, Column, Column, Column]:
        """Return alpha, inner and outer beta and parts of a merged all-to-all, (signatures,); alpha inf where none."""
        key = (role, "merged")
        if key not in self._merged:
            found = [merged_line(x, self._fabric, self._rates) for x in self._placements.signatures[role]]
            lines = [(np.inf, 0.0, 0.0, 1.0) if line is None else line for line in found]
            alpha, inner, outer, parts = np.array(lines, dtype=np.float64).reshape(-1, 4).T
            self._merged[key] = (alpha, inner, outer, parts)
        return self._merged[key]

    def own(self, role: str) -> OwnSlots:
        """Return a role's own slots, over all shardings."""
        if role not in self._own:
            self._own[role] = own_slots(self._placements.slot_signatures[role])
        return self._own[role]

    def lines(self, role: str, kind: str) -> tuple[Column, Column, Index, list[list[str]]]:
        """Return alpha and beta of shape (A, signatures), how many lines each has, and the algorithms' names."""
        key = (role, kind)
        if key not in self._tables:
            signatures = self._placements.signatures[role]
            alpha, beta, names = envelope_table(kind, signatures, self._fabric, self._rates)
            self._tables[key] = (alpha, beta, np.isfinite(alpha).sum(axis=0), names)
        return self._tables[key]


class Spaces:
    """Where a block's candidates lie: slots in use a group, and how to gather a group's columns to all placements."""

    def __init__(self, block: Block, placements: Placements) -> None:
        m = len(block.sharding)
        self._slots: dict[str, int] = {}
        self._gather: dict[str, Index | None] = {}
        for group in GROUPS:
            slot = placements.slots[group][block.pairs]
            count = int(slot.max()) + 1
            same = count == slot.shape[0] and bool((slot == np.arange(count)[:, None]).all())
            self._slots[group] = count
            self._gather[group] = None if same or count == 1 else slot * m + np.arange(m)

    def slots(self, group: str) -> int:
        """Return the slots of a group that the block uses."""
        return self._slots[group]

    def positions(self, space: str, at: Rows) -> Index | int:
        """Return where the placements of rows lie along a space's first axis."""
        index = self._gather.get(space)
        if index is not None:
            found: Index = index[at.placements, at.rows] // index.shape[1]
            return found
        return 0 if self._slots.get(space) == 1 else at.placements

    def to_all(self, cost: Cost) -> Busy:
        """Return a cost's columns gathered to (P, m, G); columns over rows alone stay as they are."""
        index = self._gather.get(cost.space)
        if index is None:
            return cost.busy
        return Busy(*(gathered(x, index) if x.ndim == PLACED else x for x in cost.busy))

    def common(self, a: Cost, b: Cost) -> tuple[Busy, Busy, str]:
        """Return two costs' columns in one space, and that space."""
        if b.space in (a.space, "rows"):
            return a.busy, b.busy, a.space
        if a.space == "rows":
            return a.busy, b.busy, b.space
        return self.to_all(a), self.to_all(b), "all"


def gathered(column: Column, index: Index) -> Column:
    """Return (S, m, G) gathered to (P, m, G), whole batches at a time; one slot stands for all."""
    return column if len(column) == 1 else column.reshape(-1, column.shape[2]).take(index, axis=0)


def total(busy: Busy) -> Column:
    """Return the seconds of ops and messages one after another."""
    return add(busy.work_s, busy.network_s)


@dataclass(slots=True)
class Pricer:
    """Prices one block. Nodes that a graph shares are priced once."""

    block: Block
    placements: Placements
    links: LinkTables
    machine: Machine
    backend: CostBackend
    allows: Mapping[str, tuple[str, ...]]
    """Engine masks: choice -> the plans it can run."""
    group_sizes: Mapping[str, Column]
    """Role -> ranks, a column over rows; roles of size 1 cost nothing."""
    steady: bool = False
    """Whether ops are also priced with their weights already on chip."""
    forks: Literal["no", "free", "all"] = "no"
    """What is told by branch: nothing, nodes that no Choice is made of, or all."""
    left: Counter[int] = field(default_factory=Counter)
    """Node, by its id -> times it will be asked for: kept until the last, and for good where that is not told."""
    spaces: Spaces = field(init=False)
    _busy_roles: set[str] = field(init=False)
    _memo: dict[int, Cost] = field(default_factory=dict)
    _lines: dict[tuple[str, str], tuple[Column, Column, Index | None]] = field(default_factory=dict)
    _own: dict[str, tuple[Index, Index | None]] = field(default_factory=dict)
    _parts: dict[str, tuple[Column, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Work out the block's spaces, and which roles have more than one rank anywhere in it."""
        self.spaces = Spaces(self.block, self.placements)
        self._busy_roles = {role for role, ranks in self.group_sizes.items() if ranks.max() > 1}

    def add(self, a: Cost, b: Cost) -> Cost:
        """Return a + b."""
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        left, right, space = self.spaces.common(a, b)
        if network_only(left) and network_only(right):
            return Cost(Busy(ZERO, ZERO, ZERO, left.network_s + right.network_s), space)
        return Cost(summed(left, right, forks=self.forks != "no"), space)

    def price(
        self, items: tuple[Item, ...], kept: Callable[[Cost], Cost] | None = None, *, chosen: bool = False
    ) -> Cost:
        """Return the cost of nodes run one after another, and how much of it is on which branch.

        `kept` is what is wanted of each node's cost, all of it unless told; `chosen`: they are a plan of a Choice.
        """
        cost = NOTHING
        for item in items:
            for node in unwrapped((item,)):
                one = self.price_node(node)
                told = self.forks == "all" or (self.forks == "free" and not chosen and not isinstance(node, Choice))
                if told and one is not NOTHING and isinstance(item, Branch):
                    one = Cost(on_branch(one.busy, item.side), one.space)
                cost = self.add(cost, one if kept is None else kept(one))
        return cost

    def price_node(self, node: Node) -> Cost:
        """Return the cost of one node."""
        key = id(node)
        cost = self._memo.pop(key, None) or self._priced(node)
        self.left[key] -= 1
        if self.left[key]:
            self._memo[key] = cost
        return cost

    def _priced(self, node: Node) -> Cost:
        if isinstance(node, Work):
            return self._work(node)
        return self._message(node) if isinstance(node, Message) else self._choice(node)

    def _work(self, node: Work) -> Cost:
        price = self.backend.price(node, self.machine.chip)
        steady_s = self.backend.price(without_weights(node), self.machine.chip).total_s if self.steady else ZERO
        parts = [x if x.ndim or x != 0 else ZERO for x in (*price, steady_s)]
        if node.share != 1.0:
            parts = [x if x is ZERO else x * node.share for x in parts]
        compute_s, memory_s, alone_s, steady_s = parts
        return Cost(Busy(compute_s, memory_s, alone_s, ZERO, steady_s))

    def _message(self, node: Message) -> Cost:
        if node.role not in self._busy_roles:
            return NOTHING
        if node.merged_bytes is not None:
            return self._merged_message(node, node.merged_bytes)
        alpha, beta, index = self._slot_lines(node.role, node.kind)
        best = node.message_bytes * beta[0]
        best += alpha[0]
        line = np.empty_like(best) if len(alpha) > 1 else best
        for a, b in zip(alpha[1:], beta[1:], strict=True):
            np.multiply(node.message_bytes, b, out=line)
            line += a
            np.minimum(best, line, out=best)
        seconds = best if index is None else best.reshape(-1, best.shape[2]).take(index, axis=0)
        return Cost(Busy(ZERO, ZERO, ZERO, seconds), GROUP_OF[node.role])

    def _merged_message(self, node: Message, merged_bytes: Callable[[Column], Column]) -> Cost:
        signature, index = self._own_slots(node.role)
        if node.role not in self._parts:
            self._parts[node.role] = tuple(column[signature, None] for column in self.links.merged(node.role))
        alpha, inner, outer, parts = self._parts[node.role]
        if np.isinf(alpha).all():
            return Cost(Busy(ZERO, ZERO, ZERO, alpha if index is None else alpha[:1]), GROUP_OF[node.role])
        seconds = np.maximum(node.message_bytes * inner, merged_bytes(parts) * outer) + alpha
        if index is not None:
            seconds = seconds.reshape(-1, seconds.shape[2]).take(index, axis=0)
        return Cost(Busy(ZERO, ZERO, ZERO, seconds), GROUP_OF[node.role])

    def _slot_lines(self, role: str, kind: str) -> tuple[Column, Column, Index | None]:
        """Return alpha and beta by the role's own slots and sharding, (A, s, m, 1), and how to gather to its group."""
        key = (role, kind)
        if key not in self._lines:
            signature, index = self._own_slots(role)
            alpha, beta, lines, _ = self.links.lines(role, kind)
            used = int(lines.take(signature).max())
            alpha, beta = (column[:used].take(signature, axis=1)[..., None] for column in (alpha, beta))
            self._lines[key] = (alpha, beta, index)
        return self._lines[key]

    def _own_slots(self, role: str) -> tuple[Index, Index | None]:
        """Return the signatures of a role's own slots in this block, (s, m), and the flat index to its group's slots.

        With one own slot, or as many as the group has, there is nothing to gather.
        """
        if role not in self._own:
            at, slots = self.block.sharding, self.spaces.slots(GROUP_OF[role])
            own = self.links.own(role)
            count = int(own.sizes[at].max())
            if count >= slots:
                self._own[role] = (self.placements.slot_signatures[role][:slots, at], None)
            else:
                flat = own.slot[:slots, at] * len(at) + np.arange(len(at))
                self._own[role] = (own.signature[:count, at], None if count == 1 else flat)
        return self._own[role]

    def _choice(self, node: Choice) -> Cost:
        allowed = self.allows.get(node.name, [plan.name for plan in node.plans])
        best: Cost | None = None
        for plan in node.plans:
            if plan.name not in allowed or plan.never_beats in allowed:
                continue
            cost = self.price(plan.nodes, chosen=True)
            best = cost if best is None else self.cheaper(best, cost, plan)
        if best is None:
            raise AssertionError(f"the engine allows no plan of {node.name}")
        return best

    def algorithms(self, node: Message, at: Rows) -> list[str]:
        """Return the names of the algorithms a message takes at rows (of one batch)."""
        if node.merged_bytes is not None:
            return ["merged"] * len(at.rows)
        alpha, beta, _, names = self.links.lines(node.role, node.kind)
        slot = self.placements.slots[GROUP_OF[node.role]][self.block.pairs[at.placements, at.rows]]
        signature = self.placements.slot_signatures[node.role][slot, self.block.sharding[at.rows]]
        lines = alpha[:, signature] + np.array(at.values(node.message_bytes)) * beta[:, signature]
        return [names[line][one] for line, one in zip(lines.argmin(axis=0).tolist(), signature.tolist(), strict=True)]

    def cheaper(self, a: Cost, b: Cost, plan: Plan | None = None) -> Cost:
        """Return the cheaper of two by candidate; the first where they tie, or where plan b is illegal."""
        left, right, space = self.spaces.common(a, b)
        if (plan is None or plan.legal is None) and network_only(left) and network_only(right):
            if left.network_s is ZERO or right.network_s is ZERO:
                return NOTHING
            return Cost(Busy(ZERO, ZERO, ZERO, np.minimum(left.network_s, right.network_s)), space)
        take = total(right) < total(left)
        if plan is not None and plan.legal is not None:
            take = take & plan.legal
        if not take.any():
            return a
        return b if take.all() else Cost(select(take, right, left), space)


def asked_for(graph: Graph) -> Counter[int]:
    """Return how often each node of a graph is asked for, by its id; those of a Choice once, when it is priced."""
    found: Counter[int] = Counter()

    def count(items: Iterable[Item]) -> None:
        for node in unwrapped(items):
            found[id(node)] += 1
            if isinstance(node, Choice) and found[id(node)] == 1:
                for plan in node.plans:
                    count(plan.nodes)

    for segment in graph.segments:
        for items in (segment.nodes, *segment.edges.values()):
            count(items)
    return found


def without_weights(work: Work) -> Work:
    """Return an op whose weights need no reading."""
    traffic_bytes: dict[Traffic, Column] = {Traffic.ACTIVATIONS: NONE, **work.traffic_bytes}
    traffic_bytes.pop(Traffic.WEIGHTS, None)
    return replace(work, traffic_bytes=traffic_bytes)


def select(take: Mask, a: Busy, b: Busy) -> Busy:
    """Return a where `take`, else b."""
    return Busy(*(x if x is y else np.where(take, x, y) for x, y in zip(a, b, strict=True)))
