"""Every closed form of a collective against a network that carries the chunks."""

from fractions import Fraction
from itertools import permutations

import pytest
from cost import net_sim as sim
from cost.net_sim import SCHEDULES, Dim, Net, Schedule, assert_same, line_of, run_gather, run_reduce

from inferometer.cost.collectives import collective_lines

SIZES = [2, 3, 4, 5, 8]
ALPHA = Fraction(3)
RATE = Fraction(7)


def one(geometry, n, capable=False) -> Net:
    return (Dim(geometry, n, RATE, ALPHA, capable),)


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
