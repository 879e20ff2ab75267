"""The closed loop against the laws of queues, and against an engine that is stepped through."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.serving.closed_loop import closed_loop

ONE = np.ones(1)
NONE, MANY = 0 * ONE, 1e9 * ONE


def step_s(b):
    return 0.01 + 2e-4 * b


def loop(in_flight, osl, prefill_s, *, front_s=0.0, most=1e9):
    return closed_loop(
        in_flight * ONE, osl * ONE, step_s, prefill_s=prefill_s * ONE, front_s=front_s * ONE, most=most * ONE
    )


def simulated(in_flight, osl, prefill_s, answered=3000):
    """Step an engine: where a request waits it is prefilled alone, else all decode one token. Return (rate, TPOT).

    Answers are from half to one and a half times `osl` long: of one length, all would end and begin together.
    """
    lengths = np.random.default_rng(0)
    waiting, left, born, took = in_flight, [], [], []
    now, done, spent = 0.0, 0, []
    began = 0.0
    while done < answered:
        if waiting:
            waiting -= 1
            now += prefill_s
            took.append(int(lengths.integers(osl // 2, osl + osl // 2 + 1)) - 1)
            left.append(took[-1])
            born.append(now)
            continue
        now += step_s(len(left))
        left = [n - 1 for n in left]
        ended = [i for i, n in enumerate(left) if n == 0]
        spent += [(now - born[i]) / took[i] for i in ended]
        done += len(ended)
        waiting += len(ended)
        if done >= answered // 3 and not began:
            began, first = now, done
        left = [n for i, n in enumerate(left) if i not in ended]
        born = [t for i, t in enumerate(born) if i not in ended]
        took = [n for i, n in enumerate(took) if i not in ended]
    return (done - first) / (now - began), float(np.mean(spent[first:]))


@pytest.mark.parametrize(
    ("in_flight", "osl", "prefill_s"), [(8, 100, 0.05), (32, 200, 0.02), (64, 100, 0.2), (4, 50, 0.0)]
)
def test_a_stepped_engine_answers_as_many_requests(in_flight, osl, prefill_s):
    rate, tpot = simulated(in_flight, osl, prefill_s)
    found = loop(in_flight, osl, prefill_s)
    assert found.requests_per_s[0] == pytest.approx(rate, rel=0.05)
    assert found.tpot_s[0] == pytest.approx(tpot, rel=0.08)


@given(
    st.floats(1, 512),
    st.integers(2, 4096),
    st.floats(0, 2),
    st.floats(0, 0.2),
)
def test_what_is_in_flight_is_what_comes_in_times_how_long_it_stays(in_flight, osl, prefill_s, front_s):
    """Little's law; the loop never holds more than it was given."""
    found = loop(in_flight, osl, prefill_s, front_s=front_s)
    stays = found.ttft_s + (osl - 1) * found.tpot_s
    assert found.requests_per_s[0] * stays[0] <= in_flight * 1.001
    assert found.requests_per_s[0] * prefill_s <= 1
    assert found.tpot_s[0] >= step_s(found.sequences[0])


@given(st.floats(1, 256), st.integers(2, 1000), st.floats(0, 0.5))
def test_longer_prefills_never_help(in_flight, osl, prefill_s):
    shorter, longer = (loop(in_flight, osl, p) for p in (prefill_s, prefill_s * 1.5 + 0.01))
    assert longer.requests_per_s[0] <= shorter.requests_per_s[0] * 1.001
    assert longer.ttft_s[0] >= shorter.ttft_s[0]


def test_what_memory_does_not_hold_waits_in_front():
    full, cut = loop(64, 100, 0.0), loop(64, 100, 0.0, most=16)
    assert cut.tpot_s[0] == pytest.approx(step_s(16), rel=0.02)
    assert cut.tpot_s[0] < full.tpot_s[0]
    assert cut.ttft_s[0] > full.ttft_s[0] + (64 - 16) / cut.requests_per_s[0] * 0.9


def test_columns_are_worked_out_one_by_one():
    c, osl, p = np.array([1.0, 16.0, 200.0]), np.array([2.0, 100.0, 1000.0]), np.array([0.1, 0.01, 0.5])
    many = closed_loop(c, osl, step_s, prefill_s=p, front_s=0 * c, most=1e9 + 0 * c)
    for i in range(3):
        alone = closed_loop(c[i : i + 1], osl[i : i + 1], step_s, prefill_s=p[i : i + 1], front_s=NONE, most=MANY)
        assert (many.tpot_s[i], many.ttft_s[i]) == (alone.tpot_s[0], alone.ttft_s[0])
