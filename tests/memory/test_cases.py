"""Cases from public logs and threads: what engines printed, at the tolerance that each is known to."""

import msgspec
import numpy as np
import pytest
from blocks.made_up import model
from memory.questions import GIB, asked, planned

from inferometer.api.load import load_model
from inferometer.blocks.params import count_params
from inferometer.catalog.engine_memory import find_engine_memory
from inferometer.catalog.loader import find_engine
from inferometer.estimate.legality import broken_rules
from inferometer.memory.layers import Kind
from inferometer.memory.pools import pools_of
from inferometer.specs.deployment import ROLES
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention

H100 = {"gib": 79.18, "context": 16_000}


def test_w4a16_of_llama_8b_is_the_bytes_of_its_checkpoint():
    """vllm-project/llm-compressor issue 1215: 5,700,591,616 and shape tensors."""
    assert count_params(load_model("llama-3.1-8b", "int4")).checkpoint_bytes == 5_700_591_616
    assert count_params(load_model("llama-3.1-8b", "int4")).checkpoint_bytes == pytest.approx(5_700_595_200, rel=1e-4)


def test_kernels_pad_the_2880_wide_experts_of_gpt_oss():
    """Checkpoint 65,248,815,744 (alvarobartt/hf-mem issue 60); resident 64.4 to 66.0 GiB (vllm issues 33155, 23278)."""
    assert count_params(load_model("gpt-oss-120b")).checkpoint_bytes == pytest.approx(65_248_815_744, rel=1e-3)
    held = planned("gpt-oss-120b", "vllm@0.24").tightest.parts_bytes["weights"]
    assert 64.4 * 0.98 <= held / GIB <= 66.0 * 1.02
    assert held / GIB == pytest.approx(64.38, rel=0.005)  # llm-d-benchmark's log


def test_llama_70b_fp8_needs_two_h100():
    """llm-d/llm-d-benchmark issue 621: -1.44 GiB at TP 1; 33.88 GiB of weights and 32.0 GiB for KV at TP 2."""
    one = planned("meta-llama-3.1-70b", "vllm@0.11", quant="fp8-dynamic", **H100)
    assert one.tightest.parts_bytes["weights"] / GIB == pytest.approx(67.72, rel=0.005)
    assert one.tightest.room_bytes / GIB == pytest.approx(-1.44, abs=0.1)
    assert not one.fits
    two = planned("meta-llama-3.1-70b", "vllm@0.11", quant="fp8-dynamic", sizes={"tp": 2}, **H100)
    assert two.tightest.parts_bytes["weights"] / GIB == pytest.approx(33.88, rel=0.005)
    assert two.tightest.room_bytes / GIB == pytest.approx(32.0, rel=0.03)
    assert two.fits


@pytest.mark.parametrize(
    ("name", "quant", "weights", "activations", "room"),
    [
        ("meta-llama-3.1-8b", None, 14.99, 4.76, 51.38),
        ("gpt-oss-20b", None, 13.47, 7.38, 50.28),
        ("qwen3-0.6b", None, 1.12, 5.56, 64.45),
        ("qwen3-32b", None, 61.03, 5.64, 4.45),
    ],
)
def test_logs_of_one_h100(name, quant, weights, activations, room):
    """llm-d-benchmark empirical-vllm-memory-results.md, GiB."""
    stage = planned(name, "vllm@0.11", quant=quant, **H100).tightest
    assert stage.parts_bytes["weights"] / GIB == pytest.approx(weights, abs=0.05)
    assert stage.parts_bytes["activations"] / GIB == pytest.approx(activations, abs=0.05)
    assert stage.room_bytes / GIB == pytest.approx(room, abs=0.1)


@pytest.mark.parametrize(
    ("name", "activations"),
    [("meta-llama-3.1-8b", 1.89), ("qwen2.5-7b", 2.21), ("gpt-oss-20b", 2.87), ("deepseek-v2-lite", 1.93)],
)
def test_activations_of_later_versions(name, activations):
    """llm-d-incubation/llm-d-planner vLLM 0.19 accuracy report, GiB."""
    stage = planned(name, "vllm@0.19", **H100).tightest
    assert stage.parts_bytes["activations"] / GIB == pytest.approx(activations, abs=0.08)


def mistral_small():
    """40 layers of 8 kv heads of 128: the caches of Mistral-Small-3.2-24B."""
    return model(Attention(heads=32, kv_heads=8, head_dim=128), Ffn(width=32768), layers=40, hidden=5120)


def test_blocks_of_128_in_28_20_gib():
    """Same logs: 163,840 bytes a token, 184,832 tokens, 11.55x at 16,000."""
    rules = msgspec.structs.replace(find_engine_memory("vllm@0.11"), block_size=128)
    question = asked(mistral_small(), context=16_000, rules=rules)
    layers = [[Kind(2 * 8 * 128 * 2)]] * 40
    pools = pools_of(question, layers, range(40))
    room = 28.20 * GIB
    assert pools.unit_bytes / 128 == 163_840
    assert pools.whole(room) / pools.unit_bytes * 128 == pytest.approx(184_832, abs=128)
    assert pools.sequences(room, 16_000) == pytest.approx(11.55, abs=0.01)


def test_qwen3_235b_at_tp4_keeps_48128_bytes_a_token():
    """Vllm issue 21348: 8.11 GiB hold 178,880 tokens on the smallest rank."""
    found = planned("qwen3-235b-a22b-fp8", "vllm@0.24", gib=141, sizes={"tp": 4}, context=16_000)
    assert found.kv_bytes_per_token == 48_128 == 94 * 2 * (4 // 4) * 128 * 2
    pools = found.tightest.pools
    tokens = pools.whole(8.11 * GIB) / pools.unit_bytes * pools.block_size
    assert tokens == pytest.approx(178_880, rel=0.015)


@pytest.mark.parametrize(("name", "tp"), [("qwen3-235b-a22b-fp8", 8), ("qwen3-30b-a3b-fp8", 4)])
def test_shards_of_fp8_experts_end_on_a_block(name, tp):
    """Vllm issues 17569, 25292, 54178: 1536 / 8 and 768 / 4 are 192, no multiple of 128."""
    spec = load_model(name.removesuffix("-fp8"), "fp8-block")

    def broken(**sizes):
        columns = {role: np.array([float(sizes.get(role, 1))]) for role in ROLES}
        return {rule.name for rule in broken_rules(spec, find_engine("vllm@0.24"), columns) if rule.broken[0]}

    assert "block-not-divisible" in broken(tp=tp, etp=tp)
    assert "block-not-divisible" not in broken(tp=tp, ep=tp)
    assert "block-not-divisible" not in broken(tp=tp // 2, etp=tp // 2)


@pytest.mark.parametrize(
    ("shape", "tp", "legal"),
    [
        ((36, 12, 49_152, 9216), 12, True),
        ((96, 8, 151_552, 12_288), 6, False),  # the padded vocabulary, 151,552 = 64 x 2368, is no multiple of 6
        ((32, 8, 128_256, 14_336), 8, True),
        ((32, 8, 128_256, 14_336), 16, True),
        ((32, 8, 128_256, 14_336), 64, False),
        ((40, 8, 100_352, 17_920), 16, False),
    ],
)
def test_legal_tensor_parallel_sizes(shape, tp, legal):
    """llm-d-planner PR 280, gpustack PR 3792, vllm issue 31474; shape: heads, kv heads, vocabulary, FFN width."""
    heads, kv, vocabulary, width = shape
    spec = model(Attention(heads=heads, kv_heads=kv, head_dim=128), Ffn(width=width), vocab=vocabulary)
    columns = {role: np.array([float({"tp": tp}.get(role, 1))]) for role in ROLES}
    rules = broken_rules(spec, find_engine("vllm@0.24"), columns)
    assert (not any(rule.broken[0] for rule in rules)) == legal


@pytest.mark.parametrize(
    ("name", "length", "gib"),
    [("qwen3-0.6b", 40_960, 4.375), ("deepseek-v3", 163_840, 10.72), ("kimi-k2.5", 262_144, 17.16)],
)
def test_kv_of_one_sequence_at_full_context(name, length, gib):
    """unslothai/unsloth PR 4757, recomputed."""
    found = planned(name, "ideal", gib=10_000, context=length)
    kv = next(line for line in found.lines if line.name == "KV")
    assert kv.bytes / GIB == pytest.approx(gib, rel=1e-3)


def test_windows_of_gemma_3_keep_1024_tokens():
    """Same: 10.41 GiB at 131,072, where a cache that ignores windows would say 62 GiB."""
    kv = next(line for line in planned("gemma-3-27b", "ideal", gib=1000, context=131_072).lines if line.name == "KV")
    assert kv.bytes / GIB == pytest.approx(10.41, rel=1e-3)


STATE = 48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2
"""Qwen3.5-27B: 48 value heads of 128 x 128 in fp32, and 3 columns of convolution over q, k and v in bf16."""


def hybrid(**more):
    """16 layers of full attention of 4 kv heads of 256, 48 of state, as 3:1."""
    question = asked(mistral_small(), "vllm@0.24", context=32_768, **more)
    attention, state = [Kind(2 * 4 * 256 * 2)], [Kind(STATE, fixed=True)]
    return pools_of(question, [state, state, state, attention] * 16, range(64))


def test_the_attention_block_of_a_hybrid_grows_until_its_page_holds_a_state():
    """Vllm issue 40691: block 784, 42 + 3 x 1 blocks a request, 33.04x with 1487 blocks."""
    pools = hybrid()
    assert STATE == 3_207_168
    assert pools.block_size == 784 == -(-(STATE // 4096) // 16) * 16
    assert pools.blocks(32_768) == 42 + 3 * 1
    assert pools.sequences(1487 * pools.unit_bytes, 32_768) == pytest.approx(33.04, abs=0.005)


def test_cached_prefixes_keep_two_states():
    assert hybrid(cached_prefixes=True).blocks(32_768) == 42 + 3 * 2


@pytest.mark.parametrize(("engine", "gib", "window"), [("vllm@0.25", 45.79, 2113), ("vllm@0.26", 70.79, 4161)])
def test_windows_of_gemma_4_reserve_a_pass_of_tokens_or_two(engine, gib, window):
    """Vllm issue 49878: (8192 + 5 x 2113) pages of 256 KiB in 10 tensors, and after pull 47728 5 x 4161."""
    question = planned("gemma-4-31b", engine, gib=140, context=262_144, max_num_batched_tokens=32_768)
    pools = question.tightest.pools
    assert pools.unit_bytes == 10 * 256 * 1024
    assert pools.blocks(262_144) == 8192 + 5 * window
    assert (pools.room_for(1, 262_144) - pools.null_bytes) / GIB == pytest.approx(gib, abs=0.01)


def test_a_real_hybrid_has_that_block():
    found = planned("qwen3.5-27b", "vllm@0.24", gib=79.65, context=32_768)
    pools = found.tightest.pools
    assert (pools.block_size, pools.blocks(32_768), pools.groups) == (784, 45, 4)
    assert found.kv_bytes_per_token == 16 * 2 * 4 * 256 * 2


def test_qwen_3_5_keeps_16_gib_at_full_context():
    """unslothai/unsloth PR 4757: 16 of 64 layers have full attention."""
    found = planned("qwen3.5-27b", "ideal", gib=1000, context=262_144)
    kv = next(line for line in found.lines if line.name == "KV")
    assert kv.bytes / GIB == pytest.approx(16.0, rel=1e-3)


def compressed():
    """DeepSeek-V4-Flash as it is cached: windows of 128, entries of 4 and of 128 tokens, keys of an index, fp8."""
    window, index = Kind(584, most=128, latent=True), Kind(132, tokens=4, latent=True)
    sparse = [window, Kind(584, tokens=4, latent=True), index, Kind(81_920, fixed=True)]
    heavy = [window, Kind(584, tokens=128, latent=True), Kind(524_288, fixed=True)]
    return [[window]] * 2 + [sparse, heavy] * 20 + [sparse]


@pytest.mark.parametrize(("room", "ranks", "concurrency"), [(136.69, 8, 156.9), (140.97, 1, 20.43)])
def test_compressed_attention_holds_a_million_tokens(room, ranks, concurrency):
    """vllm-project/recipes issue 762: 156.9x with attention on 8 ranks, 20.43x with TP 8, on 8 B200."""
    layers = compressed()
    spec = model(Attention(heads=8, kv_heads=1, head_dim=512), Ffn(width=256), layers=43)
    pools = pools_of(asked(spec, "vllm@0.24", context=1_000_000, chip="b200", gib=178), layers, range(43))
    assert ranks * pools.sequences(room * GIB, 1_000_000) == pytest.approx(concurrency, rel=0.06)


def test_data_parallel_attention_keeps_what_tensor_parallelism_copies():
    """vllm-project/recipes issue 762 (DeepSeek-V4-Flash, ratio 7.7): the latent is on every TP rank."""
    tp = planned("deepseek-v3", "vllm@0.24", gib=180, sizes={"tp": 8, "ep": 8}, context=100_000)
    dp = planned("deepseek-v3", "vllm@0.24", gib=180, sizes={"dpa": 8, "ep": 8}, context=100_000)
    assert tp.kv_bytes_per_token == dp.kv_bytes_per_token
    room = tp.tightest.room_bytes / dp.tightest.room_bytes
    assert dp.concurrency * 8 / tp.concurrency == pytest.approx(8 / room, rel=0.01)


def test_llama_cpp_caches_latents_as_heads():
    """Ollama issue 5136: DeepSeek-V2-Lite Q4_0 at 32,768 on an RTX 3090, MiB: model 8376, KV 8640, compute 2376."""
    found = planned("deepseek-v2-lite", "llama.cpp", gib=24, context=32_768, quant="q4_0")
    stage = found.tightest
    assert sum(stage.pools.needs_bytes(32_768)) / 2**20 == 8640 == 27 * 16 * (192 + 128) * 32_768 * 2 / 2**20
    assert stage.parts_bytes["weights"] / 2**20 == pytest.approx(8376, abs=1)
    compute = stage.parts_bytes["activations"] / 2**20
    assert 8640 + stage.parts_bytes["weights"] / 2**20 + compute == pytest.approx(19_392, rel=0.05)


@pytest.mark.parametrize(("cells", "kv", "compute"), [(2048, 256, 164), (32_768, 4096, 2144)])
def test_buffers_of_llama_cpp(cells, kv, compute):
    """fedora-copr/logdetective pull 106: Mistral-7B (32 heads, 8 kv heads of 128, F 14336), no flash attention, MiB."""
    spec = model(Attention(heads=32, kv_heads=8, head_dim=128), Ffn(width=14_336), layers=32, hidden=4096, vocab=32_000)
    spec = msgspec.structs.replace(spec, kv_format="fp16")
    stage = planned(spec, "llama.cpp", gib=24, context=cells).tightest
    assert sum(stage.pools.needs_bytes(cells)) / 2**20 == kv
    assert stage.parts_bytes["activations"] / 2**20 == pytest.approx(compute, rel=0.01)


@pytest.mark.parametrize(
    ("quant", "gigabytes"),
    [
        ("Q8_0", 8.54),
        ("Q6_K", 6.60),
        ("Q5_K_M", 5.73),
        ("Q4_K_M", 4.92),
        ("Q4_K_S", 4.69),
        ("Q4_0", 4.66),
        ("Q3_K_M", 4.02),
    ],
)
def test_gguf_mixtures_of_llama_8b_are_as_large_as_its_files(quant, gigabytes):
    """File sizes as listed with the files; they hold some 8 MB of vocabulary beside the tensors."""
    assert count_params(load_model("llama-3.1-8b", quant)).checkpoint_bytes / 1e9 == pytest.approx(gigabytes, abs=0.015)
