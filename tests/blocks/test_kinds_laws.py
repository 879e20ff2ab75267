"""Laws of reading, multiplying and holding on models of every kind of block."""

import numpy as np
import pytest
from blocks.made_up import axis, decode, machine, prefill
from blocks.rich import rich_models
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.blocks.params import all_tensors, count_params
from inferometer.blocks.tensors import chip_bytes
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.graph.ops import ONE
from inferometer.specs.deployment import Deployment, Sizes

WHOLE = dict.fromkeys(("tp", "kv", "groups", "ep", "etp"), ONE)
some = settings(max_examples=60, deadline=None)


def priced(spec, batch, *, workload=None, sizes=None, axes=()):
    problem = make_problem(spec, machine(*axes), workload or decode(1000), backend="roofline")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch))


@some
@given(rich_models())
def test_a_large_batch_reads_every_matrix_once(spec):
    ends = {"embedding", "positions", "layer_table"}
    matrices = [(t, n) for t, n in all_tensors(spec) if t.cols > 1 and t.name not in ends]
    held = sum(float(chip_bytes((t,), WHOLE)) * n for t, n in matrices)
    held += spec.vocab * spec.hidden * 2 if spec.tied else 0
    read = sum(
        op.traffic_bytes.get("weights", 0.0) * op.layers * op.share
        for op in priced(spec, 1 << 16).ops
        if op.kind != "lookup"
    )
    assert read == pytest.approx(held, rel=1e-9)


@some
@given(rich_models())
def test_kinds_add_up_and_memory_holds_them_all(spec):
    count = count_params(spec)
    assert sum(count.by_kind.values()) == count.total
    assert priced(spec, 1).memory.weights_bytes == pytest.approx(count.checkpoint_bytes, rel=1e-12)


@some
@given(rich_models(), st.integers(1, 200), st.sampled_from((decode(100), decode(5000), prefill(1500))))
def test_a_step_takes_no_less_for_a_larger_batch(spec, batch, workload):
    less, more = (priced(spec, b, workload=workload).step_s for b in (batch, batch + 1))
    assert less <= more * (1 + 1e-9)


@some
@given(rich_models(), st.sampled_from((decode(100), decode(5000), prefill(1500))))
def test_useful_work_is_the_same_however_it_is_sharded(spec, workload):
    axes = (axis(4),)
    whole = priced(spec, 8, workload=workload)
    for sizes in (Sizes(tp=4, ep=4), Sizes(tp=4, etp=4), Sizes(dpa=4, ep=4), Sizes(dpa=2, tp=2, ep=2, etp=2)):
        split = priced(spec, 8, workload=workload, sizes=sizes, axes=axes)
        assert np.isfinite(split.step_s)
        assert split.useful_flops == pytest.approx(whole.useful_flops, rel=1e-9)
