import re

import pytest

from inferometer.catalog.chips import load_chips
from inferometer.catalog.prices import choose_price, default_price, load_prices, prices_for, prices_from_rows, quote
from inferometer.catalog.slices import build_machine
from inferometer.errors import InferometerError, UnknownNameError
from inferometer.specs.hardware import Price


def price(usd, **changes):
    fields = {"chip": "c", "provider": "P", "tier": "on-demand", "region": "r", "date": "2026", "source": "s"}
    return Price(usd_per_chip_hour=usd, **(fields | changes))


def test_every_price_has_a_chip_a_date_and_a_source():
    for row in load_prices():
        assert row.chip in load_chips()
        assert re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", row.date)
        assert row.source
        assert 0 < row.usd_per_chip_hour < 100


@pytest.mark.parametrize("chip", load_chips())
def test_the_default_is_the_cheapest_on_demand_price_of_no_marketplace(chip):
    rows = prices_for(chip)
    chosen = default_price(chip)
    usual = [p for p in rows if p.tier == "on-demand" and not p.marketplace]
    assert chosen == (min(usual, key=lambda p: p.usd_per_chip_hour) if usual else rows[0] if rows else None)


def test_a_marketplace_and_spot_wait_until_nothing_else_is_there():
    market, spot, listed = price(1.0, provider="M", marketplace=True), price(0.5, tier="spot"), price(3.0)
    assert choose_price((market, spot, listed), "c", None, None, None) == listed
    assert choose_price((market, spot), "c", None, None, None) == spot
    assert choose_price((market, spot, listed), "c", "M", None, None) == market
    assert choose_price((market, spot, listed), "c", None, None, "spot") == spot
    assert choose_price((), "c", None, None, None) is None


def test_a_price_without_region_serves_every_region():
    here, everywhere = price(3.0, region="here"), price(2.0, region="any")
    assert choose_price((here, everywhere), "c", None, "HERE", None) == everywhere
    assert default_price("h100-sxm", provider="aws", region="us-west-2").usd_per_chip_hour == 6.88
    assert default_price("h100-sxm", provider="AWS", tier="spot").usd_per_chip_hour == pytest.approx(1.5867)


def test_what_no_price_matches_is_said():
    with pytest.raises(UnknownNameError, match="unknown provider 'AWSS'; known: AWS"):
        default_price("h100-sxm", provider="AWSS")
    with pytest.raises(UnknownNameError, match="unknown tier"):
        default_price("h100-sxm", tier="free")
    assert default_price("tpu-v5p", provider="AWS") is None
    assert "no price of tpu-v5p for AWS" in quote(build_machine("tpu-v5p"), "AWS", None, None).note
    assert default_price("tpu-v7x") is None
    assert prices_for("nothing") == ()


@pytest.mark.parametrize(
    ("name", "price", "instance", "note"),
    [
        ("p5.48xlarge", 6.88, "p5.48xlarge", ""),
        ("a3-highgpu-8g", 10.55, "a3-highgpu-8g", ""),
        ("aws-p5", 6.88, "p5.48xlarge", ""),
        ("a3-megagpu-8g", 10.55, "a3-highgpu-8g", "assumed: a3-megagpu-8g has no price of its own"),
        ("gpu_1x_h100_sxm5", 4.29, "gpu_1x_h100_sxm5", ""),
        ("h100", 2.95, "gpu-h100-sxm_8gpu", ""),
        ("hgx-h100", 2.95, "gpu-h100-sxm_8gpu", ""),
    ],
)
def test_an_instance_is_priced_where_it_is_let(name, price, instance, note):
    found = quote(build_machine(name), None, None, None)
    assert (found.price.usd_per_chip_hour, found.price.instance, found.note) == (price, instance, note)


def test_an_instance_without_any_price_has_none():
    assert quote(build_machine("u-p6e-gb200x72"), None, None, None) == (None, "no price of gb200-nvl72 for AWS")


def test_another_provider_than_the_instance_s_is_refused():
    with pytest.raises(InferometerError, match=r"p5\.48xlarge is let by AWS"):
        quote(build_machine("p5.48xlarge"), "Nebius", None, None)
    with pytest.raises(UnknownNameError):
        quote(build_machine("p5.48xlarge"), "Nebbius", None, None)
    assert quote(build_machine("p5.48xlarge"), "aws", None, "spot").price.tier == "spot"


@pytest.mark.parametrize(
    "change",
    [{"date": "recently"}, {"date": "2026-1"}, {"price": "free"}, {"chips": "0"}, {"chips": "x"}, {"unit": "GB"}],
)
def test_a_bad_row_is_refused(change):
    row = {"chip": "c", "price": "1", "unit": "$/h", "provider": "P", "tier": "spot", "region": "any",
           "chips": "8", "date": "2026-09-06", "source": "s", "marketplace": "no"}  # fmt: skip
    assert prices_from_rows([row])[0].usd_per_chip_hour == 1
    with pytest.raises(InferometerError):
        prices_from_rows([row | change])
