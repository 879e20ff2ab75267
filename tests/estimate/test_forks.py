"""Layers that fork: what the dag scheduler makes of two branches, against schedules and graphs written out."""

from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from blocks.made_up import axis, decode, machine, model, prefill
from estimate.test_laws import CLOSE
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases

from inferometer.blocks.model import lower_model
from inferometer.cost.schedulers import Busy, Overlap, dag_first, dag_later, on_branch
from inferometer.estimate import step as step_module
from inferometer.estimate.candidates import Block, pairs_of
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.estimate.step import StepModel
from inferometer.graph.ops import Choice, unwrapped
from inferometer.specs.deployment import Deployment, EngineSpec, Sizes
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Attention

STREAMS = ("compute", "memory", "network")
ZERO = np.zeros(1)


class Op(NamedTuple):
    """What an op keeps busy; it takes as long as the longest."""

    compute: float
    memory: float
    network: float

    @property
    def alone(self) -> float:
        """Seconds of the op alone."""
        return max(self)


def work(compute, memory):
    return Op(compute, memory, 0.0)


def message(network):
    return Op(0.0, 0.0, network)


seconds = st.integers(0, 9).map(float)
ops = st.one_of(st.builds(work, seconds, seconds), st.builds(message, seconds))
chains = st.lists(ops, max_size=3).map(tuple)
pure = st.tuples(seconds, st.integers(0, 2)).map(lambda x: Op(*(x[0] if i == x[1] else 0.0 for i in range(3))))


def busy(op):
    worked = 0.0 if op.network else op.alone
    return Busy(*(ZERO + x for x in (op.compute, op.memory, worked, op.network, worked)))


def summed(before, left, right, after):
    parts = [*map(busy, before), *map(busy, after)]
    parts += [on_branch(busy(op), "left") for op in left] + [on_branch(busy(op), "right") for op in right]
    return Busy(*(sum(columns, ZERO) for columns in zip(*parts, strict=True))) if parts else busy(work(0.0, 0.0))


def listed(before, left, right, after):
    """The least makespan of all list schedules: an op starts when its own are done and its streams are free."""
    n = len(left) + len(right)
    return min(_run(before, left, right, after, set(places)) for places in combinations(range(n), len(left)))


def _run(before, left, right, after, places):
    free = dict.fromkeys(STREAMS, 0.0)

    def start(op, ready):
        begin = max([ready, *(free[s] for s, x in zip(STREAMS, op, strict=True) if x)])
        free.update({s: begin + x for s, x in zip(STREAMS, op, strict=True) if x})
        return begin + op.alone

    now = 0.0
    for op in before:
        now = start(op, now)
    done, queues = {"left": now, "right": now}, {"left": list(left), "right": list(right)}
    for place in range(len(left) + len(right)):
        side = "left" if place in places else "right"
        done[side] = start(queues[side].pop(0), done[side])
    now = max(done.values())
    for op in after:
        now = start(op, now)
    return now


@given(chains, chains, chains, chains)
def test_no_list_schedule_is_shorter_and_one_after_another_none_is_longer(before, left, right, after):
    for timed in (dag_first, dag_later):
        got = float(timed(summed(before, left, right, after), Overlap())[0])
        every = [*before, *left, *right, *after]
        assert got <= listed(before, left, right, after) * CLOSE
        assert got <= sum(op.alone for op in every) * CLOSE
        assert got * CLOSE >= max((sum(stream) for stream in zip(*every, strict=True)), default=0.0)


@given(chains, pure, pure, chains)
def test_two_ops_of_one_stream_each_take_what_the_best_schedule_takes(before, left, right, after):
    shape = (before, (left,), (right,), after)
    assert float(dag_first(summed(*shape), Overlap())[0]) == pytest.approx(listed(*shape))


def longest(durations, waits):
    """The longest path through a graph: node -> seconds, node -> nodes it waits for."""
    done = {}
    for node in TopologicalSorter(waits).static_order():
        done[node] = durations[node] + max((done[before] for before in waits.get(node, ())), default=0.0)
    return max(done.values())


def forked(before, left, right, after):
    """A layer's critical path: two branches beside each other, and beside those each stream they share."""
    nodes, waits = {}, {}

    def chain(name, seconds, after_nodes):
        for i, s in enumerate(seconds):
            nodes[f"{name}{i}"], waits[f"{name}{i}"] = s, after_nodes
            after_nodes = (f"{name}{i}",)
        return after_nodes

    start = chain("before", [op.alone for op in before], ())
    ends = chain("left", [op.alone for op in left], start) + chain("right", [op.alone for op in right], start)
    for i, stream in enumerate(zip(*(*left, *right), strict=True)):
        ends += chain(STREAMS[i], [sum(stream)], start)
    chain("after", [op.alone for op in after], ends)
    return longest(nodes, waits)


ATTENTION = Attention(heads=8, kv_heads=2, head_dim=32)
SHARED = Moe(experts=8, top_k=2, width=128, shared_width=512)
GATED = Moe(experts=8, top_k=2, width=128, shared_width=512, shared_gate=True)
EXCHANGE = EngineSpec(
    name="exchange", version="", allows={"moe-dispatch": ("exchange",), "moe-exchange": ("expanded",)}
)
ROUTED = ("router", "dispatch", "experts", "combine")


def side_of(name, block):
    """Where an op stands: b(efore), l(eft), r(ight) or a(fter)."""
    if isinstance(block, Moe):
        if name.startswith("shared."):
            return "r"
        routed = name.startswith(ROUTED) and not (block.shared_gate and name.startswith("router"))
        return "l" if routed else "b"
    if name == "mixer.norm":
        return "l" if block.pre_norm else "b"
    return "r" if name.startswith(("gate", "up", "down", "activation", "ffn")) else "l"


def op_of(row, *, weights):
    memory = row.memory_s
    if not weights:
        total = sum(row.traffic_bytes.values())
        memory *= 1 - row.traffic_bytes.get("weights", 0.0) / total if total else 1.0
    return Op(row.compute_s, memory, row.network_s)


LAYERS = 5
FORKS = [
    (SHARED, Sizes(), decode(4000), 64, False),
    (GATED, Sizes(), decode(4000), 64, False),
    (SHARED, Sizes(dpa=4, ep=4), decode(400), 256, True),
    (GATED, Sizes(dpa=4, ep=4), prefill(512), 16, True),
    (Ffn(width=1024, parallel=True, pre_norm=False), Sizes(), decode(30_000), 64, False),
    (Ffn(width=1024, parallel=True), Sizes(), prefill(2000), 4, True),
]
"""Block, sizes, load, batch, and whether a first run hides anything: not where memory bounds every op."""


@pytest.mark.parametrize(("block", "sizes", "load", "batch", "hides"), FORKS)
def test_a_layer_takes_the_longest_path_through_its_ops(block, sizes, load, batch, hides):
    where = machine(axis(sizes.dpa)) if sizes.dpa > 1 else machine()
    problem = make_problem(model(ATTENTION, block, layers=LAYERS), where, load, scheduler="dag", engine=EXCHANGE)
    got = estimate(problem, Deployment(sizes=sizes, batch=batch))
    rows = [op for op in got.ops if op.segment == "layer-0"]
    assert all(op.share == 1 for op in rows)
    sides = {
        weights: {s: [op_of(r, weights=weights) for r in rows if side_of(r.name, block) == s] for s in "blra"}
        for weights in (True, False)
    }
    assert sides[True]["l"]
    assert sides[True]["r"]
    fullest = [sum(stream) for stream in zip(*(op_of(r, weights=True) for r in rows), strict=True)]
    once = max(*fullest, forked(*(sides[True][s] for s in "blra")))
    ready = sides[False]
    shared = [sum(op.compute for side in "lr" for op in ready[side]), sum(op.network for s in "lr" for op in ready[s])]
    alone = {side: sum(op.alone for op in ready[side]) for side in "blra"}
    again = max(*fullest, alone["b"] + alone["a"] + max(alone["l"], alone["r"], *shared))
    assert again <= max(*fullest, forked(*(ready[side] for side in "blra"))) * CLOSE
    ends = sum(op.alone_s * op.layers for op in got.ops if op.segment != "layer-0")
    assert got.step_s == pytest.approx(ends + once + (LAYERS - 1) * again, rel=1e-12)
    assert (once < sum(op.alone_s for op in rows) * 0.999) == hides


def flat(items):
    """The same nodes with no branch told apart, in plans too."""
    return tuple(
        replace(node, plans=tuple(replace(plan, nodes=flat(plan.nodes)) for plan in node.plans))
        if isinstance(node, Choice)
        else node
        for node in unwrapped(items)
    )


def lower_flat(spec, at):
    graph = lower_model(spec, at)
    segments = [
        replace(x, nodes=flat(x.nodes), edges={r: flat(nodes) for r, nodes in x.edges.items()}) for x in graph.segments
    ]
    return replace(graph, segments=tuple(segments))


@settings(max_examples=60)
@given(cases(schedulers=("serial", "overlap", "dag")), st.integers(0, 10_000), st.integers(1, 300))
def test_branches_change_no_bit_of_other_schedulers_and_never_lengthen_a_dag(case, index, batch):
    at = np.array([case.legal[index % len(case.legal)]], dtype=np.intp)
    block = Block(at, np.array([[float(batch)]]), pairs_of(at, case.placements))
    steps = StepModel(problem=case.problem, shardings=case.shardings, placements=case.placements)
    got = steps.price(block).step_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_module, "lower_model", lower_flat)
        chained = steps.price(block).step_s
    if case.problem.scheduler.name == "dag":
        assert (got <= chained * CLOSE).all()
    else:
        assert np.array_equal(got, chained)
