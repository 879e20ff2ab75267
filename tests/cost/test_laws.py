"""The laws of a cost backend, asked of every one there is."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from cost.recorded import FOUND, backend
from cost.test_calibrated import WORKS, core, product, resized
from hypothesis import given
from hypothesis import strategies as st

from inferometer.catalog.chips import load_chips
from inferometer.cost.measured_chips import TIMED_CHIPS
from inferometer.cost.roofline import Roofline
from inferometer.graph.ops import OpKind, Traffic

PRICED = [chip for chip in load_chips().values() if all(backend(x).supports(OpKind.GEMM, chip).ok for x in FOUND)]
CHIPS = st.sampled_from([chip for chip in PRICED if "bf16" in chip.peak_flops_per_s]) | st.sampled_from(
    [chip for chip in PRICED if chip.id in TIMED_CHIPS]
)
"""Chips, those with tables as often as all others together."""

every = pytest.mark.parametrize("name", FOUND)
SLACK = 1e-9


@every
@given(work=WORKS, chip=CHIPS)
def test_nothing_beats_a_bound(name, work, chip):
    found, limit = backend(name).price(work, chip), Roofline().price(work, chip)
    assert found.total_s >= limit.total_s * (1 - 1e-12)
    assert found.total_s >= np.maximum(found.compute_s, found.memory_s)


@every
@given(work=WORKS, chip=CHIPS, more_peak=st.floats(1, 4), more_bandwidth=st.floats(1, 4))
def test_time_never_rises_when_a_rate_rises(name, work, chip, more_peak, more_bandwidth):
    quicker = msgspec.structs.replace(
        chip,
        memory_bytes_per_s=chip.memory_bytes_per_s * more_bandwidth,
        peak_flops_per_s={name: peak * more_peak for name, peak in chip.peak_flops_per_s.items()},
    )
    assert backend(name).price(work, quicker).total_s <= backend(name).price(work, chip).total_s * (1 + SLACK)


def never_falls(name, chip, few, many):
    before, after = (backend(name).price(work, chip).total_s for work in (few, many))
    assert after >= before * (1 - SLACK)


@every
@given(m=st.integers(1, 5000), more=st.integers(1, 300), n=st.sampled_from([64, 1000, 4096, 9000]), chip=CHIPS)
def test_time_never_falls_when_rows_are_added(name, m, more, n, chip):
    never_falls(name, chip, product(m, n, 4096), product(m + more, n, 4096))


@every
@given(b=st.integers(1, 300), s=st.integers(1, 100_000), more=st.sampled_from([(1, 0), (0, 1), (7, 900)]), chip=CHIPS)
def test_time_never_falls_when_sequences_or_context_grow(name, b, s, more, chip):
    few, many = (replace(core(x, y), features=np.asarray(4.0)) for x, y in ((b, s), (b + more[0], s + more[1])))
    never_falls(name, chip, few, many)


@every
@given(b=st.integers(1, 16), t=st.integers(17, 9000), more=st.integers(1, 3000), chip=CHIPS)
def test_time_never_falls_when_a_prompt_grows(name, b, t, more, chip):
    few, many = (replace(core(b, x, queries=x), features=np.asarray(4.0)) for x in (t, t + more))
    never_falls(name, chip, few, many)


@every
@given(each=st.integers(1, 900), items=st.integers(1, 64), more=st.sampled_from([(1, 0), (0, 1), (40, 9)]), chip=CHIPS)
def test_time_never_falls_when_experts_or_their_tokens_grow(name, each, items, more, chip):
    counts = ((each, items), (each + more[0], items + more[1]))
    few, many = (product(x, 4096, 7168, kind=OpKind.GROUPED_GEMM, items=y) for x, y in counts)
    never_falls(name, chip, few, many)


@every
@given(sizes=st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 9000)), min_size=1, max_size=8), chip=CHIPS)
def test_columns_cost_the_same_bits_as_scalars(name, sizes, chip):
    m, n = (np.array([float(x) for x in column]) for column in zip(*sizes, strict=True))
    work = product(1, 1, 512)
    found = backend(name).price(resized(work, m, n), chip).total_s
    for i in range(len(sizes)):
        alone = resized(work, m[i : i + 1], n[i : i + 1])
        assert backend(name).price(alone, chip).total_s[0] == found[i]


@every
@given(work=WORKS, chip=CHIPS)
def test_weights_on_chip_already_never_cost_more(name, work, chip):
    rest = {Traffic.ACTIVATIONS: np.zeros(()), **work.traffic_bytes}
    rest.pop(Traffic.WEIGHTS, None)
    light = replace(work, traffic_bytes=rest)
    assert backend(name).price(light, chip).total_s <= backend(name).price(work, chip).total_s * (1 + SLACK)
