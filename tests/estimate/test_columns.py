"""Blocks of candidates: a scalar is a block of one, and more sequences take no less time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases

from inferometer.estimate.candidates import Block
from inferometer.estimate.step import StepModel
from inferometer.search.grid import pairs_of
from inferometer.specs.deployment import EngineSpec


def stage_depth(case):
    """Return the kinds of stages of each sharding; blocks mix only shardings of one or of several."""
    return (case.shardings.stage_counts > 0).sum(axis=0)


@st.composite
def blocks(draw, case):
    """Some legal shardings, all of one stage or all of several, at some batches each, at all their placements."""
    single = draw(st.booleans())
    alike = [i for i in case.legal if (stage_depth(case)[i] == 1) == single]
    alike = alike or [i for i in case.legal if (stage_depth(case)[i] == 1) != single]
    picked = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=4, unique=True))
    batches = draw(st.integers(1, 3))
    count = st.lists(st.integers(1, 2000), min_size=batches, max_size=batches)
    sequences = np.array([draw(count) for _ in picked], dtype=np.float64)
    index = np.array(picked, dtype=np.intp)
    return Block(index, sequences, pairs_of(index, case.placements))


def step_model(case, *, record=False):
    return StepModel(problem=case.problem, shardings=case.shardings, placements=case.placements, record=record)


def prices(case, block, *, record=False):
    step_s = step_model(case, record=record).price(block).step_s
    return np.broadcast_to(step_s, (len(block.pairs), *block.sequences.shape))


@settings(max_examples=40)
@given(cases(), st.data())
def test_a_candidate_costs_the_same_bits_alone_as_in_a_block(case, data):
    block = data.draw(blocks(case))
    whole = prices(case, block)
    alone = np.empty_like(whole)
    for p, i, j in np.ndindex(*whole.shape):
        one = Block(block.sharding[[i]], block.sequences[[i]][:, [j]], block.pairs[[p]][:, [i]])
        alone[p, i, j] = prices(case, one).item()
    assert np.array_equal(whole, alone)


@settings(max_examples=40)
@given(cases(), st.data())
def test_recording_changes_no_bit(case, data):
    block = data.draw(blocks(case))
    assert np.array_equal(prices(case, block), prices(case, block, record=True))


@settings(max_examples=40)
@given(cases(), st.data())
def test_the_residual_layout_is_the_one_whose_step_is_least(case, data):
    block = data.draw(blocks(case))
    step = step_model(case, record=True).price(block)
    assert list(step.ways) == ["replicated", "sequence"]
    assert np.array_equal(step.step_s, np.minimum(*(way.step_s for way in step.ways.values())))
    for layout, way in step.ways.items():
        engine = EngineSpec(name="one-layout", version="", allows={"residual": (layout,)})
        pinned = case._replace(problem=replace(case.problem, engine=engine))
        assert np.array_equal(way.step_s, step_model(pinned).price(block).step_s)


def growing(case, index, most):
    sharding = np.array([case.legal[index % len(case.legal)]], dtype=np.intp)
    return Block(sharding, np.arange(1.0, most)[None, :], pairs_of(sharding, case.placements))


@pytest.mark.parametrize("layout", ["replicated", "sequence"])
@settings(max_examples=40)
@given(cases(schedulers=("serial",)), st.integers(0, 10_000))
def test_serial_time_never_falls_when_sequences_are_added_under_one_residual_layout(layout, case, index):
    engine = EngineSpec(name="one-layout", version="", allows={"residual": (layout,)})
    pinned = case._replace(problem=replace(case.problem, engine=engine))
    step_s = prices(pinned, growing(case, index, 400))
    assert (np.diff(step_s, axis=2) >= -1e-9 * step_s[..., :-1]).all()


@settings(max_examples=80)
@given(cases(schedulers=("serial",)), st.integers(0, 10_000))
def test_serial_time_never_falls_when_sequences_are_added_over_any_number_of_stages(case, index):
    step_s = prices(case, growing(case, index, 400))
    assert (np.diff(step_s, axis=2) >= -1e-9 * step_s[..., :-1]).all()


@settings(max_examples=60)
@given(cases(), st.integers(0, 10_000))
def test_times_are_positive_and_finite(case, index):
    step_s = prices(case, growing(case, index, 50))
    assert np.isfinite(step_s).all()
    assert (step_s > 0).all()


def microbatches(work, pp, sequences):
    """Return M: a decode keeps at most one microbatch a stage under way, a prefill four."""
    return min(pp if work.phase in ("decode", "verify") else 4 * pp, sequences)


def simulated_prefill(stages, count):
    """Return when the last microbatch leaves; a stage takes one at a time, in order."""
    free = [0.0] * len(stages)
    done = 0.0
    for _ in range(count):
        done = 0.0
        for s, takes in enumerate(stages):
            free[s] = done = max(done, free[s]) + takes
    return done


def simulated_decode(stages, count, rounds=60):
    """Return the steady time between two tokens of a microbatch; its next token starts when its last one is out."""
    free = [0.0] * len(stages)
    ready = [0.0] * count
    out = []
    for _ in range(rounds):
        for m in range(count):
            done = ready[m]
            for s, takes in enumerate(stages):
                free[s] = done = max(done, free[s]) + takes
            ready[m] = done
        out.append(ready[0])
    return (out[-1] - out[rounds // 2]) / (rounds - 1 - rounds // 2)


@settings(max_examples=60)
@given(cases(), st.integers(0, 10_000), st.integers(1, 40))
def test_a_pipeline_takes_as_long_as_its_simulation(case, index, sequences):
    deep = [i for i in case.legal if case.shardings.sizes["pp"][i] > 1]
    if not deep:
        return
    sharding = np.array([deep[index % len(deep)]], dtype=np.intp)
    pair = pairs_of(sharding, case.placements)[:1]
    step = step_model(case, record=True).price(Block(sharding, np.array([[float(sequences)]]), pair))
    counts = case.shardings.stage_counts[:, sharding[0]]
    work = case.problem.workload
    way = min(step.ways.values(), key=lambda way: way.step_s.item())
    stages = [
        float(np.asarray(seconds).reshape(-1)[0])
        for c, seconds in enumerate(way.stage_s)
        for _ in range(int(counts[c]))
    ]
    pp = int(case.shardings.sizes["pp"][sharding[0]])
    assert len(stages) == pp
    count = microbatches(work, pp, sequences)
    simulate = simulated_prefill if work.phase in ("prefill", "extend") else simulated_decode
    assert step.step_s.item() == pytest.approx(simulate(stages, count), rel=1e-9)
