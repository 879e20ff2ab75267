"""Collectives over several axes against a network that carries the chunks."""

from fractions import Fraction
from itertools import combinations, permutations

import pytest
from cost import net_sim as sim
from cost.net_sim import SCHEDULES, Dim, assert_same, line_of, run_gather, run_reduce

from inferometer.cost.collectives import collective_lines

ALPHA = Fraction(3)
RATE = Fraction(7)

HIERARCHIES = [
    (Dim("switch", 4, Fraction(9), Fraction(1)), Dim("switch", 3, Fraction(2), Fraction(5))),
    (Dim("mesh", 3, Fraction(4), Fraction(2)), Dim("switch", 2, Fraction(2), Fraction(5))),
    (Dim("switch", 2, Fraction(9), Fraction(1)), Dim("ring", 4, Fraction(3), Fraction(1))),
    (Dim("ring", 4, Fraction(5), Fraction(1)), Dim("switch", 2, Fraction(1), Fraction(9))),
    (Dim("mesh", 3, Fraction(8), Fraction(1)), Dim("switch", 2, Fraction(4), Fraction(2)), Dim("switch", 3)),
]


@pytest.mark.parametrize("net", HIERARCHIES)
def test_hierarchical_gather_goes_outside_in_and_scatter_inside_out(net):
    plan = [(i, SCHEDULES[d.geometry][1]) for i, d in enumerate(net)]
    steps = sim.gather_steps(net, reversed(plan))
    parts = " > ".join(f"{SCHEDULES[d.geometry][0]}@x{i}" for i, d in enumerate(net))
    gather = run_gather(net, [steps])
    assert_same(line_of("all-gather", net, f"hierarchical({parts})"), gather.alpha_s, gather.beta_s)
    scatter, _ = run_reduce(net, [steps])
    assert_same(line_of("reduce-scatter", net, f"hierarchical({parts})"), scatter.alpha_s, scatter.beta_s)


@pytest.mark.parametrize("net", HIERARCHIES)
def test_hierarchical_all_reduce_works_outside_on_one_share(net):
    plan = [(i, SCHEDULES[d.geometry][1]) for i, d in enumerate(net)]
    scatter, gather = run_reduce(net, [sim.gather_steps(net, reversed(plan))])
    names = [f"{SCHEDULES[d.geometry][0]}@x{i}" for i, d in enumerate(net)]
    names[-1] = names[-1].replace("direct@", "two-shot@")
    only = frozenset({"hierarchical", "direct", "two-shot", "bidirectional-ring"})  # one-shot is as good for pairs
    line = line_of("all-reduce", net, f"hierarchical({' > '.join(names)})", only)
    assert_same(line, scatter.alpha_s + gather.alpha_s, scatter.beta_s + gather.beta_s)


@pytest.mark.parametrize("net", HIERARCHIES[:2])
def test_one_shot_on_axis_after_axis_reduces_the_whole_vector_twice(net):
    state = sim.everything(net)
    piece = Fraction(1, 2 * len(state))
    pieces = tuple(next(iter(state.values())))
    alpha = beta = Fraction(0)
    for axis, dim in enumerate(net):
        step = [
            sim.Send(c, sim.moved(c, axis, q), axis, 0, pieces) for c in state for q in range(dim.n) if q != c[axis]
        ]
        cost = sim.execute(net, [step], state, piece, "add-keep")
        alpha, beta = alpha + cost.alpha_s, beta + cost.beta_s
    assert sim.all_reduced(net, state)
    assert_same(line_of("all-reduce", net, "hierarchical(one-shot@x0 + one-shot@x1)"), alpha, beta)


@pytest.mark.parametrize("net", HIERARCHIES)
def test_hierarchical_all_to_all_is_held_by_its_fullest_port(net):
    parts = ",".join(f"{SCHEDULES[d.geometry][0]}@x{i}" for i, d in enumerate(net))
    state = sim.outbox(net)
    piece = Fraction(1, 2 * len(state))
    cost = sim.execute(net, sim.exchange_steps(net, range(len(net))), state, piece, "move")
    assert sim.exchanged(net, state)
    line = line_of("all-to-all", net, f"hierarchical({parts})")
    assert_same(line, cost.alpha_s, cost.busiest_s)


@pytest.mark.parametrize(
    ("geometry", "n", "k"),
    [("ring", 4, 2), ("ring", 3, 2), ("ring", 2, 3), ("ring", 3, 3), ("line", 2, 2), ("line", 3, 2)],
)
def test_an_even_torus_adds_the_bandwidth_of_its_axes(geometry, n, k):
    net = tuple(Dim(geometry, n, RATE, ALPHA) for _ in range(k))
    schedule = SCHEDULES[geometry][1]
    orders = [[(first + i) % k for i in range(k)] for first in range(k)]
    programs = [sim.gather_steps(net, [(i, schedule) for i in order], part) for part, order in enumerate(orders)]
    cost = run_gather(net, programs)
    name = f"torus({','.join(f'x{i}' for i in range(k))})"
    assert_same(line_of("all-gather", net, name), cost.alpha_s, cost.beta_s)
    chips = n**k
    ways = 2 if geometry == "ring" else 1
    assert cost.beta_s == Fraction(chips - 1, chips) / (k * ways * RATE)
    scatter, gather = run_reduce(net, programs)
    assert_same(line_of("reduce-scatter", net, name), scatter.alpha_s, scatter.beta_s)
    both = line_of("all-reduce", net, name)
    assert_same(both, scatter.alpha_s + gather.alpha_s, scatter.beta_s + gather.beta_s)


UNEVEN = [
    (Dim("ring", 2, Fraction(3), ALPHA), Dim("ring", 5, Fraction(3), ALPHA)),
    (Dim("ring", 4, Fraction(6), ALPHA), Dim("ring", 3, Fraction(1), ALPHA)),
    (Dim("ring", 4, Fraction(1, 20), ALPHA), Dim("ring", 2, Fraction(5), ALPHA)),
    (Dim("ring", 4, Fraction(2), ALPHA), Dim("line", 3, Fraction(3), ALPHA)),
]


@pytest.mark.parametrize("net", UNEVEN)
def test_an_uneven_torus_shares_its_array_between_both_orders_as_well_as_can_be(net):
    loads = []  # seconds a byte, of the busiest link of each axis, for each order
    for order in ((0, 1), (1, 0)):
        steps = sim.gather_steps(net, [(i, SCHEDULES[net[i].geometry][1]) for i in order])
        by_axis = []
        for axis in (0, 1):
            mine = [step for step in steps if step[0].axis == axis]
            piece = Fraction(1, 2 * net[0].n * net[1].n)
            state = sim.own(net)
            if axis == order[1]:
                sim.execute(net, [s for s in steps if s[0].axis != axis], state, piece, "copy")
            by_axis.append(sim.execute(net, mine, state, piece, "copy").beta_s)
        loads.append(by_axis)
    (a0, a1), (b0, b1) = loads
    shares = [Fraction(0), Fraction(1)]  # the best share is an end, or where both axes are as long busy
    if (slope := (a0 - b0) - (a1 - b1)) != 0:
        shares.append((b1 - b0) / slope)
    best = min(max(w * a0 + (1 - w) * b0, w * a1 + (1 - w) * b1) for w in shares if 0 <= w <= 1)
    line = line_of("all-gather", net, "torus(x0,x1)")
    hops = sum(d.n // 2 if d.geometry == "ring" else d.n - 1 for d in net)
    assert_same(line, hops * ALPHA, best)


def test_the_shares_of_a_three_axis_torus_reach_the_closed_form():
    sides, rates = (2, 3, 5), (Fraction(2), Fraction(1), Fraction(3))
    net = tuple(Dim("ring", n, b, ALPHA) for n, b in zip(sides, rates, strict=True))
    chips = 30
    loads = []
    for order in permutations(range(3)):
        together, load = 1, [Fraction(0)] * 3
        for i in order:  # gathered in this order: each phase brings (n-1)/n of what is then complete
            load[i] = Fraction((sides[i] - 1) * together, chips) / (2 * rates[i])
            together *= sides[i]
        loads.append(load)
    closed = line_of("all-gather", net, "torus(x0,x1,x2)").s_per_byte
    bound = Fraction(chips - 1, chips) / sum(2 * b for b in rates)
    assert closed == pytest.approx(float(bound))
    weights = [1.0] * 3  # multiplicative weights on the axes; the average of the best replies tends to the value
    average = [0.0] * 3
    rounds = 4000
    for _ in range(rounds):
        reply = min(loads, key=lambda load: sum(w * float(x) for w, x in zip(weights, load, strict=True)))
        average = [x + float(y) / rounds for x, y in zip(average, reply, strict=True)]
        weights = [w * (1 + 0.05 * float(y) / closed) for w, y in zip(weights, reply, strict=True)]
        weights = [w / sum(weights) for w in weights]
    assert closed * (1 - 1e-9) <= max(average) <= closed * 1.05


@pytest.mark.parametrize("geometry", ["ring", "line"])
@pytest.mark.parametrize("sides", [(4, 2), (3, 5), (2, 3, 4)])
def test_all_to_all_on_a_torus_is_held_by_its_longest_axis(geometry, sides):
    net = tuple(Dim(geometry, n, RATE, ALPHA) for n in sides)
    state = sim.outbox(net)
    cost = sim.execute(net, sim.exchange_steps(net, range(len(net))), state, Fraction(1, 2 * len(state)), "move")
    assert sim.exchanged(net, state)
    parts = ",".join(f"{'bidirectional-ring' if geometry == 'ring' else 'line'}@x{i}" for i in range(len(net)))
    line = line_of("all-to-all", net, f"torus({parts})")
    assert_same(line, cost.alpha_s, cost.busiest_s)
    longest = max(sides)
    if longest % 2 == 0:
        assert line.s_per_byte == pytest.approx(longest / ((8 if geometry == "ring" else 4) * float(RATE)))


@pytest.mark.parametrize("inner_rate", [Fraction(9), Fraction(2)])  # the network, or the node, is the slower
@pytest.mark.parametrize(("g", "m"), [(3, 2), (4, 2), (4, 4), (5, 6)])
def test_a_ring_through_nodes_enters_each_by_another_chip(g, m, inner_rate):
    net = (Dim("switch", g, inner_rate, Fraction(1)), Dim("switch", m, Fraction(1), Fraction(5)))
    cycles = []  # channel c enters even nodes by chip c and odd ones by c+1: every port serves one channel
    for c in range(g):
        inside = ([c, *((c + i) % g for i in range(2, g)), (c + 1) % g], [(c + 1 + i) % g for i in range(g)])
        cycles.append([(chip, node) for node in range(m) for chip in inside[node % 2]])
    n = g * m
    loads: dict[tuple[str, int, tuple[int, int]], int] = {}
    slowest = Fraction(0)
    for cycle in cycles:
        hops = [(cycle[i], cycle[(i + 1) % n]) for i in range(n)]
        axes = [0 if a[1] == b[1] else 1 for a, b in hops]
        assert all(a[axis ^ 1] == b[axis ^ 1] for (a, b), axis in zip(hops, axes, strict=True))  # one axis a hop
        for (a, b), axis in zip(hops, axes, strict=True):
            for port in (("out", axis, a), ("in", axis, b)):
                loads[port] = loads.get(port, 0) + n - 1  # chunks of 1/(g n), all but one pass every link
        slowest = max(slowest, *(sum(net[axes[(i + t) % n]].alpha_s for t in range(n - 1)) for i in range(n)))
    beta = max(Fraction(count, g * n) / net[port[1]].bytes_per_s for port, count in loads.items())
    assert_same(line_of("all-gather", net, "ring"), slowest, beta)
    assert_same(line_of("all-reduce", net, "ring"), 2 * slowest, 2 * beta)


def test_every_order_of_three_axes_is_tried():
    net = tuple(Dim("switch", n, Fraction(b), Fraction(a)) for n, b, a in ((2, 9, 1), (3, 5, 2), (4, 1, 3)))
    fabric, rates = sim.fabric_of(net)
    found = [
        x
        for x in collective_lines("all-gather", ((2, 1), (3, 1), (4, 1)), fabric, rates)
        if x.algorithm.startswith("hier")
    ]
    best = min(
        sum(
            Fraction(net[i].n - 1, net[i].n) / net[i].bytes_per_s / _product(net[j].n for j in order[:place])
            for place, i in enumerate(order)
        )
        for order in permutations(range(3))
    )
    assert len(found) == 1
    assert_same(found[0], Fraction(6), best)


def _product(numbers) -> int:
    total = 1
    for x in numbers:
        total *= x
    return total


def test_no_order_of_axes_beats_all_axes_at_once_on_a_torus():
    for net in [*UNEVEN, *(pair for pair in combinations([d for n in UNEVEN for d in n], 2))]:
        fabric, rates = sim.fabric_of(net)
        signature = tuple((d.n, 1) for d in net)
        names = frozenset({"ring", "bidirectional-ring", "line", "hierarchical"})
        (torus,) = collective_lines("all-gather", signature, fabric, rates)
        for other in collective_lines("all-gather", signature, fabric, rates, only=names):
            assert torus.alpha_s <= other.alpha_s * (1 + 1e-12)
            assert torus.s_per_byte <= other.s_per_byte * (1 + 1e-12)
