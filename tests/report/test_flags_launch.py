"""Flags we print start: they keep the engine's own memory rules (ai-dynamo/dynamo issue 10104)."""

import re
import shlex

import pytest

from inferometer.api.memory import memory
from inferometer.api.questions import estimate
from inferometer.report.flags import launch_flags

ASKED = [
    ("meta-llama-3.1-8b", "h100 1x1", {}),
    ("meta-llama-3.1-70b", "h100 4x1", {}),
    ("meta-llama-3.1-70b", "h100 2x1", {"TP": 2}),
    ("qwen3-235b-a22b-fp8", "h200 8x1", {"TP": 8, "EP": 8}),
    ("deepseek-v3", "h200 8x2", {"DPA": 16, "EP": 16}),
    ("gemma-4-31b", "h100 1x1", {}),
    ("qwen2.5-7b", "rtx4090 1x1", {}),
]


def flag(command, name, kind=float):
    words = shlex.split(command)
    return kind(words[words.index(name) + 1])


@pytest.mark.parametrize(("name", "where", "sizes"), ASKED)
@pytest.mark.parametrize("context", [2048, 32_000])
def test_printed_flags_start(name, where, sizes, context):
    answer = estimate(name, where, sizes, context=context)
    for engine in launch_flags(answer):
        if engine.command is None:
            assert engine.notes
            continue
        vllm = engine.engine == "vllm"
        length = flag(engine.command, "--max-model-len" if vllm else "--context-length", int)
        seqs = flag(engine.command, "--max-num-seqs" if vllm else "--max-running-requests", int)
        share = flag(engine.command, "--gpu-memory-utilization" if vllm else "--mem-fraction-static")
        started = memory(
            answer.problem.model,
            where,
            sizes,
            engine="vllm@0.24" if vllm else "sglang",
            max_model_len=length,
            max_num_seqs=seqs if vllm else -(-seqs // answer.estimate.sizes.dpa),
            gpu_memory_utilization=share,
        )
        assert not started.plan.reasons, (engine.engine, started.plan.reasons)
        said = [note for note in engine.notes if "its own reserves leave room" in note]
        room = re.search(r"room for ([\d,]+) of", said[0])[1] if said else None
        if room is not None:
            assert int(room.replace(",", "")) < answer.estimate.batch


def test_a_server_that_would_not_start_has_no_command():
    answer = estimate("meta-llama-3.1-70b", "h100 2x1", {"TP": 2}, context=20_000, batch=1)
    (vllm, _) = launch_flags(answer)
    if answer.estimate.feasible and vllm.command is None:
        assert any("would not start with these flags" in note for note in vllm.notes)
