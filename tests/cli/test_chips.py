"""The list of chips, narrowed and sorted, and one chip in full."""

import pytest
from cli.command import inferometer, refused


def rows(*words):
    done = inferometer("chips", *words, "--json")
    assert done.status == 0, done.err
    return done.rows


def test_a_vendor_and_a_least_memory_narrow_the_list():
    everything = rows()
    for vendor in {row["vendor"] for row in everything}:
        assert rows("--vendor", vendor.upper()) == [row for row in everything if row["vendor"] == vendor]
    large = rows("--min-memory", "80GiB")
    assert large == [row for row in everything if row["memory_bytes"] >= 80 * 2**30]
    assert 0 < len(large) < len(everything)
    both = rows("--vendor", "amd", "--min-memory", "200e9B")
    assert both == [row for row in everything if row["vendor"] == "AMD" and row["memory_bytes"] >= 200e9]


@pytest.mark.parametrize(
    ("by", "key", "sign"),
    [
        ("memory", "memory_bytes", -1),
        ("hbm_bandwidth", "memory_bytes_per_s", -1),
        ("price", "usd_per_chip_hour", 1),
        ("tdp_w", "tdp_w", 1),
        ("least_chips", "least_chips", 1),
    ],
)
def test_the_best_come_first_and_the_unknown_last(by, key, sign):
    found = rows("--sort", by, "--model", "deepseek-v3")
    values = [row[key] for row in found]
    known = [value for value in values if value is not None]
    assert known == sorted(known, key=lambda value: sign * value)
    assert values[len(known) :] == [None] * (len(values) - len(known))
    assert {row["chip"] for row in found} == {row["chip"] for row in rows()}


def test_peaks_and_names_sort_too():
    peaks = [row["peak_flops_per_s"].get("fp8", 0) for row in rows("--sort", "peak.fp8")]
    assert peaks == sorted(peaks, reverse=True)
    names = [row["vendor"] for row in rows("--sort", "vendor")]
    assert names == sorted(names)


def test_nothing_like_that_is_status_1():
    done = inferometer("chips", "--min-memory", "100TiB")
    assert done.status == 1
    assert "no chip is like that" in done.err
    assert not done.out


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["chip"])
def test_every_chip_can_be_shown_in_full(row):
    (full,) = rows(row["chip"])
    assert {key: full[key] for key in row} == row
    assert full["links"]
    for field in ("memory_bytes", "memory_bytes_per_s", *(f"peak_flops_per_s.{t}" for t in row["peak_flops_per_s"])):
        assert full["sources"][field]
    assert set(row["assumed"]) <= set(full["sources"])
    prices = [price["usd_per_chip_hour"] for price in full["prices"]]
    assert prices == sorted(prices)
    assert (row["usd_per_chip_hour"] is None) == (not prices)
    shown = inferometer("chips", row["chip"])
    assert shown.status == 0
    assert row["chip"] in shown.out.splitlines()[0]
    assert "".join(full["sources"]["memory_bytes"].split()) in "".join(shown.out.split())


def test_what_is_assumed_is_marked():
    text = inferometer("chips", "h200").out
    (memory,) = [line for line in text.splitlines() if line.startswith("memory, visible")]
    assert memory.split()[2:5] == ["140.44", "GiB", "assumed"]
    (bandwidth,) = [line for line in text.splitlines() if line.startswith("memory bandwidth")]
    assert "sourced" in bandwidth


def test_a_chip_of_one_s_own_is_shown_too(tmp_path):
    chip = tmp_path / "mine.toml"
    chip.write_text(
        'id = "mine"\nmemory_bytes = "96 GiB"\nmemory_bytes_per_s = "3 TB/s"\n'
        'peak_flops_per_s = {bf16 = "500 TFLOP/s"}\n'
    )
    shown = inferometer("chips", str(chip), "--model", "llama-3.1-70b")
    assert shown.status == 0
    assert "least chips that hold the model's weights: 2" in shown.out
    assert "no price known" in shown.out
    assert " -\n" not in shown.out.partition("links")[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("h1000",), "unknown chip"),
        (("h200", "--sort", "memory"), "--sort is for the list of chips"),
        (("h200", "--vendor", "nvidia"), "leave CHIP out"),
        (("--vendor", "nvida"), "did you mean"),
        (("--min-memory", "80"), "--min-memory: '80' has no unit"),
        (("--sort", "speed"), "peak.fp8"),
        (("h200", "--quant", "fp8"), "--quant needs --model"),
    ],
)
def test_bad_questions(words, said):
    assert said in refused("chips", *words)
