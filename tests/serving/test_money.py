"""Dollars and joules from rates: each closed form against a count, over prices, utilisation and instance sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.catalog.prices import Need, chips_billed, large_enough
from inferometer.serving.money import (
    Owned,
    even_utilization,
    full_cycle,
    joules_per_mtok,
    power_w,
    usd_per_mtok,
)
from inferometer.specs.hardware import Price

POSITIVE = st.floats(1e-3, 1e6)
SHARE = st.floats(0.01, 1.0)


@st.composite
def cycles(draw):
    sizes = {name: draw(st.integers(1, 64)) for name in ("batch", "osl", "prompt_tokens")}
    return sizes | {name: draw(POSITIVE) for name in ("decode_s", "prefill_s")}


@given(asked=cycles(), hourly=POSITIVE, share=SHARE)
def test_every_dollar_of_an_hour_is_a_token_s(asked, hourly, share):
    batch, osl, isl, decode, prefill = asked.values()
    cycle = full_cycle(**asked, prompts=1)
    seconds = batch * prefill + (osl - 1) * decode  # one cycle, one thing after another
    assert cycle.requests_per_s == pytest.approx(batch / seconds)
    assert cycle.prefill_share == pytest.approx(batch * prefill / seconds)
    tokens = (cycle.output_tok_per_s + cycle.input_tok_per_s) * 3600 * share
    blended = usd_per_mtok(hourly, cycle.output_tok_per_s + cycle.input_tok_per_s, share)
    assert blended * tokens / 1e6 == pytest.approx(hourly)
    # prefill's share over its tokens is what an hour of nothing but prefill gives
    own = usd_per_mtok(hourly * cycle.prefill_share, cycle.input_tok_per_s, share)
    assert own == pytest.approx(usd_per_mtok(hourly, isl / prefill, share))


@given(fixed=POSITIVE, busy=st.floats(0, 1e3), rate=POSITIVE, price=POSITIVE)
def test_at_the_break_even_utilisation_the_price_is_met(fixed, busy, rate, price):
    share = even_utilization(fixed, busy, rate, price)
    if share is None:
        assert usd_per_mtok(fixed + busy, rate) > price * (1 - 1e-9)
    else:
        assert usd_per_mtok(fixed + busy * share, rate, share) == pytest.approx(price)


@given(n=st.integers(1, 1000), size=st.integers(1, 72))
def test_instances_are_billed_whole(n, size):
    price = Price(chip="c", usd_per_chip_hour=1.0, provider="p", tier="on-demand", date="2026", source="s",
                  instance_chips=size)  # fmt: skip
    billed = chips_billed(price, n)
    assert billed % size == 0
    assert n <= billed < n + size
    assert large_enough([price], Need(n, min(n, 8))) == [price]


def test_power_energy_and_owning():
    assert power_w(700, 1) == pytest.approx(700)
    assert power_w(700, 0.5) == pytest.approx(700 * (0.3 + 0.7 * 0.5))
    assert joules_per_mtok(450, 1000) == pytest.approx(450 * 1e6 / 1000)
    owned = Owned(8760 * 2, 2, 0.1, 1.5)  # two years of 8760 h
    assert owned.capex_usd_per_hour == pytest.approx(1.0)
    assert owned.energy_usd_per_hour(2000) == pytest.approx(2 * 1.5 * 0.1)
