"""The mean over a growing context against the sum over its steps, and the cut at a window's kink."""

import pytest
from blocks.made_up import axis, decode, machine, model
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_strategies import attentions, compressed, mlas
from strategies import ffns

from inferometer.blocks.causal import causal_pairs, keys_seen, simpson, split_at
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, Sizes, Workload
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention


def pricer(spec, batch, scheduler, *axes, sizes=None):
    """Return the step time as a function of the workload."""

    def step_s(workload):
        problem = make_problem(spec, machine(*axes), workload, backend="roofline", scheduler=scheduler)
        return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch)).step_s

    return step_s


def mean_over_steps(step_s, isl, osl):
    """Return the trapezoid of the step times at every context isl, isl + 1, .. isl + osl."""
    times = [step_s(decode(c)) for c in range(isl, isl + osl + 1)]
    return (sum(times) - (times[0] + times[-1]) / 2) / osl


CASES = {
    "full": Attention(heads=8, kv_heads=8, head_dim=64),
    "kink inside": Attention(heads=8, kv_heads=8, head_dim=64, window=140),
    "kink near the start": Attention(heads=8, kv_heads=8, head_dim=64, window=101),
    "all in the window": Attention(heads=8, kv_heads=8, head_dim=64, window=1000),
    "all past the window": Attention(heads=8, kv_heads=8, head_dim=64, window=10),
}


@pytest.mark.parametrize("mixer", CASES.values(), ids=CASES)
@pytest.mark.parametrize("scheduler", ["serial", "overlap"])
def test_the_mean_is_the_mean_of_the_steps(mixer, scheduler):
    step_s = pricer(model(mixer, Ffn(width=256)), 64, scheduler, axis(2), sizes=Sizes(tp=2))
    assert step_s(Workload(isl=100, osl=80)) == pytest.approx(mean_over_steps(step_s, 100, 80), rel=1e-3)


@settings(max_examples=10)
@given(
    st.one_of(attentions(), mlas(), compressed()),
    ffns(),
    st.integers(32, 2000),
    st.integers(1, 60),
    st.integers(1, 200),
)
def test_any_mixer_is_within_a_thousandth(mixer, ffn, isl, osl, batch):
    """From 32 tokens on: below, single steps change between absorbed and expanded, and an answer keeps one."""
    step_s = pricer(model(mixer, ffn), batch, "serial")
    assert step_s(Workload(isl=isl, osl=osl)) == pytest.approx(mean_over_steps(step_s, isl, osl), rel=1e-3)


def test_one_context_replaces_the_mean():
    step_s = pricer(model(CASES["full"], Ffn(width=256)), 4, "serial")
    assert step_s(Workload(isl=7, osl=9, context=100)) == step_s(Workload(isl=100, osl=0))


lengths = st.integers(1, 10_000)


@given(lengths, lengths, st.one_of(st.none(), lengths))
def test_tokens_seen_average_exactly_over_a_kink(low, more, window):
    """Mean of min(c, W) over [a, b] is the integral: (W^2 - a^2)/2 + W (b - W), over b - a."""
    high = low + more
    nodes = split_at(simpson(float(low), float(high)), *([] if window is None else [window]))
    cut = min(max(window or high, low), high)
    flat = min(window or high, high)
    integral = (cut**2 - low**2) / 2 + flat * (high - cut)
    assert sum(share for _, share in nodes) == pytest.approx(1.0, rel=1e-12)
    cached = sum(keys_seen(1, window, prefix=c - 1) * share for c, share in nodes)
    assert cached == pytest.approx(integral / more, rel=1e-12)


@given(st.integers(1, 300), st.one_of(st.none(), st.integers(1, 400)))
def test_causal_pairs_are_counted_one_by_one(new, window):
    assert causal_pairs(float(new), window) == sum(min(i, window or i) for i in range(1, new + 1))
