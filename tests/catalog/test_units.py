import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.errors import InferometerError
from inferometer.units import UNITS, format_gib, format_rate, format_seconds, format_usd, parse_quantity


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        ("3.35 TB/s", "bytes_per_s", 3.35 * 10**12),
        ("400 Gb/s", "bytes_per_s", 400 * 10**9 / 8),
        ("80GiB", "bytes", 80 * 2**30),
        ("80 GB", "bytes", 80 * 10**9),
        ("81559 MiB", "bytes", 81559 * 2**20),
        ("989 TFLOP/s", "flops_per_s", 989 * 10**12),
        ("1.979 PFLOP/s", "flops_per_s", 1.979 * 10**15),
        ("0.7 kW", "power", 0.7 * 10**3),
        ("270e9 B", "bytes", 270e9),
        ("50 ms", "time", 50 * 1e-3),
        ("2.95 $/h", "usd_per_hour", 2.95),
    ],
)
def test_a_quantity_is_its_number_times_its_unit(text, dimension, si):
    assert parse_quantity(text, dimension) == pytest.approx(si, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["", "GB", "80", "80 GB/s", "80 gb", "-1 GB", "nan GB", "inf GB", "1e999 GB", "1,000 GB", "9" * 5000 + " B"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(InferometerError):
        parse_quantity(text, "bytes")


@given(st.floats(min_value=1e-3, max_value=1e6), st.data())
def test_units_of_one_dimension_agree(value, data):
    dimension = data.draw(st.sampled_from(sorted(UNITS)))
    unit = data.draw(st.sampled_from(sorted(UNITS[dimension])))
    assert parse_quantity(f"{value!r} {unit}", dimension) == value * UNITS[dimension][unit]


@given(st.floats(min_value=0, max_value=1e9))
def test_a_formatted_time_keeps_three_digits(seconds):
    if seconds >= 1e-6:
        assert parse_quantity(format_seconds(seconds).replace(",", ""), "time") == pytest.approx(seconds, rel=6e-3)


def test_formats():
    assert format_gib(1.5 * 2**40) == "1,536.00 GiB"
    assert format_rate(450e9) == "450 GB/s"
    assert format_rate(0) == "0.00 GB/s"
    assert format_usd(1234.5) == "$1,234.50"
