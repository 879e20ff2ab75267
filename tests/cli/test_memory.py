"""memory, max-batch and max-context on the command line."""

import pytest
from cli.command import inferometer, refused
from cli.test_rows import check, schema

from inferometer.report.schema import MEMORY, MOST

GIB = 2.0**30


def row(*words):
    (found,) = inferometer(*words, "--json").rows
    return found


def test_keys_are_those_of_the_schema():
    found = row("memory", "llama-3.1-8b", "h100", "--context", "16000", "--engine", "vllm@0.24")
    assert list(found) == [field.name for field in MEMORY]
    most = row("max-batch", "llama-3.1-8b", "h100", "--context", "16000")
    assert list(most) == [field.name for field in MOST]
    assert list(most["memory"]) == [field.name for field in MEMORY]
    check(found, schema("memory"))
    check(most, schema("most"))


def test_what_fits_exits_0_and_its_lines_sum_to_the_chip():
    done = inferometer("memory", "llama-3.1-8b", "h100", "--context", "16000", "--engine", "vllm@0.24", "--json")
    (found,) = done.rows
    assert done.status == 0
    assert found["fits"]
    assert found["deficit_bytes"] == 0
    assert sum(line["bytes"] for line in found["lines"]) == pytest.approx(81_559 * 2**20)
    assert found["weights_bytes_per_chip"] == 2 * 8_030_261_248
    assert found["kv_bytes_per_token_per_chip"] == 2 * 32 * 8 * 128 * 2
    assert found["blocks_per_request"] == 16_000 // 16
    assert found["kv_tokens"] == pytest.approx(found["max_concurrency"] * 16_000, abs=1)


def test_what_does_not_fit_exits_1_with_the_deficit_and_what_would():
    done = inferometer("memory", "llama-3.1-70b", "h100", "--context", "16000", "--engine", "vllm@0.24", "--json")
    (found,) = done.rows
    assert done.status == 1
    assert not found["fits"]
    assert found["deficit_bytes"] > 50 * GIB
    assert "would fit: " in done.err
    for near in found["nearest"]:
        if near.startswith("--"):
            again = inferometer(
                "memory", "llama-3.1-70b", "h100", "--engine", "vllm@0.24", "--context", "16000", *near.split()
            )
            assert again.status == 0, near
    chips = next(near for near in found["nearest"] if "chips" in near)
    n = chips.split()[0]
    more = ("memory", "llama-3.1-70b", "h100", f"{n}x1", "--context", "16000", "--engine", "vllm@0.24")
    assert inferometer(*more).status == 0


def test_the_nearest_batch_and_context_fit():
    words = ("memory", "llama-3.1-8b", "h100", "--engine", "vllm@0.24")
    found = row(*words, "--context", "100000", "--batch-size", "50")
    batch = next(near for near in found["nearest"] if near.startswith("--batch-size"))
    context = next(near for near in found["nearest"] if near.startswith("--context"))
    assert inferometer(*words, "--context", "100000", *batch.split()).status == 0
    assert inferometer(*words, *context.split(), "--batch-size", "50").status == 0
    assert inferometer(*words, "--context", "100000", "--batch-size", str(int(batch.split()[1]) + 1)).status == 1


def test_vllm_lines_are_printed_as_it_prints_them():
    done = inferometer("memory", "llama-3.1-8b", "h100", "--context", "16000", "--engine", "vllm@0.24")
    assert "Model loading took 14.96 GiB memory" in done.out
    assert "Available KV cache memory: " in done.out
    assert "GPU KV cache size: " in done.out
    assert "Maximum concurrency for 16,000 tokens per request: " in done.out
    newer = inferometer("memory", "llama-3.1-8b", "h100", "--context", "16000", "--engine", "vllm@0.26").out
    assert " tokens, Maximum concurrency for 16,000 tokens per request: " in newer


def test_graphs_are_charged_since_0_21_and_gone_when_eager():
    words = ("memory", "llama-3.1-8b", "h100", "--context", "16000", "--gpu-memory-utilization", "0.9")
    before, after = (row(*words, "--engine", f"vllm@{version}")["kv_pool_bytes"] for version in ("0.20", "0.21"))
    eager = row(*words, "--engine", "vllm@0.21", "--enforce-eager")["kv_pool_bytes"]
    assert after == before - 32 * 16 * 2**20
    assert eager == before


def test_max_batch_and_max_context_are_inverses_of_fits():
    words = ("qwen2.5-7b", "rtx3050-6-laptop", "--quant", "int4")
    most = row("max-context", *words, "--batch-size", "1")["value"]
    assert inferometer("memory", *words, "--context", str(most)).status == 0
    assert inferometer("memory", *words, "--context", str(most + 1)).status == 1
    sequences = row("max-batch", "qwen2.5-7b", "rtx4090", "--context", "4096")["value"]
    assert inferometer("memory", "qwen2.5-7b", "rtx4090", "--context", "4096", "--batch", str(sequences)).status == 0
    assert (
        inferometer("memory", "qwen2.5-7b", "rtx4090", "--context", "4096", "--batch", str(sequences + 1)).status == 1
    )


def test_nothing_that_fits_is_exit_1():
    done = inferometer("max-context", "qwen2.5-7b", "rtx3050-6-laptop", "--json")
    assert done.status == 1
    assert done.rows[0]["value"] == 0
    assert "nothing fits: weights-do-not-fit" in done.err


def test_both_spellings_of_sizes():
    words = ("memory", "llama-3.1-70b", "h100", "4x1", "--context", "16000", "--engine", "vllm@0.24")
    assert row(*words, "-tp", "4") == row(*words, "--sizes", "TP=4")


def test_a_sharding_that_the_engine_refuses_does_not_fit():
    words = ("memory", "qwen3-235b-a22b-fp8", "h200", "8x1", "--engine", "vllm@0.24", "--context", "16000", "-tp", "8")
    found = row(*words)
    assert not found["fits"]
    assert any(reason.startswith("block-not-divisible") for reason in found["reasons"])
    assert inferometer(*words, "--enable-expert-parallel").status == 0


def test_the_engine_refuses_lengths_beyond_what_the_model_states():
    found = row("memory", "qwen2.5-7b", "h100", "--engine", "vllm@0.24", "--max-model-len", "40000")
    assert found["reasons"] == ["beyond-context: 40000 tokens, qwen2.5-7b states 32768"]
    assert "--max-model-len 32768" in found["nearest"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "vlm"), "did you mean 'vllm'"),
        (("--engine", "vllm@0.1"), "memory rules are known from vllm@0.11 on"),
        (("--engine", "vllm@new"), "is no version"),
        (("--max-model-len", "0"), "--max-model-len 0"),
        (("--max-num-seqs", "-1"), "--max-num-seqs -1"),
        (("--gpu-memory-utilization", "1.2"), "at most 1"),
        (("--gpu-memory-utilization", "0.9", "--reserve-bytes", "1"), "not both"),
        (("--reserve-bytes", "1e12"), "leaves nothing"),
        (("--quant", "int5"), "unknown quantisation scheme"),
        (("--batch-size", "0"), "--batch-size 0"),
    ],
)
def test_bad_input_is_one_line(words, said):
    assert said in refused("memory", "llama-3.1-8b", "h100", *words)


def test_schemes_are_said_as_assumed():
    out = inferometer("memory", "llama-3.1-8b", "rtx3090", "--quant", "Q4_K_M", "--context", "4096").out
    assert "assumed: --quant q4_k_m: linear weights q4_k; v, down, shared_down q6_k in more layers" in " ".join(
        out.split()
    )
