"""Reshard plans against Dijkstra over every layout, feature slices included, at random prices."""

import heapq
from itertools import product
from math import inf, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.graph.layout import layout, reshard_plans, reshard_tree
from inferometer.graph.ops import CollectiveKind
from inferometer.graph.verify import verify_reshard

AR, RS, AG, A2A = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
MESHES = (("tp",), ("dpa", "tp"))
JOINT = "stage"

HOW = {("P", "R"): AR, ("P", "T"): RS, ("P", "F"): RS, ("T", "R"): AG, ("F", "R"): AG, ("T", "F"): A2A, ("F", "T"): A2A}
"""(state left, state entered) -> the collective that does it; R -> T and R -> F are free."""


def every_layout(mesh):
    return [tuple(zip(mesh, states, strict=True)) for states in product("RTFP", repeat=len(mesh))]


def held(state, ranks):
    """Return 1 / (what a rank holds of the full array)."""
    return prod(ranks[role] for role, s in state if s in "TF")


def moves(state, ranks, price):
    """Yield (cost, layout) of every single step, from the definition of the steps and not from the code under test."""
    mesh = [role for role, _ in state]
    for roles, name in [*(((role,), role) for role in mesh), (tuple(mesh), JOINT)][: len(mesh) + (len(mesh) > 1)]:
        states = {s for role, s in state if role in roles}
        if len(states) != 1:
            continue
        old = states.pop()
        for new in "RTF":
            reached = tuple((role, new if role in roles else s) for role, s in state)
            if old == "R" and new != "R":
                yield 0.0, reached
            elif (old, new) in HOW:
                kind = HOW[old, new]
                array = reached if kind is AG else state
                yield price(kind, name, 1 / held(array, ranks)), reached


def cheapest(source, target, ranks, price):
    best = {source: 0.0}
    queue = [(0.0, source)]
    while queue:
        cost, state = heapq.heappop(queue)
        if state == target:
            return cost
        for more, reached in moves(state, ranks, price):
            if cost + more < best.get(reached, inf):
                best[reached] = cost + more
                heapq.heappush(queue, (cost + more, reached))
    return inf


def plan_cost(plan, ranks, price):
    return sum(price(s.kind, s.role, 1 / prod(ranks[r] for r in s.divisor)) for s in plan)


def tree_cost(tree, ranks, price):
    if not tree:
        return 0.0
    return min((plan_cost((s,), ranks, price) if s else 0.0) + tree_cost(rest, ranks, price) for s, rest in tree)


@st.composite
def journeys(draw):
    mesh = draw(st.sampled_from(MESHES))
    layouts = every_layout(mesh)
    source = draw(st.sampled_from(layouts))
    ends = [t for t in layouts if all(s != "P" or dict(source)[r] == "P" for r, s in t)]
    return source, draw(st.sampled_from(ends))


@st.composite
def prices(draw):
    """Alpha + bytes * beta for each kind and role, ranks of each role; zero and huge prices among them."""
    cost = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
    table = {(k, r): (draw(cost), draw(cost)) for k in (AR, RS, AG, A2A) for r in ("tp", "dpa", JOINT)}
    ranks = {role: draw(st.integers(1, 8)) for role in ("tp", "dpa")}

    def price(kind, role, size):
        alpha, beta = table[kind, role]
        return alpha + beta * size

    return ranks, price


@given(journeys(), prices())
def test_no_legal_plan_is_cheaper_than_the_cheapest_listed(journey, priced):
    ranks, price = priced
    listed = min(plan_cost(plan, ranks, price) for plan in reshard_plans(*journey, JOINT))
    assert listed == pytest.approx(cheapest(*journey, ranks, price), rel=1e-12)


@given(journeys(), prices())
def test_the_least_over_the_tree_is_the_least_over_the_plans(journey, priced):
    ranks, price = priced
    plans = min(plan_cost(plan, ranks, price) for plan in reshard_plans(*journey, JOINT))
    assert tree_cost(reshard_tree(*journey, JOINT), ranks, price) == pytest.approx(plans, rel=1e-12)


@pytest.mark.parametrize("mesh", MESHES)
def test_every_plan_listed_is_legal_and_ends_in_the_target(mesh):
    for source, target in product(every_layout(mesh), repeat=2):
        if all(s != "P" or dict(source)[r] == "P" for r, s in target):
            verify_reshard(source, target, JOINT)


@pytest.mark.parametrize("mesh", MESHES)
def test_staying_costs_nothing(mesh):
    assert all(reshard_plans(here, here, JOINT) == ((),) for here in every_layout(mesh))


def test_a_copy_is_sliced_for_free():
    assert reshard_plans(layout(tp="R", dpa="R"), layout(tp="T", dpa="F"), JOINT) == ((),)


def test_a_partial_sum_over_both_roles_may_be_reduced_jointly_or_role_by_role():
    plans = reshard_plans(layout(tp="P", dpa="P"), layout(tp="R", dpa="R"), JOINT)
    spelled = {"+".join(f"{s.kind}({s.role})" for s in plan) for plan in plans}
    assert {
        "all-reduce(stage)",
        "reduce-scatter(stage)+all-gather(stage)",
        "reduce-scatter(tp)+all-reduce(dpa)+all-gather(tp)",
    } <= spelled
