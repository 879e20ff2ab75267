"""Two deployments held against each other: terms that add up, the grammar of what B changes; and all placements."""

import pytest
from cli.command import inferometer, refused

from inferometer.cli.against import against
from inferometer.cli.options import Options
from inferometer.report.terms import TERMS

MOE = ("explain", "deepseek-v3", "h200", "8x2", "--sizes", "DPA=16", "--batch", "256")
DENSE = ("explain", "llama-3.1-70b", "h100", "8x1", "--sizes", "TP=8", "--batch", "64")


def comparison(*words):
    done = inferometer(*words, "--json")
    assert done.status == 0, done.err
    (row,) = done.rows
    return row


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (MOE, "--sizes PP=2,DPA=8"),
        (MOE, "--sizes PP=4,DPA=2,TP=2 --phase prefill --isl 512"),
        (MOE, "--sizes DPA=8,TP=2,DCP=2 --scheduler serial"),
        (MOE, "b200 --what-if link.nvlink=2x"),
        (MOE, "--kv-cache-dtype fp8 --batch 3"),
        (DENSE, "--sizes TP=4,R=2"),
        (DENSE, "--sizes TP=2,PP=4 --batch 3"),
        (DENSE, "--sizes TP=2,PP=3 6x1"),
        (DENSE, "--quant fp8 --engine vllm"),
        ((*DENSE, "--phase", "prefill"), "--sizes TP=4,PP=2"),
    ],
)
def test_the_terms_are_the_steps_and_their_difference(words, text):
    row = comparison(*words, "--against", text)
    steps = [row[side]["step_s"] for side in "ab"]
    for key, total in (("a_s", steps[0]), ("b_s", steps[1]), ("difference_s", steps[1] - steps[0])):
        assert sum(term[key] for term in row["terms"]) == pytest.approx(total, rel=1e-9, abs=1e-12)
    by_name = {term["term"]: term for term in row["terms"]}
    assert set(by_name) <= set(TERMS)
    assert row["ratio"]["step_s"] == steps[1] / steps[0]
    for side in ("a_s", "b_s"):
        assert all(term[side] >= -1e-12 * max(steps) for name, term in by_name.items() if name != "overlap hidden")
        assert by_name.get("overlap hidden", {side: 0})[side] <= 1e-12


def test_each_side_is_what_explain_gives():
    row = comparison(*MOE, "--against", "b200 --sizes DPA=8,TP=2 --batch 128")
    for side, words in (
        ("a", MOE),
        ("b", ("explain", "deepseek-v3", "b200", "8x2", "-tp", "2", "-dp", "8", "-ep", "16")),
    ):
        (alone,) = inferometer(*words, *(("--batch", "128") if side == "b" else ()), "--json").rows
        del alone["ops"], alone["flags"], alone["basis_shares"]
        assert row[side] == alone


def test_the_same_differs_in_nothing():
    row = comparison(*MOE, "--against", "h200")
    assert row["a"] == row["b"]
    assert {term["difference_s"] for term in row["terms"]} == {0}
    assert set(row["ratio"].values()) == {1}
    assert row["choices"] == {}
    assert "same" in inferometer(*MOE, "--against", "h200").out


def test_more_bandwidth_shows_where_it_goes():
    row = comparison(*DENSE, "--scheduler", "serial", "--against", "--what-if hbm_bandwidth=2x")
    moved = {term["term"]: term["difference_s"] for term in row["terms"]}
    assert moved["attention core"] < 0 > moved["FFN GEMMs"]
    assert moved["all-reduce"] == moved["all-gather"] == 0


def test_another_model_is_held_against_it():
    row = comparison("explain", "qwen3-8b", "h200", "1x1", "--batch-size", "8", "--against", "--model llama-3.1-8b")
    assert (row["a"]["model"], row["b"]["model"]) == ("qwen3-8b", "meta-llama-3.1-8b")
    assert sum(term["difference_s"] for term in row["terms"]) == pytest.approx(row["b"]["step_s"] - row["a"]["step_s"])


def test_memory_and_choices_are_of_both():
    row = comparison(*MOE, "--against", "--sizes DPA=4,TP=4")
    lines = {line["line"]: line for line in row["memory"]}
    for side in "ab":
        part = [lines[name][f"{side}_bytes"] for name in ("weights", "kv", "reserve", "free")]
        assert sum(part) == pytest.approx(lines["visible"][f"{side}_bytes"])
        assert lines["weights"][f"{side}_bytes"] == row[side]["weights_bytes_per_chip"]
    for name, taken in row["choices"].items():
        assert taken["a"] != taken["b"]
        assert [row[side]["choices"].get(name) for side in "ab"] == [taken["a"], taken["b"]]


A = Options(model="m", chip="h100", machine="8x1", sizes="TP=8", batch_size=4, isl=100, usd_per_chip_hour=2.0)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("b200", {"chip": "b200", "usd_per_chip_hour": None}),
        ("4x2", {"machine": "4x2"}),
        ("--model n b200", {"model": "n", "chip": "b200", "usd_per_chip_hour": None}),
        ("b200 4x2", {"chip": "b200", "machine": "4x2", "usd_per_chip_hour": None}),
        ("--sizes TP=4,R=2", {"sizes": "TP=4,R=2"}),
        ("-tp 4 -dp=2", {"sizes": None, "tensor_parallel_size": 4, "data_parallel_size": 2}),
        ("--quant fp8 4x1 --batch 8", {"machine": "4x1", "quant": "fp8", "batch_size": 8}),
        ("--context 50", {"isl": None, "context": 50}),
        ("--tier spot", {"tier": "spot", "usd_per_chip_hour": None}),
        ("--what-if tdp=2x --what-if hbm=2x", {"what_if": ["tdp=2x", "hbm=2x"]}),
        ("--mem-fraction 0.8", {"gpu_memory_utilization": 0.8}),
        ("'my chip.toml' 1x1", {"chip": "my chip.toml", "machine": "1x1", "usd_per_chip_hour": None}),
    ],
)
def test_what_b_changes_and_what_it_keeps(text, changes):
    b = against(A, text)
    kept = {name: getattr(A, name) for name in Options.__dataclass_fields__}
    assert {name: getattr(b, name) for name in Options.__dataclass_fields__} == kept | changes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--against is empty"),
        ("--quants fp8", "did you mean '--quant'?"),
        ("--json", "unknown option in --against"),
        ("--against h100", "unknown option in --against"),
        ("b200 8x1 8x2", "one word too many"),
        ("8x1 b200", "one word too many"),
        ("--batch", "needs a value"),
        ("--batch x", "not a whole number"),
        ("--mem-fraction x", "not a number"),
        ("--enable-expert-parallel=1", "takes no value"),
        ("--isl 5 --isl 6", "twice"),
        ("'", "No closing quotation"),
        ("h1000", "did you mean"),
        ("--sizes TP=3", "machine has 8 chips"),
        ("h100,b200", "explain takes one CHIP"),
        ("--what-if x=2x", "unknown field"),
    ],
)
def test_bad_againsts(text, said):
    assert said in refused(*DENSE, "--against", text)


def test_one_that_does_not_fit_is_named():
    done = inferometer(*DENSE, "--against", "--batch 5000")
    assert done.status == 1
    assert done.err.startswith("B: not feasible: batch-does-not-fit")
    assert "B is not feasible" in done.out


@pytest.mark.parametrize("words", [(*MOE[:4], "--sizes", "DPA=8,TP=2", "--batch", "64"), DENSE])
def test_placements_are_all_of_them_and_the_first_is_taken(words):
    rows = inferometer(*words, "--placements", "--json").rows
    (plain,) = inferometer(*words, "--json").rows
    steps = [row["step_s"] for row in rows]
    assert steps == sorted(steps)
    (taken,) = [row for row in rows if row["taken"]]
    assert taken["step_s"] == steps[0] == plain["step_s"]
    assert taken["placement"] == plain["placement"]
    assert taken["tok_per_s_per_chip"] == pytest.approx(plain["tok_per_s_per_chip"])
    for row in rows:
        spans = (
            f"{role}=" + "+".join(f"{axis}:{n}" for axis, n in axes.items())
            for role, axes in row["placement"].items()
            if axes
        )
        (again,) = inferometer(*words, "--placement", ",".join(spans), "--json").rows
        assert again["step_s"] == row["step_s"]


def test_placements_stand_alone():
    assert "leave --placement out" in refused(*DENSE, "--placements", "--placement", "TP=nvlink:8")
    assert "leave --against out" in refused(*DENSE, "--placements", "--against", "b200")


def test_against_the_ideal_engine_leaves_the_settings_of_an_allocator_out():
    words = ("llama-3.1-8b", "h100", "--engine", "vllm@0.24", "--max-num-seqs", "4", "--enforce-eager", "--isl", "500")
    (row,) = inferometer("explain", *words, "--against", "--engine ideal", "--json").rows
    assert row["a"]["batch"] == 4
    assert row["b"]["batch"] > 4
