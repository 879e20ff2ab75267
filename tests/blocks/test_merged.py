"""Expert dispatch that merges copies on their way out of a node, by hand and against a drawn routing."""

import numpy as np
import pytest
from blocks.made_up import axis, decode, machine, model

from inferometer.cost.collectives import MergedLine, merged_line
from inferometer.cost.groups import LinkRate
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, EngineSpec, Sizes
from inferometer.specs.feedforward import Moe
from inferometer.specs.hardware import Fabric
from inferometer.specs.mixers import Attention

NODES, CHIPS = 4, 8
INSIDE, OUTSIDE = axis(CHIPS, name="in", bytes_per_s=4e11), axis(NODES, name="out", bytes_per_s=5e10, latency_s=5e-6)
RATES = [LinkRate(a.latency_s, a.bytes_per_s) for a in (INSIDE, OUTSIDE)]


def test_a_merged_exchange_costs_its_latencies_and_the_slower_of_network_and_node():
    """(g-1)/g of what is passed on inside over its port, (m-1)/m of what leaves over the network's."""
    got = merged_line(((CHIPS, 1), (NODES, 1)), Fabric(axes=(INSIDE, OUTSIDE)), RATES)
    assert got == MergedLine(
        alpha_s=pytest.approx(1e-6 + 5e-6),
        inner_s_per_byte=pytest.approx((CHIPS - 1) / CHIPS / 4e11),
        outer_s_per_byte=pytest.approx((NODES - 1) / NODES / 5e10),
        parts=NODES,
    )


def test_nothing_merges_on_one_axis_or_on_a_torus():
    assert merged_line(((CHIPS, 1), (1, 1)), Fabric(axes=(INSIDE, OUTSIDE)), RATES) is None
    torus = Fabric(axes=(axis(4, geometry="ring", name="x"), axis(4, geometry="ring", name="y")))
    assert merged_line(((4, 1), (4, 1)), torus, RATES) is None


def exchange_s(plan, *, batch=1024, etp=1):
    """Seconds of dispatch and combine of one layer when only `plan` may exchange."""
    engine = EngineSpec(name="one", version="", allows={"moe-dispatch": ("exchange",), "moe-exchange": (plan,)})
    moe = Moe(experts=64, top_k=8, width=128)
    spec = model(Attention(heads=32, kv_heads=32, head_dim=8), moe, hidden=1024)
    problem = make_problem(spec, machine(INSIDE, OUTSIDE), decode(64), engine=engine, scheduler="serial")
    sizes = Sizes(dpa=NODES * CHIPS, ep=NODES * CHIPS // etp, etp=etp)
    got = estimate(problem, Deployment(sizes=sizes, batch=batch))
    return sum(op.alone_s for op in got.ops if op.name.startswith(("dispatch(", "combine(")))


def test_it_sends_each_token_once_a_node_as_a_drawn_routing_does():
    """Network-bound: dispatch and combine move the same bf16 rows, so the time is 2 (alpha + rows (m-1)/m H 2 / B)."""
    rng = np.random.default_rng(7)
    tokens, per_node = 1024, 64 // NODES
    arrivals = []
    for _ in range(40):
        chosen = np.argsort(rng.random((tokens, 64)), axis=1)[:, :8] // per_node
        arrivals.append(max(int((chosen == node).any(axis=1).sum()) for node in range(NODES)))
    rows = np.mean(arrivals) / CHIPS
    drawn_s = 2 * (6e-6 + rows * 1024 * 2 * (NODES - 1) / NODES / 5e10)
    assert exchange_s("merged") == pytest.approx(drawn_s, rel=0.02)
    assert exchange_s("merged", etp=2) == pytest.approx(drawn_s, rel=0.02), (
        "a node's chips share it, however experts are cut"
    )


def test_it_never_sends_more_over_the_network_than_a_copy_a_rank():
    assert exchange_s("merged") < exchange_s("coalesced") < exchange_s("expanded")
