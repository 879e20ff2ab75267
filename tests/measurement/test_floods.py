"""A flood's run, against a queue that is simulated step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.measurement.floods import MOST_SEQUENCES, PASS_TOKENS, flood, prompts_a_pass, requests_of
from inferometer.measurement.loops import prefill_pass, replicas, wanted
from inferometer.measurement.loops import prompts_a_pass as prompts_of
from inferometer.measurement.validate import asked_points


@pytest.fixture(scope="module")
def flood_asked():
    return asked_points(("C",))


def line(fixed_s, each_s):
    return lambda b: fixed_s + each_s * np.asarray(b, dtype=np.float64)


def simulated(requests, steps, step_s, *, prefill_s, most, admitted):
    """Return the seconds of a run: each pass prefills up to `admitted` prompts, then every sequence makes a token."""
    left, waiting, time_s = [], requests, 0.0
    while waiting or left:
        fresh = min(admitted, waiting, most - len(left))
        waiting -= fresh
        left += [steps] * fresh
        time_s += fresh * prefill_s + float(step_s(len(left)))
        left = [one - 1 for one in left if one > 1]
    return time_s


@pytest.mark.parametrize("prefill_s", [0.0, 0.004])
@pytest.mark.parametrize(("fixed_s", "each_s"), [(0.01, 0.0), (0.01, 2e-4), (0.001, 1e-3)])
def test_a_batch_that_fills_as_slowly_as_it_lives(fixed_s, each_s, prefill_s):
    """One prompt a pass fills 40 places in 40 of 50 steps, so ages are alike from the start."""
    step_s = line(fixed_s, each_s)
    for requests in (80, 200, 1000):
        ours = requests / float(flood(requests, 51, step_s, prefill_s=prefill_s, most=40).requests_per_s[0])
        assert ours == pytest.approx(
            simulated(requests, 50, step_s, prefill_s=prefill_s, most=40, admitted=1), rel=0.12
        )


@given(st.integers(1, 60), st.floats(0, 0.05))
def test_requests_that_all_fit_run_together(requests, prefill_s):
    step_s = line(0.01, 1e-4)
    ours = requests / float(flood(requests, 51, step_s, prefill_s=prefill_s, most=60).requests_per_s[0])
    assert ours == pytest.approx(
        simulated(requests, 50, step_s, prefill_s=prefill_s, most=60, admitted=requests), rel=1e-9
    )


@given(st.floats(1, 5000), st.floats(1, 5000), st.integers(2, 4096))
def test_more_memory_and_more_requests_never_answer_fewer(requests, most, osl):
    step_s = line(0.01, 1e-5)

    def rate(k, b):
        return float(flood(k, osl, step_s, prefill_s=0.001, most=b).requests_per_s[0])

    assert rate(1e9, most * 2) >= rate(1e9, most) * (1 - 1e-12)
    assert rate(1e9, most) >= rate(max(requests, most) + 1, most)


def test_a_flood_s_prompts_are_priced_as_many_as_fill_a_pass(flood_asked):
    """128 tokens in: 64 prompts a prefill; 20,000: one; of a loop with a batch always one."""
    for one in flood_asked:
        prompts = prompts_of(one.question)
        assert prompts == max(8192 // one.question.isl_tok, 1)
        assert prompts_of(one.question._replace(batch=4)) == 1
        priced = dict(wanted(one.question))
        assert priced[prefill_pass(one.question)] == prompts * replicas(one.question)


def test_what_the_engine_s_defaults_say():
    assert flood(1e6, 129, line(0.01, 0), prefill_s=0.0, most=1e6).sequences[0] == MOST_SEQUENCES
    assert [prompts_a_pass(isl) for isl in (128, 5000, 20000)] == [64, 1, 1] == [PASS_TOKENS // 128, 1, 1]
    assert requests_of(128, 128) == 30000
    assert requests_of(7, 7) == np.inf
