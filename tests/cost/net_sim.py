"""A small network that carries real chunks, step by step, to test the closed forms of collectives against.

Chips have coordinates; a send goes along one axis. A step takes the latency of its slowest axis, and the time of
its fullest link or port. Numbers are fractions, S is 1 byte: an algorithm's alpha and beta come out exact.

A chip holds pieces, each with the set of chips whose contribution is in it. A send needs the piece to be there, and
adding needs the contributions to be disjoint: a schedule that ends with the right holdings is a correct algorithm.
Every chunk has two halves, so that a ring can send one each way.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import product, zip_longest
from typing import Literal, NamedTuple

import pytest

from inferometer.cost.collectives import Line, LinkRate, collective_lines
from inferometer.cost.groups import Signature
from inferometer.specs.hardware import Axis, Fabric, Geometry

Chip = tuple[int, ...]
HALVES = (0, 1)


class Dim(NamedTuple):
    """One axis: bytes_per_s of a link (ring, line, mesh) or of a port (switch, pcie), per direction."""

    geometry: Geometry
    n: int
    bytes_per_s: Fraction = Fraction(1)
    alpha_s: Fraction = Fraction(1)
    capable: bool = False


class Piece(NamedTuple):
    """Half a chunk: the part of the array that an algorithm treats alike, whose chunk, for whom (all-to-all)."""

    part: int
    owner: Chip
    half: int
    to: Chip = ()


class Send(NamedTuple):
    """Pieces from chip to chip along an axis; `way` tells a ring's two directions apart."""

    src: Chip
    dst: Chip
    axis: int
    way: int
    pieces: tuple[Piece, ...]


Net = tuple[Dim, ...]
Step = list[Send]
State = dict[Chip, dict[Piece, frozenset[Chip]]]
Mode = Literal["copy", "add", "add-keep", "move"]
Hop = tuple[int, int, int, int, tuple[int, ...]]
"""From index, to index, way, whose chunk, which halves."""
Schedule = Callable[[int], list[list[Hop]]]


class Cost(NamedTuple):
    """What a schedule took."""

    alpha_s: Fraction
    beta_s: Fraction
    busiest_s: Fraction
    """What the fullest link or port carried in all: the time if nothing ever waited."""


def fabric_of(net: Net) -> tuple[Fabric, tuple[LinkRate, ...]]:
    """The same network as the project describes it."""
    axes = tuple(
        Axis(
            name=f"x{i}",
            geometry=d.geometry,
            size=d.n,
            bytes_per_s=float(d.bytes_per_s),
            latency_s=float(d.alpha_s),
            multicast=d.capable,
            reduces=d.capable,
        )
        for i, d in enumerate(net)
    )
    return Fabric(axes=axes), tuple(LinkRate(a.latency_s, a.bytes_per_s) for a in axes)


def chips(net: Net) -> list[Chip]:
    """Every chip."""
    return list(product(*(range(d.n) for d in net)))


def moved(chip: Chip, axis: int, to: int) -> Chip:
    """The chip at another position of an axis."""
    return (*chip[:axis], to, *chip[axis + 1 :])


# Schedules of an all-gather on one axis.


def ring(n: int) -> list[list[Hop]]:
    """One way round: pass on what came last."""
    return [[(r, (r + 1) % n, 1, (r - t) % n, HALVES) for r in range(n)] for t in range(n - 1)]


def bidirectional(n: int) -> list[list[Hop]]:
    """Both ways round; the opposite chunk of an even ring comes half from each side."""
    steps: list[list[Hop]] = []
    for t in range(n // 2):
        opposite = n % 2 == 0 and t == n // 2 - 1
        right, left = ((0,), (1,)) if opposite else (HALVES, HALVES)
        steps.append(
            [(r, (r + 1) % n, 1, (r - t) % n, right) for r in range(n)]
            + [(r, (r - 1) % n, -1, (r + t) % n, left) for r in range(n)]
        )
    return steps


def line(n: int) -> list[list[Hop]]:
    """Everything on to the right and to the left until the ends."""
    return [
        [(r, r + 1, 1, r - t, HALVES) for r in range(t, n - 1)]
        + [(r, r - 1, -1, r + t, HALVES) for r in range(1, n - t)]
        for t in range(n - 1)
    ]


def direct(n: int) -> list[list[Hop]]:
    """Everyone to everyone."""
    return [[(r, q, 0, r, HALVES) for r in range(n) for q in range(n) if q != r]]


def strides(n: int) -> list[Schedule]:
    """For prime n, the n-1 rings r -> r+k mod n: together they use every link of a mesh once."""

    def stride_ring(k: int) -> Schedule:
        return lambda n: [[(r, (r + k) % n, 0, (r - k * t) % n, HALVES) for r in range(n)] for t in range(n - 1)]

    return [stride_ring(k) for k in range(1, n)]


# Programs on the whole network.


def gather_steps(net: Net, plan: Iterable[tuple[int, Schedule]], part: int = 0) -> list[Step]:
    """All-gather along axis after axis, all rows of an axis at once."""
    held = {c: {Piece(part, c, h) for h in HALVES} for c in chips(net)}
    steps: list[Step] = []
    for axis, schedule in plan:
        bundle = {c: tuple(sorted(p)) for c, p in held.items()}
        rows = [c for c in held if c[axis] == 0]
        for hops in schedule(net[axis].n):
            steps.append([])
            for row, (i, j, way, whose, halves) in product(rows, hops):
                pieces = tuple(p for p in bundle[moved(row, axis, whose)] if p.half in halves)
                steps[-1].append(Send(moved(row, axis, i), moved(row, axis, j), axis, way, pieces))
        for c in held:
            held[c] = {p for q in range(net[axis].n) for p in bundle[moved(c, axis, q)]}
    return steps


def backwards(steps: list[Step]) -> list[Step]:
    """The reduce-scatter of an all-gather: every send returned, last first."""
    return [[Send(x.dst, x.src, x.axis, -x.way, x.pieces) for x in step] for step in reversed(steps)]


def together(programs: Iterable[list[Step]]) -> list[Step]:
    """Programs side by side, in lock-step."""
    return [[x for step in steps for x in step] for steps in zip_longest(*programs, fillvalue=[])]


def exchange_steps(net: Net, order: Iterable[int]) -> list[Step]:
    """All-to-all axis by axis: every piece on towards its goal by the shortest way, one hop a step."""
    at: dict[Piece, Chip] = {Piece(0, a, h, b): a for a in chips(net) for b in chips(net) if a != b for h in HALVES}
    steps: list[Step] = []
    for axis in order:
        dim = net[axis]
        while waiting := [(p, c) for p, c in at.items() if c[axis] != p.to[axis]]:
            step: Step = []
            for piece, chip in waiting:
                way, to = _onwards(dim, chip[axis], piece.to[axis], piece.half)
                step.append(Send(chip, moved(chip, axis, to), axis, way, (piece,)))
                at[piece] = step[-1].dst
            steps.append(step)
    return steps


def _onwards(dim: Dim, here: int, goal: int, half: int) -> tuple[int, int]:
    """Way and next position. At the opposite side of a ring the halves part."""
    if dim.geometry == "line":
        way = 1 if goal > here else -1
        return way, here + way
    if dim.geometry != "ring":
        return 0, goal
    right = (goal - here) % dim.n
    way = 1 if 2 * right + half <= dim.n else -1
    return way, (here + way) % dim.n


# Running them.


def own(net: Net, parts: int = 1) -> State:
    """Everyone holds its own chunk of every part: before an all-gather."""
    return {c: {Piece(p, c, h): frozenset([c]) for p in range(parts) for h in HALVES} for c in chips(net)}


def everything(net: Net, parts: int = 1) -> State:
    """Everyone holds its version of every chunk: before a reduce-scatter."""
    keys = [Piece(p, o, h) for p in range(parts) for o in chips(net) for h in HALVES]
    return {c: dict.fromkeys(keys, frozenset([c])) for c in chips(net)}


def outbox(net: Net) -> State:
    """Everyone holds a piece for everyone: before an all-to-all."""
    return {a: {Piece(0, a, h, b): frozenset([a]) for b in chips(net) for h in HALVES if b != a} for a in chips(net)}


def execute(net: Net, steps: Iterable[Step], state: State, piece_bytes: Fraction, mode: Mode) -> Cost:
    """Carry out the sends, changing `state`; what arrives in a step can leave in the next."""
    alpha = beta = Fraction(0)
    total: dict[tuple[object, ...], Fraction] = defaultdict(Fraction)
    for step in steps:
        load: dict[tuple[object, ...], Fraction] = defaultdict(Fraction)
        for x in step:
            for used in _uses(net, x):
                load[used] += len(x.pieces) * piece_bytes / net[x.axis].bytes_per_s
        alpha += max(net[x.axis].alpha_s for x in step)
        beta += max(load.values())
        for used, seconds in load.items():
            total[used] += seconds
        _deliver(step, state, mode)
    return Cost(alpha, beta, max(total.values()))


def _uses(net: Net, x: Send) -> tuple[tuple[object, ...], ...]:
    """The links or ports a send occupies."""
    geometry = net[x.axis].geometry
    if geometry in ("switch", "pcie"):
        return (("out", x.axis, x.src), ("in", x.axis, x.dst))
    if geometry == "mesh":
        return (("link", x.axis, x.src, x.dst),)
    distance = (x.dst[x.axis] - x.src[x.axis]) * x.way
    allowed = (1, 1 - net[x.axis].n) if geometry == "ring" else (1,)
    assert distance in allowed, f"no link on a {geometry} for {x}"
    return (("link", x.axis, x.src, x.way),)


def _deliver(step: Step, state: State, mode: Mode) -> None:
    arrivals = [(x, p, state[x.src][p]) for x in step for p in x.pieces]
    if mode in ("add", "move"):
        for x, p, _ in arrivals:
            del state[x.src][p]
    for x, p, parts in arrivals:
        here = state[x.dst]
        if mode in ("add", "add-keep"):
            assert not here[p] & parts, "a contribution would be counted twice"
            here[p] |= parts
        else:
            assert p not in here or here[p] != parts, "sent in vain"
            here[p] = parts


def all_gathered(net: Net, state: State, parts: int = 1) -> bool:
    """Everyone has everyone's chunk."""
    want = {Piece(p, o, h): frozenset([o]) for p in range(parts) for o in chips(net) for h in HALVES}
    return all(held == want for held in state.values())


def reduce_scattered(net: Net, state: State, parts: int = 1) -> bool:
    """Everyone has the sum of its own chunk, and nothing else."""
    everyone = frozenset(chips(net))
    return all(held == {Piece(p, c, h): everyone for p in range(parts) for h in HALVES} for c, held in state.items())


def all_reduced(net: Net, state: State, parts: int = 1) -> bool:
    """Everyone has the sum of every chunk."""
    everyone = frozenset(chips(net))
    want = {Piece(p, o, h): everyone for p in range(parts) for o in chips(net) for h in HALVES}
    return all(held == want for held in state.values())


def exchanged(net: Net, state: State) -> bool:
    """Everyone has what the others had for it, and nothing else."""
    return all(
        held == {Piece(0, a, h, c): frozenset([a]) for a in chips(net) for h in HALVES if a != c}
        for c, held in state.items()
    )


def ports_in_switch(n: int) -> Iterator[Fraction]:
    """Bytes through every port of an all-reduce inside the switch, of a vector of n shards (S is 1)."""
    shard = Fraction(1, n)
    up: dict[int, Fraction] = defaultdict(Fraction)
    down: dict[int, Fraction] = defaultdict(Fraction)
    for owner in range(n):
        for rank in range(n):
            up[rank] += shard  # the switch reads this rank's part of the owner's shard
        down[owner] += shard  # the owner gets the sum
        up[owner] += shard  # and sends it once
        for rank in range(n):
            down[rank] += shard  # to everyone
    yield from (*up.values(), *down.values())


def packets_on_line(n: int, per_message: int) -> Fraction:
    """Time of an all-to-all on a line of unit links, every message (1/n byte) cut in packets, the farthest first.

    A link carries one packet a slot; both directions are mirror images, so only rightward ones are counted.
    """
    slot = Fraction(1, n * per_message)
    queues: list[list[int]] = [[b for b in range(a + 1, n) for _ in range(per_message)] for a in range(n)]
    slots = 0
    while any(queues):
        slots += 1
        leaving = [queue.pop(queue.index(max(queue))) if queue else None for queue in queues]
        for chip, goal in enumerate(leaving):
            if goal is not None and goal > chip + 1:
                queues[chip + 1].append(goal)
    return slots * slot


# What tests ask.

SCHEDULES: dict[str, tuple[str, Schedule]] = {
    "switch": ("direct", direct),
    "mesh": ("direct", direct),
    "ring": ("bidirectional-ring", bidirectional),
    "line": ("line", line),
}


def line_of(kind: str, net: Net, name: str, only: frozenset[str] | None = None) -> Line:
    """The line of an algorithm for a group of all chips."""
    fabric, rates = fabric_of(net)
    signature: Signature = tuple((d.n, 1) for d in net)
    lines = collective_lines(kind, signature, fabric, rates, only=only)
    found = [x for x in lines if x.algorithm == name]
    assert len(found) == 1, lines
    return found[0]


def assert_same(line: Line, alpha: Fraction, beta: Fraction) -> None:
    """A line is what a schedule took."""
    assert line.alpha_s == pytest.approx(float(alpha), rel=1e-12)
    assert line.s_per_byte == pytest.approx(float(beta), rel=1e-12)


def run_gather(net: Net, programs: list[list[Step]]) -> Cost:
    """All-gather: n chunks of two halves, in as many parts as programs, make the whole S = 1."""
    parts = len(programs)
    state = own(net, parts)
    piece = Fraction(1, parts * 2 * len(state))
    cost = execute(net, together(programs), state, piece, "copy")
    assert all_gathered(net, state, parts)
    return cost


def run_reduce(net: Net, programs: list[list[Step]]) -> tuple[Cost, Cost]:
    """Reduce-scatter, then all-gather, of S = 1: the costs of both."""
    parts = len(programs)
    state = everything(net, parts)
    piece = Fraction(1, parts * 2 * len(state))
    steps = together(programs)
    scatter = execute(net, backwards(steps), state, piece, "add")
    assert reduce_scattered(net, state, parts)
    gather = execute(net, steps, state, piece, "copy")
    assert all_reduced(net, state, parts)
    return scatter, gather
