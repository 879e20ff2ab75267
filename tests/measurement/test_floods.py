"""A flood's run, against a queue that is simulated step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.cost.registry import create_backend
from inferometer.measurement.floods import MOST_SEQUENCES, PASS_TOKENS, flood, prompts_a_pass, requests_of
from inferometer.measurement.loops import prefill_pass, prefill_s, replicas, room, wanted
from inferometer.measurement.loops import prompts_a_pass as prompts_of
from inferometer.measurement.passes import Pricer
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
        pp = one.question.setup.sizes.pp
        assert priced[prefill_pass(one.question)] == prompts * (4 * pp if pp > 1 else 1) * replicas(one.question)


def test_a_full_pipeline_gives_a_prompt_every_time_of_its_slowest_stage(flood_asked):
    """Prompts of 5,000 tokens through 4 stages: not the whole way for each, as one alone takes."""
    one = next(x.question for x in flood_asked if x.question.setup.sizes.pp == 4 and x.question.isl_tok == 5000)
    pricer = Pricer(create_backend("roofline"))
    alone = (prefill_pass(one), 1)
    pricer.price([*wanted(one), alone])
    slowest, whole = prefill_s(one, pricer), pricer.step_s(*alone)
    assert whole / 4 < slowest < whole / 4 * 1.1  # the last stage has the head too


def test_what_is_admitted_is_what_the_engine_s_memory_holds(flood_asked):
    """70B in fp8 on one H100: 0.9 of what its weights leave, in sequences of their full length, by `memory`'s rules."""
    one = next(
        x.question
        for x in flood_asked
        if x.question.setup.model == "meta-llama/Llama-3.1-70B" and x.question.setup.chip == "H100"
        if (x.question.setup.n_chips, x.question.isl_tok, x.question.osl_tok) == (1, 128, 2048)
    )
    weights = 70.55e9 + 2 * 128256 * 8192  # a byte each; embedding and head are of two
    kv = 2 * 80 * 8 * 128 * (128 + 2048)
    most = 0.9 * (81559 * 2**20 - weights) / kv
    pricer = Pricer(create_backend("roofline"))
    assert 0.6 * most < room(one, pricer) < most
    assert room(one._replace(batch=3), pricer) == 3
    assert room(one._replace(batch=10**4), pricer) == room(one, pricer)


def test_what_the_engine_s_defaults_say():
    assert flood(1e6, 129, line(0.01, 0), prefill_s=0.0, most=1e6).sequences[0] == MOST_SEQUENCES
    assert [prompts_a_pass(isl) for isl in (128, 5000, 20000)] == [64, 1, 1] == [PASS_TOKENS // 128, 1, 1]
    assert requests_of(128, 128) == 30000
    assert requests_of(7, 7) == np.inf
