"""Launch flags say what engines understand, or why they cannot run a deployment."""

import re

import pytest

from inferometer import estimate
from inferometer.report.flags import launch_flags

KNOWN = {
    "vllm": "tensor-parallel-size pipeline-parallel-size data-parallel-size enable-expert-parallel"
    " decode-context-parallel-size max-model-len max-num-seqs gpu-memory-utilization kv-cache-dtype",
    "sglang": "model-path tp-size pp-size dp-size enable-dp-attention ep-size dcp-size context-length"
    " max-running-requests mem-fraction-static kv-cache-dtype",
}
"""docs.vllm.ai configuration/engine_args; docs.sglang.io advanced_features/server_arguments and dcp."""


def flags(model, machine, sizes, **settings):
    """Engine -> flag -> value, None where the engine cannot run it."""
    found = {}
    for one in launch_flags(estimate(model, machine, sizes, batch=settings.pop("batch", 64), **settings)):
        listed = re.findall(r"--([a-z-]+)(?: ([^-\s]\S*))?(?= |$)", one.command or "")
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
