"""What is counted without a chip is what an estimate counts, on models of every kind of block."""

import pytest
from blocks.made_up import decode, extend, machine, model, prefill, verify
from blocks.rich import rich_models
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models, workloads

from inferometer.estimate.count import Counting, count_ops, default_plans
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.estimate.precision import stored_precision
from inferometer.specs.deployment import Deployment, EngineSpec, Sizes
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention

SPECS = st.one_of(rich_models(), models())
WORKLOADS = st.one_of(st.sampled_from((decode(100), prefill(150), extend(30, 200), verify(3, 90))), workloads())
some = settings(max_examples=60, deadline=None)


def counted(spec, work, batch, sizes):
    of = Counting(model=spec, workload=work, precision=stored_precision(spec), batch=batch, plans=default_plans(work))
    return count_ops(of, sizes)


def total(ops, value):
    return sum(value(op) * op.times for op in ops)


@some
@given(SPECS, WORKLOADS, st.integers(1, 40))
def test_the_whole_is_what_one_chip_does(spec, work, batch):
    ops = counted(spec, work, batch, Sizes())
    engine = EngineSpec(name="rule", version="", allows={name: (plan,) for name, plan in default_plans(work).items()})
    problem = make_problem(spec, machine(), work, engine=engine, backend="roofline")
    priced = estimate(problem, Deployment(sizes=Sizes(), batch=batch))
    assert total(ops, lambda op: op.flops) == pytest.approx(priced.useful_flops, rel=1e-12)
    for kind in ("weights", "kv"):
        moved = sum(op.traffic_bytes.get(kind, 0.0) * op.layers * op.share for op in priced.ops)
        assert total(ops, lambda op, kind=kind: op.traffic_bytes.get(kind, 0.0)) == pytest.approx(moved, rel=1e-12)
    assert all(op.flops == op.flops_per_chip and op.traffic_bytes == op.chip_bytes for op in ops)


@some
@given(SPECS, WORKLOADS, st.integers(1, 40))
def test_chips_do_at_least_their_share_and_the_whole_stays(spec, work, batch):
    whole = counted(spec, work, batch, Sizes())
    for sizes in (Sizes(tp=4, ep=4), Sizes(dpa=2, tp=2, ep=2, etp=2), Sizes(r=2, tp=2, ep=2), Sizes(pp=2, tp=2, etp=2)):
        part = counted(spec, work, batch, sizes)
        assert total(part, lambda op: op.flops) == total(whole, lambda op: op.flops)
        each = total(part, lambda op: op.flops_per_chip)
        ranks = sizes.r * sizes.stage
        assert each * ranks >= total(whole, lambda op: op.flops) * (1 - 1e-9)
        assert not any(op.traffic_bytes for op in part if "message" in op.chip_bytes)


def test_messages_are_those_of_roles_with_several_ranks():
    spec = model(Attention(heads=8, kv_heads=2, head_dim=32), Ffn(width=512), hidden=256, vocab=1000)
    sent = [op for op in counted(spec, decode(50), 3, Sizes(tp=2)) if "message" in op.chip_bytes]
    assert {op.name for op in sent} == {"all-reduce(tp)", "gather-logits(tp)"}
    assert {op.chip_bytes["message"] for op in sent} == {3 * 256 * 2.0, 3 * 1000 * 2.0}
