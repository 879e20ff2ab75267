"""Options of recurrent states, from the command line to memory and time."""

import pytest
from cli.command import inferometer

AT = ("explain", "qwen3.5-27b", "h200", "1x1", "--batch-size", "4", "--context", "1000", "--json")


def row(*options):
    return inferometer(*AT, *options).rows[0]


def state(*options):
    return row(*options)["state_bytes_per_sequence_per_chip"]


def test_a_sequence_holds_as_many_copies_of_its_states_as_told():
    assert state() == 48 * (3_145_728 + 61_440)
    assert state("--state-slots", "5") == 5 * 48 * (3_145_728 + 61_440)
    assert row("--state-slots", "5")["kv_bytes_per_sequence_per_chip"] == row()["kv_bytes_per_sequence_per_chip"]
    assert row("--state-slots", "5")["resident_sequences"] < row()["resident_sequences"]


def test_narrow_states_take_half_the_room_and_less_time():
    assert state("--state-dtype", "bf16") == 48 * (3_145_728 / 2 + 61_440)
    assert state("--state-dtype", "float32") == state("--state-dtype", "auto") == state()
    assert row("--state-dtype", "bf16")["tpot_s"] < row()["tpot_s"]


def test_states_of_convolutions_are_left_out_when_told():
    assert state("--no-conv-state") == 48 * 3_145_728
    assert row("--no-conv-state")["tpot_s"] == row()["tpot_s"]
    kept = inferometer("kv", "qwen3.5-27b", "--no-conv-state", "--context", "1000", "--json").rows[0]
    assert kept["state_bytes_per_sequence"] == 48 * 3_145_728


@pytest.mark.parametrize("verb", ["explain", "max-batch", "search"])
def test_what_no_engine_does_is_refused_beside_one(verb):
    said = inferometer(verb, "kimi-k3", "gb300-nvl72", "32x1", "--engine", "vllm", "--cut-latents", "--no-conv-state")
    assert said.status == 2
    assert said.err.startswith("inferometer: --no-conv-state and --cut-latents is no rule of vllm@0.24")


@pytest.mark.parametrize(
    ("option", "said"),
    [("--no-conv-state", "no convolution of"), ("--cut-latents", "projects to no latents")],
)
def test_what_a_model_lacks_is_refused(option, said):
    got = inferometer("search", "llama-3.1-8b", "h100", option)
    assert got.status == 2
    assert said in got.err
    assert got.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--state-slots", "0"), "--state-slots 0: must be from 1"),
        (("--state-dtype", "fp8"), "unknown format of a recurrent state 'fp8'"),
        (("--state-dtype", "nonsense"), "unknown format of a recurrent state 'nonsense'"),
    ],
)
def test_what_is_no_state_is_refused_in_one_line(options, said):
    got = inferometer(*AT, *options)
    assert got.status == 2
    assert said in got.err
    assert got.err.count("\n") == 1


def test_a_model_without_states_says_so():
    got = inferometer("explain", "llama-3.1-8b", "h100", "1x1", "--state-slots", "2", "--state-dtype", "bf16")
    assert "--state-dtype and --state-slots not used: meta-llama-3.1-8b keeps no recurrent state" in got.err


HYBRIDS = (
    "qwen3-next-80b-a3b-instruct",
    "qwen3.5-35b-a3b",
    "kimi-linear-48b-a3b-instruct",
    "nvidia-nemotron-3-nano-30b-a3b-nvfp4",
    "mamba-codestral-7b-v0.1",
    "lfm2-1.2b",
    "minimax-m1-80k",
)


@pytest.mark.parametrize("model", HYBRIDS)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_search_finds_and_explain_repeats_a_winner(model, phase):
    best = inferometer("search", model, "h200", "8x1", "--phase", phase, "--top", "1", "--json").rows[0]
    assert best["feasible"]
    sizes = ",".join(f"{role.upper()}={size}" for role, size in best["sizes"].items())
    same = ("--sizes", sizes, "--batch-size", str(best["batch"]), "--phase", phase)
    again = inferometer("explain", model, "h200", "8x1", *same, "--json").rows[0]
    assert again["step_s"] == best["step_s"]
    assert {op["kind"] for op in again["ops"]} >= {"gemm"}
    assert all(op["kind"] != "scan" or op["bytes"]["state"] > 0 for op in again["ops"])


def test_explain_shows_what_states_take():
    out = inferometer("explain", "qwen3.5-27b", "h200", "1x1", "--batch-size", "4").out
    assert "state of 4 sequences" in out
    assert "state-scan bf16" in out
    assert "(GDN 48/16, dense)" in out
    assert "--mamba-ssm-cache-dtype float32" in out


def test_a_model_without_attention_has_no_use_for_context_ranks():
    got = inferometer("explain", "mamba-codestral", "h200", "8x1", "--sizes", "TP=8,DCP=2", "--batch-size", "8")
    assert got.status == 1
    assert "dcp-without-kv" in got.err
    lost = inferometer("search", "mamba-codestral", "h200", "8x1").out
    assert "dcp-without-kv" in lost


def test_an_answer_with_cut_latents_says_that_no_engine_runs_it():
    words = ("explain", "deepseek-v3.2", "b200", "8x1", "-tp", "8", "-ep", "8", "--batch-size", "8")
    cut, whole = inferometer(*words, "--cut-latents").out, inferometer(*words).out
    for engine in ("vllm", "sglang"):
        assert f"{engine} cannot run this deployment: engine-refuses-cut-latents" in cut
    assert "cut-latents" not in whole
