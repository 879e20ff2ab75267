"""Tokens a pass against a count over every outcome, and speed-up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.serving.speculation import speedup, tokens_per_pass


def by_outcomes(acceptance, lookahead):
    """Mean tokens over every pattern of guesses: those before the first wrong one, and the model's."""
    total = 0.0
    for rights in itertools.product((True, False), repeat=lookahead):
        chance = 1.0
        for right in rights:
            chance *= acceptance if right else 1 - acceptance
        total += chance * (1 + len(list(itertools.takewhile(bool, rights))))
    return total


@given(acceptance=st.floats(0, 1), lookahead=st.integers(1, 8))
def test_tokens_a_pass_are_the_mean_over_outcomes(acceptance, lookahead):
    assert tokens_per_pass(acceptance, lookahead) == pytest.approx(by_outcomes(acceptance, lookahead), rel=1e-6)


def test_the_published_case_and_the_ends():
    assert tokens_per_pass(0.75, 4) == pytest.approx(3.0508, abs=5e-5)
    assert tokens_per_pass(1.0, 7) == 8
    assert tokens_per_pass(0.0, 7) == 1


def test_a_drafter_that_costs_nothing_gives_its_tokens():
    assert speedup(3.0, 1.0, 4, 0.0, 1.0) == 3.0
