"""Twisted tori, against chips that are wired one by one and messages that walk over the links."""

from collections import Counter, deque
from fractions import Fraction
from itertools import permutations, product
from math import prod

import pytest

from inferometer.cost.collectives import KINDS, LinkRate, collective_lines
from inferometer.cost.groups import legs
from inferometer.cost.twist import shortest_ways
from inferometer.specs.hardware import Axis, Fabric

TWISTED = {
    (2, 4): ((0, 2), (0, 0)),
    (4, 4, 8): ((0, 0, 4), (0, 0, 4), (0, 0, 0)),
    (4, 8, 4): ((0, 4, 0), (0, 0, 0), (0, 4, 0)),
    (4, 8, 8): ((0, 4, 4), (0, 0, 0), (0, 0, 0)),
}
RATE, STEP = 1e9, 1e-6


def plain(sizes):
    return tuple((0,) * len(sizes) for _ in sizes)


def beside(chip, axis, way, sizes, twist):
    """The chip at the other end of a link: over the edge of the box it comes out further along the others."""
    to = list(chip)
    to[axis] += way
    if not 0 <= to[axis] < sizes[axis]:
        to[axis] -= way * sizes[axis]
        to = [(c + way * t) % n for c, t, n in zip(to, twist[axis], sizes, strict=True)]
    return tuple(to)


def neighbours(chip, sizes, twist):
    return [(axis, way, beside(chip, axis, way, sizes, twist)) for axis in range(len(sizes)) for way in (1, -1)]


def link_loads(sizes, twist):
    """Messages over every link when every chip sends one to every other, shared evenly over all shortest paths."""
    load = Counter()
    for source in product(*map(range, sizes)):
        far, paths, order, queue = {source: 0}, Counter({source: 1}), [], deque([source])
        while queue:
            chip = queue.popleft()
            order.append(chip)
            for _, _, to in neighbours(chip, sizes, twist):
                if to not in far:
                    far[to] = far[chip] + 1
                    queue.append(to)
                if far[to] == far[chip] + 1:
                    paths[to] += paths[chip]
        flow = dict.fromkeys(order, 1.0)
        for chip in reversed(order[1:]):
            for axis, way, back in neighbours(chip, sizes, twist):
                if far[back] == far[chip] - 1:
                    share = flow[chip] * paths[back] / paths[chip]
                    load[back, axis, -way] += share
                    flow[back] += share
    return load, max(far.values())


def fabric(sizes, twist):
    axes = [Axis(name="xyz"[i], geometry="ring", size=n, bytes_per_s=RATE, latency_s=STEP) for i, n in enumerate(sizes)]
    return Fabric(axes=tuple(axes), twist=twist), [LinkRate(STEP, RATE)] * len(axes)


def lines(kind, signature, sizes, twist, only=None):
    return collective_lines(kind, signature, *fabric(sizes, twist), only=only)


def all_to_all(signature, sizes, twist):
    return min(lines("all-to-all", signature, sizes, twist), key=lambda line: line.s_per_byte)


@pytest.mark.parametrize("sizes", TWISTED)
def test_all_to_all_loads_every_link_alike_and_as_messages_do_that_take_every_shortest_path(sizes):
    load, farthest = link_loads(sizes, TWISTED[sizes])
    assert max(load.values()) == pytest.approx(min(load.values()))
    line = all_to_all(tuple((n, 1) for n in sizes), sizes, TWISTED[sizes])
    assert line.s_per_byte == pytest.approx(max(load.values()) / prod(sizes) / RATE)
    assert line.alpha_s == pytest.approx(farthest * STEP)


@pytest.mark.parametrize(("sizes", "measured"), [((4, 4, 8), 1.63), ((4, 8, 8), 1.31)])
def test_the_gain_over_a_plain_torus_is_six_percent_above_the_one_measured_on_tpu_v4(sizes, measured):
    """Jouppi et al. 2023, ISCA, figure 6: all-to-all throughput, large transfers of 4 KiB messages."""
    whole = tuple((n, 1) for n in sizes)
    plain_load, _ = link_loads(sizes, plain(sizes))
    before = all_to_all(whole, sizes, ()).s_per_byte
    assert before == pytest.approx(max(plain_load.values()) / prod(sizes) / RATE)
    gain = before / all_to_all(whole, sizes, TWISTED[sizes]).s_per_byte
    assert 0.93 < measured / gain < 0.95


@pytest.mark.parametrize("sizes", [(4, 4, 8), (4, 8, 8)])
def test_the_turns_of_a_twisted_slice_are_the_same_lattice_whichever_axes_are_exchanged(sizes):
    k = min(sizes)
    turns = [
        [n * (i == j) - t for j, t in enumerate(row)]
        for i, (n, row) in enumerate(zip(sizes, TWISTED[sizes], strict=True))
    ]
    box = range(-2 * k, 2 * k + 1, k)
    points = {tuple(sum(c * v for c, v in zip(cs, col, strict=True)) for col in zip(*turns, strict=True))
              for cs in product(range(-6, 7), repeat=3)}  # fmt: skip
    inside = {p for p in product(box, repeat=3) if p in points}
    even = {p for p in product(box, repeat=3) if sum(p) // k % 2 == 0}
    alike = {p for p in product(box, repeat=3) if len({c // k % 2 for c in p}) == 1}
    assert inside == (even if sizes == (4, 4, 8) else alike)
    assert all(tuple(p[i] for i in order) in inside for p in inside for order in permutations(range(3)))


def walk(chip, hops, strides, sizes, twist):
    """The links that a message takes which makes so many hops of a stride along each axis, and where it ends."""
    taken = []
    for axis, count in enumerate(hops):
        for _ in range(abs(count) * strides[axis]):
            way = 1 if count > 0 else -1
            taken.append((chip, axis, way))
            chip = beside(chip, axis, way, sizes, twist)
    return taken, chip


CLOSED = [
    ((4, 4, 8), ((4, 1), (4, 1), (8, 1))),
    ((4, 4, 8), ((2, 2), (2, 2), (4, 2))),
    ((4, 4, 8), ((4, 1), (2, 2), (8, 1))),
    ((4, 4, 8), ((4, 1), (1, 1), (8, 1))),
    ((4, 4, 8), ((4, 1), (1, 1), (2, 4))),
    ((4, 8, 8), ((2, 2), (2, 4), (4, 2))),
]
"""Groups whose turns all stay inside."""


@pytest.mark.parametrize(("sizes", "signature"), CLOSED)
def test_interleaved_groups_that_all_exchange_fill_the_links_as_the_line_says(sizes, signature):
    """Every chip sends to every member of its group, over every shortest run of hops alike, found by walking."""
    twist, origin = TWISTED[sizes], (0,) * len(sizes)
    strides = [s for _, s in signature]
    reach = [range(-f, f + 1) if f > 1 else range(1) for f, _ in signature]
    ways = {}
    for hops in sorted(product(*reach), key=lambda h: sum(map(abs, h))):
        _, end = walk(origin, hops, strides, sizes, twist)
        known = ways.setdefault(end, [])
        if not known or sum(map(abs, known[0])) == sum(map(abs, hops)):
            known.append(hops)
    n = prod(f for f, _ in signature)
    assert len(ways) == n
    load = Counter()
    for chip in product(*map(range, sizes)):
        for tied in ways.values():
            for hops in tied:
                for link in walk(chip, hops, strides, sizes, twist)[0]:
                    load[link] += Fraction(1, len(tied) * n)
    found = [x for x in lines("all-to-all", signature, sizes, twist) if "twisted" in x.algorithm]
    assert [x.s_per_byte * RATE for x in found] == [pytest.approx(float(max(load.values())))]


@pytest.mark.parametrize(("sizes", "signature"), CLOSED)
def test_taking_in_a_window_along_axis_after_axis_gathers_every_member_once_in_any_order(sizes, signature):
    """Why gathers, scatters and reductions of such a group cost what they cost on a plain torus."""
    twist, strides = TWISTED[sizes], [s for _, s in signature]
    for order in permutations(range(len(sizes))):
        held = [(0,) * len(sizes)]
        for axis in order:
            factor = signature[axis][0]
            window = range(-(factor // 2), factor - factor // 2)
            moves = [tuple(w if i == axis else 0 for i in range(len(sizes))) for w in window]
            held = [walk(chip, move, strides, sizes, twist)[1] for chip in held for move in moves]
        assert len(set(held)) == len(held) == prod(f for f, _ in signature)
    for kind in KINDS:
        if kind != "all-to-all":
            assert lines(kind, signature, sizes, twist) == lines(kind, signature, sizes, ())


@pytest.mark.parametrize(
    ("sizes", "signature", "geometries"),
    [
        ((4, 4, 8), ((4, 1), (1, 1), (1, 1)), ["line"]),
        ((4, 4, 8), ((4, 1), (4, 1), (1, 1)), ["line", "line"]),
        ((4, 4, 8), ((4, 1), (4, 1), (4, 1)), ["line", "line", "line"]),
        ((4, 4, 8), ((4, 1), (1, 1), (4, 1)), ["line", "line"]),
        ((4, 4, 8), ((1, 1), (1, 1), (8, 1)), ["ring"]),
        ((4, 8, 8), ((4, 1), (8, 1), (1, 1)), ["line", "ring"]),
        ((4, 8, 8), ((1, 1), (8, 1), (8, 1)), ["ring", "ring"]),
    ],
)
def test_a_ring_closes_for_a_group_only_if_going_round_it_ends_inside(sizes, signature, geometries):
    twist = TWISTED[sizes]
    assert [leg.geometry for leg in legs(signature, *fabric(sizes, twist))] == geometries
    members = {(0,) * len(sizes)}
    for axis, (factor, stride) in enumerate(signature):
        members |= {(*m[:axis], i * stride, *m[axis + 1 :]) for m in members for i in range(factor)}
    stays = [
        all(beside((*m[:i], n - 1, *m[i + 1 :]), i, 1, sizes, twist) in members for m in members)
        for i, n in enumerate(sizes)
        if signature[i][0] == n
    ]
    assert all(inside for inside, g in zip(stays, geometries, strict=False) if g == "ring")


def test_a_line_beside_rings_that_are_tied_is_one_part_more():
    """Axis y is cut in two, so it is a line of two at stride one; x and z are the rings of a 4 x 8 twisted torus."""
    sizes, signature = (4, 4, 8), ((4, 1), (2, 1), (8, 1))
    line = all_to_all(signature, sizes, TWISTED[sizes])
    beside = all_to_all(((4, 1), (8, 1)), (4, 8), ((0, 4), (0, 0)))
    alone = all_to_all(((2, 1),), (4,), ())
    assert line.algorithm == "torus(twisted@x,z,line@y)"
    assert line.s_per_byte == pytest.approx(max(beside.s_per_byte, alone.s_per_byte))
    assert line.alpha_s == pytest.approx(beside.alpha_s + alone.alpha_s)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("signature", [((4, 1), (1, 1), (1, 1)), ((2, 2), (4, 1), (2, 2)), ((4, 1), (4, 1), (8, 1))])
def test_only_an_exchange_gains_from_a_twist(kind, signature):
    for n_bytes in (0.0, 1e4, 1e9):
        cheapest = [min(x.seconds(n_bytes) for x in lines(kind, signature, (4, 4, 8), t))
                    for t in ((), TWISTED[4, 4, 8])]  # fmt: skip
        gains = kind == "all-to-all" and signature[2] == (8, 1)
        assert cheapest[1] < cheapest[0] if gains else cheapest[1] >= cheapest[0]


def test_no_more_turns_are_needed_than_are_tried():
    for sizes in [(6, 6, 12), (6, 12, 12), (2, 2, 4), (8, 16)]:
        k = min(sizes)
        twist = tuple(tuple(k * (m > k) for m in sizes) if n == k else (0,) * len(sizes) for n in sizes)
        load, farthest = link_loads(sizes, twist)
        ways = shortest_ways(sizes, twist)
        assert sum(ways.mean_hops) == pytest.approx(sum(load.values()) / prod(sizes) ** 2)
        assert max(map(sum, ways.farthest)) == farthest


def test_the_algorithms_allowed_hold_for_twisted_ones():
    whole = ((4, 1), (4, 1), (8, 1))
    assert lines("all-to-all", whole, (4, 4, 8), TWISTED[4, 4, 8], frozenset({"bidirectional-ring"})) == ()
