"""cost on the command line: every printed $ follows from printed tok/s and $/h."""

import pytest
from cli.command import inferometer, refused
from cli.test_rows import check, schema

QWEN = ("qwen2.5-7b", "rtx4090", "--batch-size", "16", "--backend", "roofline")


def row(*words):
    (found,) = inferometer("cost", *words, "--json").rows
    check(found, schema("cost"))
    return found


def recomputed(found):
    """The $ of a row again, from its rates and its bill."""
    share = found["utilization"]
    assert found["tok_per_hour"] == pytest.approx(3600 * found["tok_per_s"] * share)
    assert found["tok_per_s"] == pytest.approx(found["batch"] / found["tpot_s"])
    assert found["usd_per_month"] == pytest.approx(found["usd_per_hour"] * 730)
    if found["owned"] is None:
        assert found["usd_per_hour"] == pytest.approx(found["usd_per_chip_hour"] * found["chips_billed"])
    hourly = found["usd_per_hour"]
    assert found["decode_only_usd_per_mtok_output"] == pytest.approx(hourly / found["tok_per_hour"] * 1e6)
    if found["output_tok_per_s"] is None:
        assert found["usd_per_mtok_output"] is None
        return
    out, prompt = (3600 * share * found[key] for key in ("output_tok_per_s", "input_tok_per_s"))
    assert found["usd_per_mtok_output"] == pytest.approx(hourly / out * 1e6)
    assert found["usd_per_mtok_input"] == pytest.approx(hourly * found["prefill_share"] / prompt * 1e6)
    assert found["usd_per_mtok_blended"] == pytest.approx(hourly / (out + prompt) * 1e6)


def simple_bandwidth(read_bytes, bytes_per_s, batch, usd_per_hour):
    """TPOT, tok/s and $ a million tokens as calculators of bandwidth alone have them."""
    step_s = read_bytes / bytes_per_s
    return step_s, batch / step_s, usd_per_hour / (3600 * batch / step_s) * 1e6


def test_the_closed_form_of_bandwidth_alone():
    # 7,615,283,200 parameters without the biases of q, k and v; 28 layers x 2 x 4 heads x 128 x 2 B a token
    weights, kv = 2 * (7_615_616_512 - 28 * (3584 + 2 * 512)), 16 * 2048 * 28 * 2 * 4 * 128 * 2
    read = weights + kv
    assert abs(read - 17.110023e9) < 1e3
    step_s, tok_per_s, usd = simple_bandwidth(read, 0.8 * 1008e9, 16, 0.44)
    assert (step_s, tok_per_s) == (pytest.approx(21.2178e-3, rel=1e-5), pytest.approx(754.084, rel=1e-5))
    assert usd == pytest.approx(0.16208, rel=1e-4)
    assert abs(730 * 0.44 - 321.20) < 1e-9
    one = weights + kv / 16
    for hourly, wanted in ((1.89, 4.9399), (1.49, 3.8944), (5.12, 13.3821), (3.67, 9.5922)):
        _, rate, usd = simple_bandwidth(one, 0.8 * 2039e9, 1, hourly)
        assert (rate, usd) == (pytest.approx(106.28, rel=1e-4), pytest.approx(wanted, rel=1e-4))


def test_ours_leaves_the_input_table_out():
    found = row(*QWEN, "--context", "2048", "--usd-per-chip-hour", "0.44")
    table = 152_064 * 3584
    # what is read of the table is a row a sequence; a step writes one token of each
    weights = 2 * (7_615_616_512 - table + 16 * 3584)
    assert found["read_by_kind_bytes_per_step"]["weights"] == pytest.approx(weights, rel=1e-4)
    assert found["read_by_kind_bytes_per_step"]["kv"] == pytest.approx(1_879_048_192, rel=1e-3)
    assert found["read_bytes_per_step"] / (0.8 * 1008e9) == pytest.approx(19.87e-3, rel=1e-3)
    recomputed(found)


@pytest.mark.parametrize(
    "words",
    [
        (*QWEN, "--context", "2048"),
        (*QWEN, "--isl", "1000", "--osl", "300", "--utilization", "0.37"),
        (*QWEN, "--capex", "2500", "--kwh", "0.3", "--pue", "1.1", "--years", "3"),
        ("deepseek-v3", "h200", "8x2", "--sizes", "DPA=8,TP=2", "--batch", "512"),
        ("llama-3.1-70b", "h100", "3x1", "--sizes", "PP=3", "--batch", "6", "--osl", "1"),
        ("llama-3.1-8b", "p5.48xlarge", "--batch", "64", "--engine", "vllm"),
    ],
)
def test_every_dollar_follows_from_what_is_printed(words):
    recomputed(row(*words))


def test_three_chips_of_an_instance_of_eight_cost_eight():
    found = row("llama-3.1-70b", "h100", "3x1", "--sizes", "PP=3", "--batch", "6", "--provider", "Nebius")
    assert (found["n_chips"], found["instance_chips"], found["chips_billed"]) == (3, 8, 8)
    assert found["usd_per_hour"] == pytest.approx(8 * found["usd_per_chip_hour"])
    given = row("llama-3.1-70b", "h100", "3x1", "--sizes", "PP=3", "--batch", "6", "--usd-per-chip-hour", "2")
    assert given["usd_per_hour"] == pytest.approx(3 * 2)


def test_one_chip_takes_an_instance_of_one_where_that_bills_less():
    found = row("llama-3.1-8b", "h100", "--batch", "1")
    assert (found["instance"], found["chips_billed"]) == ("gpu_1x_h100_sxm5", 1)
    assert row("llama-3.1-8b", "h100", "8x1", "--batch", "8")["instance"] == "gpu-h100-sxm_8gpu"


def test_utilisation_scales_dollars_and_not_the_bill():
    full, half = row(*QWEN), row(*QWEN, "--utilization", "0.5")
    assert half["usd_per_hour"] == full["usd_per_hour"]
    for key in ("usd_per_mtok_output", "usd_per_mtok_input", "usd_per_mtok_blended"):
        assert half[key] == pytest.approx(2 * full[key])
    assert half["joules_per_mtok_output"] > full["joules_per_mtok_output"]  # a chip at rest draws power too


def test_owned_hardware_is_capex_and_power():
    found = row(*QWEN, "--capex", "2628", "--years", "3", "--kwh", "0.2", "--pue", "1.5")
    power = found["power_w"] / 1000 * 1.5 * 0.2
    assert found["usd_per_hour"] == pytest.approx(2628 / (3 * 8760) + power)
    assert found["price_source"].startswith("owned: $2,628 over 3 years")
    assert found["kwh_per_mtok_output"] == pytest.approx(found["joules_per_mtok_output"] / 3.6e6)
    rate = found["output_tok_per_s"]
    assert found["joules_per_mtok_output"] == pytest.approx(found["power_w"] / rate * 1e6)


def test_break_even_is_the_utilisation_that_meets_the_price():
    even = row(*QWEN, "--break-even", "0.05")["break_even"]
    again = row(*QWEN, "--utilization", str(even["utilization"]))
    assert again["usd_per_mtok_blended"] == pytest.approx(0.05)
    assert even["requests_per_s"] == pytest.approx(even["utilization"] * again["requests_per_s"])
    assert row(*QWEN, "--break-even", "0.0001")["break_even"]["utilization"] is None
    alone = row(*QWEN, "--context", "2048", "--break-even", "1")["break_even"]
    assert alone["of"] == "decode_only_output"


def test_clouds_are_every_price_of_the_chip_the_cheapest_first():
    rows = inferometer("cost", "qwen2.5-7b", "a100-80gb", "--batch", "8", "--compare-clouds", "--json").rows
    assert {found["provider"] for found in rows} >= {"AWS", "Azure", "GCP", "Lambda", "Oracle", "CoreWeave"}
    assert {found["tier"] for found in rows} >= {"on-demand", "spot"}
    bills = [found["usd_per_hour"] for found in rows]
    assert bills == sorted(bills)
    for found in rows:
        check(found, schema("cost"))
        recomputed(found)
        assert found["price_date"]
    only = inferometer("cost", "qwen2.5-7b", "a100-80gb", "--compare-clouds", "--tier", "spot", "--json").rows
    assert {found["tier"] for found in only} == {"spot"}


def test_every_chip_has_a_row_and_those_that_do_not_fit_a_reason():
    rows = inferometer("cost", "llama-3.1-70b", "--compare-all", "-tp", "4", "--batch", "4", "--json").rows
    chips = {found["chip"] for found in inferometer("chips", "--json").rows}
    assert {found["chip"] for found in rows} == chips
    assert any(not found["feasible"] for found in rows)
    for found in rows:
        check(found, schema("cost" if "tpot_s" in found else "lost"))
        assert found["feasible"] or found["reasons"]


def test_what_does_not_fit_is_exit_1():
    done = inferometer("cost", "llama-3.1-70b", "h100", "--batch", "1")
    assert done.status == 1
    assert "not feasible: weights-do-not-fit" in done.err


def test_the_page_says_the_rule_and_each_definition():
    said = " ".join(inferometer("cost", *QWEN).out.split())
    assert "least bill an hour in whole instances" in said
    assert "at 100% utilisation" in said
    assert "TDP x (0.3 + 0.7 x busy)" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("h100", "--utilization", "0"), "--utilization 0.0: must be above 0"),
        (("h100", "--utilization", "1.1"), "at most 1"),
        (("h100", "--years", "3"), "give --capex"),
        (("h100", "--capex", "-1"), "--capex -1.0: must be 0 or more"),
        (("h100", "--capex", "1", "--pue", "0.5"), "--pue 0.5: must be 1 or more"),
        (("h100", "--capex", "1", "--tier", "spot"), "give one"),
        ((), "needs CHIP"),
        (("h100,h200",), "takes one CHIP"),
        (("h100", "--compare-all", "--compare-clouds"), "not both"),
        (("h100", "--compare-clouds", "--capex", "1"), "catalogue's prices"),
        (("h100", "--break-even", "nan"), "--break-even nan"),
    ],
)
def test_bad_input_is_one_line(words, said):
    assert said in refused("cost", "llama-3.1-8b", *words)
