"""The dag scheduler: three streams, ops in order, weights fetched ahead after a layer's first run."""

from dataclasses import replace

import numpy as np
import pytest
from blocks.made_up import decode, machine, model
from estimate.test_laws import CLOSE, ONE_PLAN, faster, picks, priced
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases

from inferometer.estimate.candidates import Block, pairs_of
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.estimate.step import StepModel
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention

some = settings(max_examples=40)
BLOCKS = (Attention(heads=4, kv_heads=4, head_dim=32), Ffn(width=512))


def one_chip(layers, scheduler):
    problem = make_problem(model(*BLOCKS, layers=layers), machine(), decode(64), scheduler=scheduler)
    return estimate(problem, Deployment(sizes=Sizes(), batch=8))


def without_weights(op, chip):
    moved = sum(size for kind, size in op.traffic_bytes.items() if kind != "weights")
    return max(op.compute_s, moved / chip.memory_bytes_per_s)


def test_a_model_of_one_layer_runs_its_ops_one_after_another():
    assert one_chip(1, "dag").step_s == pytest.approx(one_chip(1, "serial").step_s, rel=1e-12)


def test_each_further_layer_finds_its_weights_fetched():
    """First + (L - 1) max(fullest stream, ops with no weights to wait for), with ends run once."""
    got = one_chip(5, "dag")
    chip = machine().chip
    layer = [op for op in got.ops if op.segment == "layer-0"]
    ends = sum(op.alone_s for op in got.ops if op.segment != "layer-0")
    first = sum(op.alone_s * op.share for op in layer)
    fullest = max(sum(op.compute_s for op in layer), sum(op.memory_s for op in layer))
    ready = sum(without_weights(op, chip) for op in layer)
    assert got.step_s == pytest.approx(ends + first + (5 - 1) * max(fullest, ready), rel=1e-12)


@some
@given(cases(), picks)
def test_it_lies_between_the_fullest_stream_and_the_sum(case, pick):
    sizes = case.sizes(pick[0])
    dag = priced(case, sizes, pick[1], engine=ONE_PLAN, scheduler="dag")
    sum_s = priced(case, sizes, pick[1], engine=ONE_PLAN, scheduler="serial").step_s
    assert dag.step_s <= sum_s * CLOSE
    assert dag.step_s * CLOSE >= max(dag.busy_s.values())


@some
@given(cases(), picks, st.data())
def test_it_never_takes_longer_when_a_rate_rises(case, pick, data):
    quick = data.draw(faster(case.problem.machine))
    sizes = case.sizes(pick[0])
    before = priced(case, sizes, pick[1], engine=ONE_PLAN, scheduler="dag").step_s
    after = priced(case, sizes, pick[1], engine=ONE_PLAN, scheduler="dag", machine=quick).step_s
    assert after <= before * CLOSE


@some
@given(cases(schedulers=("dag",)), st.integers(0, 10_000))
def test_columns_equal_their_scalars_bit_for_bit(case, index):
    at = np.array([case.legal[index % len(case.legal)]], dtype=np.intp)
    batches = np.array([[1.0, 2.0, 7.0, 40.0]])
    steps = StepModel(problem=case.problem, shardings=case.shardings, placements=case.placements)
    pairs = pairs_of(at, case.placements)
    together = np.broadcast_to(steps.price(Block(at, batches, pairs)).step_s, (len(pairs), 1, 4))
    for p, pair in enumerate(pairs):
        for g in range(4):
            alone = steps.price(Block(at, batches[:, g : g + 1], pair[None])).step_s
            assert np.array_equal(together[p, 0, g], alone.reshape(-1)[0])


@some
@given(cases(schedulers=("dag",)), picks)
def test_recording_changes_no_bit(case, pick):
    at = np.array([case.legal[pick[0] % len(case.legal)]], dtype=np.intp)
    block = Block(at, np.array([[float(pick[1])]]), pairs_of(at, case.placements))
    steps = StepModel(problem=case.problem, shardings=case.shardings, placements=case.placements)
    recorded = replace(steps, record=True)
    assert np.array_equal(steps.price(block).step_s, recorded.price(block).step_s)
