"""`--choice` pins a choice to one plan, and says what cannot be pinned."""

import pytest
from cli.command import inferometer

ASKED = ("explain", "deepseek-v2-lite", "h200", "--batch-size", "8", "--context", "4096")


def taken(*more):
    row = inferometer(*ASKED, *more, "--json").rows[0]
    return row["step_s"], row["choices"]


def test_a_pin_takes_the_plan_and_costs_no_less():
    free_s, free = taken()
    pinned_s, pinned = taken("--choice", "mla=expanded")
    assert free["mla"] == "absorbed"
    assert "mla" not in pinned  # nothing was left to choose
    assert pinned_s > free_s


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ("mla", "write NAME=PLAN"),
        ("mlaa=absorbed", "did you mean 'mla'"),
        ("mla=absorb", "did you mean 'absorbed'"),
        ("mla=absorbed,mla=expanded", "pinned twice"),
        ("", "write NAME=PLAN"),
    ],
)
def test_a_wrong_pin_is_one_line(pin, said):
    done = inferometer(*ASKED, "--choice", pin)
    assert done.status == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_an_engine_is_not_made_to_run_what_it_cannot():
    done = inferometer(*ASKED, "--engine", "vllm", "--choice", "mla=expanded")
    assert done.status == 2
    assert "vllm@0.24 runs only absorbed in decode" in done.err
