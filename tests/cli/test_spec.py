"""spec on the command line: its parts are what explain and memory say of each model alone."""

import pytest
from cli.command import inferometer, refused
from cli.test_rows import check, schema

BASE = ("qwen3-32b", "a100-80gb", "--quant", "int4", "--backend", "roofline", "--context", "4096")
DRAFT = ("--draft", "qwen3-0.6b", "--lookahead", "4", "--acceptance", "0.75")


def row(*words):
    (found,) = inferometer("spec", *words, "--json").rows
    check(found, schema("speculation"))
    return found


def explained(*words):
    (found,) = inferometer("explain", *words, "--json").rows
    return found


def test_the_parts_are_those_of_each_model_alone():
    found = row(*BASE, *DRAFT, "--batch", "4")
    assert found["tokens_per_pass"] == pytest.approx(3.0508, abs=5e-5)
    target = explained(*BASE, "--batch", "4")
    draft = explained("qwen3-0.6b", *BASE[1:2], *BASE[4:], "--batch", "4")
    assert found["decode_s"] == target["step_s"]
    assert found["draft_s"] == draft["step_s"]
    assert found["draft_weights_bytes_per_chip"] == draft["weights_bytes_per_chip"]
    assert found["weights_bytes_per_chip"] == target["weights_bytes_per_chip"]
    assert found["draft_cache_bytes_per_chip"] == pytest.approx(4 * draft["kv_bytes_per_sequence_per_chip"])
    gain = found["tokens_per_pass"] * found["decode_s"] / (4 * found["draft_s"] + found["verify_s"])
    assert found["speedup"] == pytest.approx(gain)
    assert found["tok_per_s"] == pytest.approx(gain * 4 / found["decode_s"])
    assert found["tpot_s"] == pytest.approx(1 / found["tok_per_s_per_user"])


def test_a_verify_costs_a_decode_or_more_and_less_than_its_rows_apart():
    found = row(*BASE, *DRAFT)
    for one in (*found["lookaheads"], *found["batches"]):
        assert one["decode_s"] <= one["verify_s"] < (one["lookahead"] + 1) * one["decode_s"]


def test_the_best_lookahead_is_the_best_of_those_listed():
    found = row(*BASE, *DRAFT)
    best = max(found["lookaheads"], key=lambda one: one["speedup"])
    assert (found["best_lookahead"], found["best_speedup"]) == (best["lookahead"], best["speedup"])
    assert found["speedup"] in [one["speedup"] for one in found["lookaheads"]]


def test_a_batch_that_is_bound_by_compute_ends_the_gain():
    found = row("qwen3-8b", "l40s", "--context", "128", "--draft", "qwen3-0.6b", "--lookahead", "8",
                "--acceptance", "0.5", "--backend", "roofline")  # fmt: skip
    gains = [one["speedup"] for one in found["batches"]]
    assert gains[0] > 1 > gains[-1]
    first = next(one["batch"] for one in found["batches"] if one["speedup"] <= 1)
    assert found["gain_ends_at_batch"] == first


def test_the_model_s_own_drafter_shares_its_ends():
    found = row("deepseek-v3", "h200", "8x1", "--acceptance", "0.8", "--lookahead", "2", "--context", "4096")
    assert found["draft"] == "deepseek-v3's own mtp"
    assert found["draft_passes"] == 2
    # one layer of 61, experts over 8 chips: far below two tables of 129,280 x 7168
    assert found["draft_weights_bytes_per_chip"] < found["weights_bytes_per_chip"] / 30
    assert found["draft_s"] < found["decode_s"] / 10


def test_a_tree_is_told_by_its_mean():
    found = row(*BASE, "--draft", "qwen3-0.6b", "--lookahead", "4", "--tree-tokens", "16", "--accepted", "2.5")
    assert found["tokens_per_pass"] == 3.5
    assert (found["drafted"], found["draft_passes"]) == (16, 4)
    assert found["lookaheads"] == []


def test_two_that_do_not_fit_together_are_exit_1():
    # 61.0 GiB of weights in 72 GiB of room, and a drafter of 14.2
    done = inferometer("spec", "qwen3-32b", "a100-80gb", "--draft", "qwen2.5-7b", "--acceptance", "0.7",
                       "--context", "1024", "--json")  # fmt: skip
    assert done.status == 1
    (found,) = done.rows
    assert found["free_bytes_per_chip"] < 0
    assert found["reasons"][0].startswith("draft-does-not-fit")


def test_the_page_has_all_of_it():
    said = " ".join(inferometer("spec", *BASE, *DRAFT).out.split())
    assert "3.0508 a pass" in said
    assert "GiB free" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lookahead", "4", "--acceptance", "0.7"), "has no drafter of its own; give --draft"),
        (("--draft", "qwen3-0.6b"), "give --acceptance"),
        (("--draft", "qwen3-0.6b", "--acceptance", "1.2"), "--acceptance 1.2: must be from 0 to 1"),
        (("--draft", "qwen3-0.6b", "--acceptance", "0.7", "--lookahead", "0"), "--lookahead 0"),
        (("--draft", "qwen3-0.6b", "--accepted", "9"), "--accepted 9.0: must be from 0 to --lookahead 4"),
        (("--draft", "qwen3-0.6b", "--acceptance", "0.7", "--tree-tokens", "9"), "--tree-tokens is of a tree"),
        (("--draft", "nobody", "--acceptance", "0.7"), "unknown model"),
    ],
)
def test_bad_input_is_one_line(words, said):
    assert said in refused("spec", "qwen3-32b", "a100-80gb", *words)
