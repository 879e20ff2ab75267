"""Laws of step time on random models, machines and deployments."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases, chips, fabrics, models, workloads

from inferometer.cost.schedulers import Busy, Overlap, overlapped, serial
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, EngineSpec, Sizes, Workload
from inferometer.specs.hardware import ChipSpec, Fabric, Machine
from inferometer.specs.model import ModelSpec

CLOSE = 1 + 1e-9
ONE_PLAN = EngineSpec(name="one-plan", version="", allows={"residual": ("replicated",), "mla": ("absorbed",)})
"""The two Choices that trade memory for network or compute. The rest trade messages alone: their least only falls."""


some = settings(max_examples=40)


def priced(case, sizes, batch, *, machine=None, engine=None, scheduler=None):
    old = case.problem
    problem = make_problem(
        old.model,
        machine or old.machine,
        old.workload,
        engine=engine or old.engine,
        backend="roofline",
        scheduler=scheduler or old.scheduler.name,
    )
    return estimate(problem, Deployment(sizes=sizes, batch=batch))


@st.composite
def faster(draw, machine):
    """The machine with one rate raised or one latency lowered."""
    by = draw(st.floats(1, 20))
    chip, axes = machine.chip, list(machine.fabric.axes)
    what = draw(st.sampled_from(("memory", "peak", "link", "latency")))
    replace = msgspec.structs.replace
    if what == "memory":
        chip = replace(chip, memory_bytes_per_s=chip.memory_bytes_per_s * by)
    elif what == "peak":
        dtype = draw(st.sampled_from(sorted(chip.peak_flops_per_s)))
        chip = replace(chip, peak_flops_per_s=chip.peak_flops_per_s | {dtype: chip.peak_flops_per_s[dtype] * by})
    else:
        i = draw(st.integers(0, len(axes) - 1))
        new = {"bytes_per_s": axes[i].bytes_per_s * by} if what == "link" else {"latency_s": axes[i].latency_s / by}
        axes[i] = replace(axes[i], **new)
    return Machine(chip=chip, fabric=Fabric(axes=tuple(axes)), label="faster")


picks = st.tuples(st.integers(0, 10_000), st.integers(1, 300))
"""A sharding (modulo the legal ones) and a batch."""


@some
@given(cases(schedulers=("serial",)), picks, st.data())
def test_serial_time_never_rises_when_a_rate_rises(case, pick, data):
    sizes, batch = case.sizes(pick[0]), pick[1]
    machine = data.draw(faster(case.problem.machine))
    before, after = priced(case, sizes, batch), priced(case, sizes, batch, machine=machine)
    assert after.step_s <= before.step_s * CLOSE


@some
@given(cases(schedulers=("overlap",)), picks, st.data())
def test_overlapped_time_never_rises_when_a_rate_rises_and_no_choice_can_flip(case, pick, data):
    sizes, batch = case.sizes(pick[0]), pick[1]
    machine = data.draw(faster(case.problem.machine))
    before = priced(case, sizes, batch, engine=ONE_PLAN)
    after = priced(case, sizes, batch, engine=ONE_PLAN, machine=machine)
    assert after.step_s <= before.step_s * CLOSE


@some
@given(cases(), picks)
def test_a_step_is_no_shorter_than_any_resource_is_busy_nor_than_any_op_takes(case, pick):
    got = priced(case, case.sizes(pick[0]), pick[1])
    assert all(got.step_s * CLOSE >= seconds for seconds in got.busy_s.values())
    assert all(got.step_s * CLOSE >= op.alone_s * op.share for op in got.ops)


@some
@given(cases(), picks)
def test_serial_takes_the_sum_of_the_ops_on_one_stage(case, pick):
    sizes = case.sizes(pick[0])
    if sizes.pp == 1:
        got = priced(case, sizes, pick[1], scheduler="serial")
        summed = sum(op.alone_s * op.share * op.layers for op in got.ops)
        assert got.step_s == pytest.approx(summed, rel=1e-9)


@some
@given(cases(), picks)
def test_overlap_saves_time_but_for_the_share_of_memory_that_cannot_hide(case, pick):
    """Serial is not above overlap: an op as long in memory as in compute takes c alone and c + (1 - a) m overlapped."""
    sizes = case.sizes(pick[0])
    if sizes.pp == 1:
        one_by_one = priced(case, sizes, pick[1], engine=ONE_PLAN, scheduler="serial")
        overlap = priced(case, sizes, pick[1], engine=ONE_PLAN, scheduler="overlap")
        assert overlap.step_s <= (one_by_one.step_s + (1 - 0.9) * one_by_one.busy_s["memory"]) * CLOSE


@some
@given(cases(), picks)
def test_useful_work_of_a_sequence_is_the_same_under_every_sharding(case, pick):
    sizes = case.sizes(pick[0])
    chips_all = case.problem.machine.fabric.n_chips
    each = 1 + pick[1] % 5
    ranks = sizes.r * sizes.dpa
    split = priced(case, sizes, ranks * sizes.pp * each, engine=ONE_PLAN)
    whole = priced(case, Sizes(r=chips_all), chips_all, engine=ONE_PLAN)
    assert split.useful_flops / (sizes.dpa * sizes.pp * each) == pytest.approx(whole.useful_flops, rel=1e-9)


@some
@given(cases(), picks)
def test_no_op_issues_less_than_its_useful_share(case, pick):
    got = priced(case, case.sizes(pick[0]), pick[1])
    assert all(op.replication >= 1 - 1e-9 for op in got.ops)
    assert 0 <= got.mfu <= CLOSE
    assert 0 <= got.mbu <= CLOSE


@some
@given(cases(workload=st.builds(Workload, context=st.integers(1, 5000))), picks, st.integers(0, 5000))
def test_serial_decode_never_speeds_up_with_context(case, pick, more):
    sizes, batch = case.sizes(pick[0]), pick[1]
    here = priced(case, sizes, batch, scheduler="serial")
    longer = Workload(context=case.problem.workload.context + more)
    problem = make_problem(case.problem.model, case.problem.machine, longer, scheduler="serial", backend="roofline")
    assert estimate(problem, Deployment(sizes=sizes, batch=batch)).step_s * CLOSE >= here.step_s


@some
@given(cases(), picks)
def test_naming_the_placement_found_gives_the_same_time(case, pick):
    sizes, batch = case.sizes(pick[0]), pick[1]
    free = priced(case, sizes, batch)
    named = estimate(case.problem, Deployment(sizes=sizes, batch=batch, placement=free.placement))
    assert named.step_s == free.step_s


@some
@given(cases(), picks)
def test_a_plan_taken_beats_those_listed_as_beaten(case, pick):
    for choice in priced(case, case.sizes(pick[0]), pick[1]).choices:
        assert all(choice.alone_s <= seconds for seconds in choice.beaten_s.values())


SPECS = st.one_of(models(), chips(), fabrics(), workloads())


@settings(max_examples=50)
@given(SPECS)
def test_specs_survive_json(spec):
    assert msgspec.json.decode(msgspec.json.encode(spec), type=type(spec)) == spec


@some
@given(cases(), picks)
def test_a_deployment_survives_json(case, pick):
    got = priced(case, case.sizes(pick[0]), pick[1])
    deployment = Deployment(sizes=got.sizes, placement=got.placement, batch=got.batch)
    assert msgspec.json.decode(msgspec.json.encode(deployment), type=Deployment) == deployment


@pytest.mark.parametrize("kind", [ModelSpec, ChipSpec, Deployment, Workload, EngineSpec])
def test_an_unknown_field_is_refused(kind):
    with pytest.raises(msgspec.ValidationError, match="surprise"):
        msgspec.json.decode(b'{"surprise": 1}', type=kind)


def test_the_counterexample_to_serial_above_overlap():
    c = np.array(10.0)
    busy = Busy(c, c, c, np.array(0.0))
    assert overlapped(busy, Overlap(0.9, 0.65)) == pytest.approx(serial(busy, Overlap()) + (1 - 0.9) * c)
