"""Launch flags say what engines understand, or why they cannot run a deployment."""

import json
import re

import pytest

from inferometer import estimate, load_model, search
from inferometer.catalog.loader import preset_config
from inferometer.errors import UnknownNameError
from inferometer.report.flags import launch_flags

KNOWN = {
    "vllm": "tensor-parallel-size pipeline-parallel-size data-parallel-size enable-expert-parallel"
    " all2all-backend dcp-comm-backend decode-context-parallel-size max-model-len max-num-seqs"
    " gpu-memory-utilization kv-cache-dtype",
    "sglang": "model-path tp-size pp-size dp-size enable-dp-attention ep-size dcp-size context-length"
    " max-running-requests mem-fraction-static kv-cache-dtype moe-a2a-backend deepep-mode",
}
"""docs.vllm.ai configuration/engine_args; docs.sglang.io advanced_features/server_arguments and dcp."""


def flags(model, machine, sizes, **settings):
    """Engine -> flag -> value, None where the engine cannot run it."""
    found = {}
    for one in launch_flags(estimate(model, machine, sizes, batch=settings.pop("batch", 64), **settings)):
        listed = re.findall(r"--([a-z0-9-]+)(?: ([^-\s]\S*))?(?= |$)", one.command or "")
        found[one.engine] = dict(listed) if one.command else None
        assert set(found[one.engine] or {}) <= set(KNOWN[one.engine].split())
    return found


def test_expert_parallel_attention_data_parallel():
    found = flags("deepseek-v3", "gb200-nvl72 32x1", "DPA=16,TP=2,EP=32", batch=512)
    assert found["vllm"]["tensor-parallel-size"] == "2"
    assert found["vllm"]["data-parallel-size"] == "16"
    assert "enable-expert-parallel" in found["vllm"]
    assert found["vllm"]["max-num-seqs"] == str(512 // 16), "vLLM counts one DP rank"
    assert found["sglang"]["tp-size"] == str(16 * 2), "SGLang's TP is the whole stage"
    assert found["sglang"]["dp-size"] == "16"
    assert found["sglang"]["ep-size"] == "32"
    assert found["sglang"]["max-running-requests"] == "512", "SGLang counts all DP ranks"


def test_tensor_parallel_experts_need_no_flag():
    found = flags("mixtral-8x7b", "h100 8x1", "EP=1")
    assert "enable-expert-parallel" not in found["vllm"]
    assert "ep-size" not in found["sglang"]


def test_experts_cut_both_ways_run_on_sglang_only():
    found = flags("deepseek-v3", "h200 8x2", "EP=8,ETP=2")
    assert found["vllm"] is None
    assert found["sglang"]["ep-size"] == "8"


def test_replicas_are_servers_of_their_own():
    (vllm, sglang) = launch_flags(estimate("llama-3.1-8b", "h100 8x1", "R=4", batch=40))
    assert vllm.servers == sglang.servers == 4
    assert "--tensor-parallel-size 2 " in vllm.command
    assert "--max-num-seqs 10 " in vllm.command
    assert "each on 2 chips" in vllm.notes[0]


def test_memory_and_formats_carry_over():
    found = flags("llama-3.1-8b", "h100", "TP=1", batch=8, kv_cache_dtype="fp8", gpu_memory_utilization=0.8)
    assert found["vllm"]["gpu-memory-utilization"] == found["sglang"]["mem-fraction-static"] == "0.80"
    assert found["vllm"]["kv-cache-dtype"] == found["sglang"]["kv-cache-dtype"] == "fp8_e4m3"
    assert found["vllm"]["max-model-len"] == str(8192 + 1024)


def test_context_parallel_decode():
    found = flags("deepseek-v3", "h200 8x2", "TP=16,DCP=8")
    assert found["vllm"]["decode-context-parallel-size"] == found["sglang"]["dcp-size"] == "8"
    assert flags("llama-3.1-70b", "h100 8x2", "TP=16,DCP=2")["sglang"] is None


@pytest.mark.parametrize(
    ("machine", "settings"),
    [("h100 1x1", {"batch": 100_000}), ("tpu-v5p 2x2x1", {}), ("h100 1x1", {"kv_cache_dtype": "int8"})],
)
def test_what_does_not_launch_is_not_printed(machine, settings):
    for one in launch_flags(estimate("llama-3.1-8b", machine, **settings)):
        assert one.command is None
        assert one.notes


def said(which, *question, **settings):
    """The command and the notes of one engine, on one line."""
    (one,) = [flags for flags in launch_flags(estimate(*question, **settings)) if flags.engine == which]
    return one.command, " ".join(one.notes)


@pytest.mark.parametrize(
    ("model", "machine", "sizes", "settings", "why"),
    [
        ("llama-3.1-70b", "h100 8x2", "TP=16,DCP=4", {}, "engine-refuses-dcp"),
        ("qwen3-235b-a22b", "h100 3x1", "DPA=3,EP=3", {"quant": "int4-g128"}, "experts-not-divisible"),
        ("deepseek-v3", "h200 8x2", "EP=8,ETP=2", {}, "engine-refuses-ep"),
        ("deepseek-v3", "h200 8x4", "EP=1", {}, "block-not-divisible"),
        ("llama-2-7b", "h100 1x1", "TP=1", {"isl": 9000, "batch": 1}, "beyond-context"),
    ],
)
def test_what_vllm_refuses_is_not_printed(model, machine, sizes, settings, why):
    command, notes = said("vllm", model, machine, sizes, **({"batch": 16} | settings))
    assert command is None
    assert why in notes


def test_rules_of_one_engine_and_limits_keep_no_other_from_starting():
    late = estimate("llama-3.1-8b", "h100", batch=8, slo="tpot=1us")
    assert not late.estimate.feasible
    assert all(one.command for one in launch_flags(late))
    mixed = estimate("deepseek-v3", "h200 8x2", "EP=8,ETP=2", batch=16, engine="vllm")
    assert not mixed.estimate.feasible
    assert [one.command is None for one in launch_flags(mixed)] == [True, False]


@pytest.mark.parametrize(
    ("machine", "batch", "exchange", "backend", "mode"),
    [
        ("gb200-nvl72 32x1", 512, "coalesced", "deepep_high_throughput", "normal"),
        ("h200 8x4", 4096, "merged", "deepep_high_throughput", "normal"),
    ],
)
def test_flags_ask_for_the_exchange_that_was_priced(machine, batch, exchange, backend, mode):
    answer = estimate("deepseek-v3", machine, "DPA=32,EP=32", batch=batch, engine="vllm")
    plans = {choice.name: choice.plan for choice in answer.estimate.choices}
    assert (plans["moe-dispatch"], plans["moe-exchange"]) == ("exchange", exchange)
    vllm, sglang = launch_flags(answer)
    assert f"--all2all-backend {backend} " in vllm.command
    assert f"--moe-a2a-backend deepep --deepep-mode {mode} " in sglang.command
    assert bool(vllm.notes) == (exchange == "merged"), "only what spans nodes needs a note"
    (gathers, _) = said("vllm", "deepseek-v3", "h200 8x2", "DPA=16,EP=1", batch=64)
    assert "all2all" not in gathers


def test_what_vllm_does_otherwise_is_said():
    question = ("llama-3.1-70b", "h100 8x1", "TP=8")
    assert "logits=local" in said("vllm", *question, batch=64)[1]
    assert "priced with" not in said("vllm", *question, batch=64, engine="vllm")[1]


def test_a_kv_cache_that_is_not_the_checkpoint_s_is_asked_for(tmp_path):
    config = tmp_path / "tiny" / "config.json"
    config.parent.mkdir()
    stored = preset_config("llama-3.1-8b").config | {
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "FP8",
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        }
    }
    config.write_text(json.dumps(stored))
    path = str(config)
    assert load_model(path).kv_format == "fp8"
    command, _ = said("vllm", path, "h100", batch=8, kv_cache_dtype="bf16")
    assert command.startswith(f"vllm serve {config.parent} ")
    assert command.endswith("--kv-cache-dtype bfloat16")
    assert "--kv-cache-dtype fp8_e4m3" in said("vllm", path, "h100", batch=8)[0]
    assert said("vllm", "llama-3.1-8b", "h100", batch=8, kv_cache_dtype="fp32")[0] is None
    assert "--kv-cache-dtype" not in said("vllm", "llama-3.1-8b", "h100", batch=8, kv_cache_dtype="bf16")[0]


def test_what_is_served_is_named_or_said_to_be_a_placeholder():
    command, notes = said("vllm", "llama-3.1-8b", "h100", batch=8)
    assert command.startswith("vllm serve meta-llama/")
    assert "MODEL" not in notes
    command, notes = said("vllm", "llama-3.1-8b", "h100", batch=8, quant="fp8")
    assert command.startswith("vllm serve MODEL ")
    assert "MODEL stands for" in notes


def test_apple_gpus_have_other_front_ends():
    for one in launch_flags(estimate("llama-3.1-8b", "m2-ultra", batch=1)):
        assert one.command is None


@pytest.mark.parametrize("ask", [estimate, search])
def test_a_keyword_that_is_none_is_refused(ask):
    with pytest.raises(UnknownNameError, match=r"unknown keyword 'choices'; did you mean 'choice'\?"):
        ask("llama-3.1-8b", "h100 1x1", choices="mla=absorbed")
