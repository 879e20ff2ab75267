"""Every closed form of a collective against a network that carries the chunks."""

from fractions import Fraction
from itertools import combinations, permutations

import pytest
from cost import net_sim as sim
from cost.net_sim import Cost, Dim, Net, Schedule

from inferometer.cost.collectives import Line, collective_lines
from inferometer.cost.groups import Signature

SIZES = [2, 3, 4, 5, 8]
ALPHA = Fraction(3)
RATE = Fraction(7)


def one(geometry, n, capable=False) -> Net:
    return (Dim(geometry, n, RATE, ALPHA, capable),)


def line_of(kind: str, net: Net, name: str, only: frozenset[str] | None = None) -> Line:
    fabric, rates = sim.fabric_of(net)
    signature: Signature = tuple((d.n, 1) for d in net)
    lines = collective_lines(kind, signature, fabric, rates, only=only)
    found = [x for x in lines if x.algorithm == name]
    assert len(found) == 1, lines
    return found[0]


def assert_same(line: Line, alpha: Fraction, beta: Fraction) -> None:
    assert line.alpha_s == pytest.approx(float(alpha), rel=1e-12)
    assert line.s_per_byte == pytest.approx(float(beta), rel=1e-12)


def run_gather(net: Net, programs: list[list[sim.Step]]) -> Cost:
    """All-gather: n chunks of two halves, in as many parts as programs, make the whole S = 1."""
    parts = len(programs)
    state = sim.own(net, parts)
    piece = Fraction(1, parts * 2 * len(state))
    cost = sim.execute(net, sim.together(programs), state, piece, "copy")
    assert sim.all_gathered(net, state, parts)
    return cost


def run_reduce(net: Net, programs: list[list[sim.Step]]) -> tuple[Cost, Cost]:
    """Reduce-scatter, then all-gather, of S = 1: the costs of both."""
    parts = len(programs)
    state = sim.everything(net, parts)
    piece = Fraction(1, parts * 2 * len(state))
    steps = sim.together(programs)
    scatter = sim.execute(net, sim.backwards(steps), state, piece, "add")
    assert sim.reduce_scattered(net, state, parts)
    gather = sim.execute(net, steps, state, piece, "copy")
    assert sim.all_reduced(net, state, parts)
    return scatter, gather


ONE_AXIS: list[tuple[str, str, str, Schedule]] = [
    ("switch", "direct", "two-shot", sim.direct),
    ("switch", "ring", "ring", sim.ring),
    ("pcie", "direct", "two-shot", sim.direct),
    ("pcie", "ring", "ring", sim.ring),
    ("mesh", "direct", "two-shot", sim.direct),
    ("ring", "ring", "ring", sim.ring),
    ("ring", "bidirectional-ring", "bidirectional-ring", sim.bidirectional),
    ("line", "line", "line", sim.line),
]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("geometry", "name", "reduce_name", "schedule"), ONE_AXIS)
def test_gather_scatter_and_reduce_on_one_axis_take_what_their_schedule_takes(geometry, name, reduce_name, schedule, n):
    net = one(geometry, n)
    steps = sim.gather_steps(net, [(0, schedule)])
    gather = run_gather(net, [steps])
    assert_same(line_of("all-gather", net, name), gather.alpha_s, gather.beta_s)
    scatter, gather = run_reduce(net, [steps])
    assert_same(line_of("reduce-scatter", net, name), scatter.alpha_s, scatter.beta_s)
    both = line_of("all-reduce", net, reduce_name)
    assert_same(both, scatter.alpha_s + gather.alpha_s, scatter.beta_s + gather.beta_s)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("geometry", "schedule"),
    [
        ("switch", sim.direct),
        ("pcie", sim.direct),
        ("mesh", sim.direct),
        ("ring", sim.bidirectional),
        ("line", sim.line),
    ],
)
def test_one_shot_gathers_every_whole_vector(geometry, schedule, n):
    net = one(geometry, n)
    cost = run_gather(net, [sim.gather_steps(net, [(0, schedule)])])  # of S in n chunks; here every chunk is an S
    assert_same(line_of("all-reduce", net, "one-shot"), cost.alpha_s, n * cost.beta_s)


@pytest.mark.parametrize("n", [3, 5, 7])
def test_a_mesh_runs_its_disjoint_rings_at_once(n):
    net = one("mesh", n)
    programs = [sim.gather_steps(net, [(0, s)], part) for part, s in enumerate(sim.strides(n))]
    cost = run_gather(net, programs)
    assert_same(line_of("all-gather", net, "ring"), cost.alpha_s, cost.beta_s)
    scatter, gather = run_reduce(net, programs)
    both = line_of("all-reduce", net, "ring")
    assert_same(both, scatter.alpha_s + gather.alpha_s, scatter.beta_s + gather.beta_s)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_a_mesh_has_so_many_disjoint_rings(n):
    cycles = [
        frozenset(zip((0, *rest), (*rest, 0), strict=True)) for rest in permutations(range(1, n))
    ]  # every directed Hamiltonian cycle, as its links

    def most(used: frozenset[tuple[int, int]], start: int, need: int) -> bool:
        if need == 0:
            return True
        return any(most(used | c, i + 1, need - 1) for i, c in enumerate(cycles[start:], start) if not used & c)

    line = line_of("all-gather", one("mesh", n), "ring")
    rings = round((n - 1) / n / float(RATE) / line.s_per_byte)
    assert most(frozenset(), 0, rings)
    assert not most(frozenset(), 0, rings + 1)


@pytest.mark.parametrize("n", SIZES)
def test_in_switch_moves_n_plus_1_shards_each_way(n):
    net = one("switch", n, capable=True)
    fullest = max(sim.ports_in_switch(n))
    assert fullest == Fraction(n + 1, n)
    assert_same(line_of("all-reduce", net, "in-switch"), ALPHA, fullest / RATE)
    for kind in ("all-gather", "reduce-scatter"):
        assert_same(line_of(kind, net, "in-switch"), ALPHA, 1 / RATE)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("geometry", "name"),
    [("switch", "direct"), ("pcie", "direct"), ("mesh", "direct"), ("ring", "bidirectional-ring")],
)
def test_all_to_all_by_the_shortest_way_takes_what_its_schedule_takes(geometry, name, n):
    net = one(geometry, n)
    state = sim.outbox(net)
    cost = sim.execute(net, sim.exchange_steps(net, [0]), state, Fraction(1, 2 * n), "move")
    assert sim.exchanged(net, state)
    assert_same(line_of("all-to-all", net, name), cost.alpha_s, cost.beta_s)


@pytest.mark.parametrize("n", SIZES)
def test_all_to_all_one_way_round_carries_what_has_still_to_go(n):
    # step t: every rank's link carries n-t of the chunks of 1/n
    beta = sum(Fraction(n - t, n) for t in range(1, n)) / RATE
    assert_same(line_of("all-to-all", one("ring", n), "ring"), (n - 1) * ALPHA, beta)


@pytest.mark.parametrize("n", SIZES)
def test_all_to_all_on_a_line_is_held_by_its_middle_link(n):
    net = one("line", n)
    state = sim.outbox(net)
    cost = sim.execute(net, sim.exchange_steps(net, [0]), state, Fraction(1, 2 * n), "move")
    assert sim.exchanged(net, state)
    line = line_of("all-to-all", net, "line")
    assert_same(line, cost.alpha_s, cost.busiest_s)
    limit = line.s_per_byte * float(RATE)
    for per_message in (1, 4, 16):  # the middle waits for n//2 - 1 packets of 1/(n per_message) to come near
        taken = float(sim.packets_on_line(n, per_message))
        assert limit * (1 - 1e-12) <= taken <= limit + (n / 2) / (n * per_message)


HIERARCHIES = [
    (Dim("switch", 4, Fraction(9), Fraction(1)), Dim("switch", 3, Fraction(2), Fraction(5))),
    (Dim("mesh", 3, Fraction(4), Fraction(2)), Dim("switch", 2, Fraction(2), Fraction(5))),
    (Dim("switch", 2, Fraction(9), Fraction(1)), Dim("ring", 4, Fraction(3), Fraction(1))),
    (Dim("ring", 4, Fraction(5), Fraction(1)), Dim("switch", 2, Fraction(1), Fraction(9))),
    (Dim("mesh", 3, Fraction(8), Fraction(1)), Dim("switch", 2, Fraction(4), Fraction(2)), Dim("switch", 3)),
]
SCHEDULES: dict[str, tuple[str, Schedule]] = {
    "switch": ("direct", sim.direct),
    "mesh": ("direct", sim.direct),
    "ring": ("bidirectional-ring", sim.bidirectional),
    "line": ("line", sim.line),
}


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


@pytest.mark.parametrize(("g", "m"), [(3, 2), (4, 2), (4, 4), (5, 6)])
def test_a_ring_through_nodes_enters_each_by_another_chip(g, m):
    net = (Dim("switch", g, Fraction(9), Fraction(1)), Dim("switch", m, Fraction(1), Fraction(5)))
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


@pytest.mark.parametrize(
    ("f", "s", "size", "geometry"), [(4, 2, 8, "ring"), (2, 4, 16, "ring"), (4, 2, 8, "line"), (3, 3, 12, "ring")]
)
def test_interleaved_groups_share_the_links_between_them(f, s, size, geometry):
    net = (Dim(geometry, size, RATE, ALPHA),)
    fabric, rates = sim.fabric_of(net)
    wraps = geometry == "ring" and f * s == size
    name, schedule = SCHEDULES["ring" if wraps else "line"]
    beta = Fraction(0)
    hops_of_all = schedule(f)
    for hops in hops_of_all:  # every logical hop is s links of the chips in between, at the same time
        load: dict[tuple[int, int], Fraction] = {}
        for block in range(0, size - f * s + 1, f * s):
            for group in range(s):
                for i, _, way, _, halves in hops:
                    for t in range(s):
                        link = ((block + group + i * s + way * t) % size, way)
                        load[link] = load.get(link, Fraction(0)) + Fraction(len(halves), 2 * f)
        beta += max(load.values()) / RATE
    found = {x.algorithm: x for x in collective_lines("all-gather", ((f, s),), fabric, rates)}
    assert_same(found[name], len(hops_of_all) * s * ALPHA, beta)


@pytest.mark.parametrize("s", [1, 2, 4])
def test_a_pipeline_boundary_of_stride_s_is_s_hops_shared_by_s_flows(s):
    fabric, rates = sim.fabric_of((Dim("line", 16, RATE, ALPHA),))
    flows = [(p, p + s) for p in range(s)]
    crossing = max(sum(a <= link < b for a, b in flows) for link in range(2 * s))
    (line,) = collective_lines("p2p", ((4, s),), fabric, rates)
    assert_same(line, s * ALPHA, crossing / RATE)


def test_a_pipeline_neighbour_on_any_other_axis_is_one_step_over_one_port_or_link():
    for geometry in ("switch", "pcie", "mesh"):
        fabric, rates = sim.fabric_of((Dim(geometry, 8, RATE, ALPHA),))
        (line,) = collective_lines("p2p", ((4, 2),), fabric, rates)
        assert_same(line, ALPHA, 1 / RATE)


def test_a_pipeline_waits_for_its_slowest_boundary():
    fabric, rates = sim.fabric_of(
        (Dim("switch", 8, Fraction(9), Fraction(1)), Dim("switch", 4, Fraction(2), Fraction(5)))
    )
    (line,) = collective_lines("p2p", ((2, 4), (4, 1)), fabric, rates)
    assert_same(line, Fraction(5), Fraction(1, 2))
    (inside,) = collective_lines("p2p", ((2, 4), (1, 1)), fabric, rates)
    assert_same(inside, Fraction(1), Fraction(1, 9))


@pytest.mark.parametrize("n", [64, 1024])
def test_all_to_all_on_a_large_ring_is_a_quarter_of_the_gather(n):
    # scaling-book, sharding, question 10: an array of V bytes, V/n of it on each chip
    net = one("ring", n)
    for name, share in (("bidirectional-ring", 4), ("ring", 2)):
        exchange = line_of("all-to-all", net, name).s_per_byte / n
        gather = line_of("all-gather", net, name).s_per_byte
        assert exchange == pytest.approx(gather / share, rel=2 / n)


def test_gather_on_a_ring_is_v_over_w():
    # scaling-book, sharding: V/W with W both directions of the link, N/2 hops
    line = line_of("all-gather", one("ring", 4096), "bidirectional-ring")
    assert line.s_per_byte == pytest.approx(1 / (2 * float(RATE)), rel=1e-3)
    assert line.alpha_s == 2048 * float(ALPHA)


def test_two_chips_of_a_mesh_of_eight_have_a_seventh_of_its_bandwidth():
    # MI300X: 47.7 against 312.9 GB/s of bus bandwidth, 2(n-1)/n S/t
    fabric, rates = sim.fabric_of((Dim("mesh", 8, Fraction(48), ALPHA),))
    busbw = {}
    for n in (2, 8):
        (line,) = (x for x in collective_lines("all-reduce", ((n, 1),), fabric, rates) if x.algorithm == "two-shot")
        busbw[n] = 2 * (n - 1) / n / line.s_per_byte
    assert busbw[2] == pytest.approx(48)
    assert busbw[8] == pytest.approx(7 * busbw[2])
    assert busbw[2] / busbw[8] == pytest.approx(47.7 / 312.9, rel=0.08)


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
