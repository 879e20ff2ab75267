"""States of fixed size: published bytes a sequence, and how they split, multiply and are told apart from KV."""

from math import ceil

import pytest
from blocks.made_up import model
from memory.test_footprint import held, preset

from inferometer.blocks.kinds import caches
from inferometer.memory.footprint import cache_format, kv_bytes_per_token, state_bytes_per_sequence
from inferometer.specs.feedforward import Ffn
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv

FFN = Ffn(width=256)

PUBLISHED = {
    "qwen3.5-397b-a17b-nvfp4": (30_720 // 2, 45 * (4_194_304 + 73_728), 192.06),
    "qwen3.5-122b-a10b": (24_576, 36 * (4_194_304 + 73_728), 153.65),
    "qwen3.5-35b-a3b": (20_480, 30 * (2_097_152 + 49_152), 64.39),
    "qwen3.5-27b": (65_536, 48 * (3_145_728 + 61_440), 153.94),
    "nvidia-nemotron-3-nano-30b-a3b-bf16": (6_144, 23 * (2_097_152 + 36_864), 49.08),
    "nvidia-nemotron-3-nano-30b-a3b-nvfp4": (6_144 // 2, 23 * (2_097_152 + 36_864), 49.08),
    "kimi-linear-48b-a3b-instruct": (8_064, 20 * (32 * 128 * 128 * 4 + 3 * 4096 * 3 * 2), 43.42),
    "qwen3-next-80b-a3b-instruct": (24_576, 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2), 77.27),
    "minimax-m1-80k": (40_960, 70 * 64 * 128 * 128 * 4, 293.60),
    "lfm2-1.2b": (12_288, 10 * 2048 * 2 * 2, 0.08192),
    "mamba-codestral-7b-v0.1": (0, 64 * (128 * 64 * 128 * 4 + (8192 + 2 * 8 * 128) * 3 * 2), 272.37),
}
"""Preset -> KV bytes a token (fp8 where the checkpoint asks for it), state bytes a sequence by layer, in MB."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_kv_and_state_of_a_sequence(name):
    per_token, state, megabytes = PUBLISHED[name]
    spec = preset(name)
    assert kv_bytes_per_token(spec) == per_token
    assert state_bytes_per_sequence(spec) == state
    assert state / 1e6 == pytest.approx(megabytes, rel=1e-4)
    assert held(spec)[0].state_bytes_per_sequence[0, 0] == state


KDA = LinearAttention(heads=96, key_heads=96, key_dim=128, value_dim=128, decay="channel", conv=4)
"""Kimi K3's."""


def test_kimi_k3_holds_449_4_mb_a_sequence_and_five_slots_271_32_mb_a_chip_without_the_convolution():
    spec = model(KDA, FFN, layers=69)
    assert state_bytes_per_sequence(spec) == 69 * (6_291_456 + 221_184)
    assert state_bytes_per_sequence(spec) / 1e6 == pytest.approx(449.4, abs=0.05)
    five, _ = held(spec, tp=8, state_slots=5)
    with_conv = 5 * 69 * (6_291_456 + 221_184) / 8
    assert five.state_bytes_per_sequence[0, 0] == with_conv
    assert (with_conv - 5 * 69 * 221_184 / 8) / 1e6 == pytest.approx(271.32, abs=0.005)


def test_ling_3_and_glm_5_3_flash_hold_their_published_states():
    ling = LinearAttention(heads=32, key_heads=32, key_dim=128, value_dim=128, decay="channel", conv=4)
    glm = LinearAttention(heads=64, key_heads=64, key_dim=128, value_dim=128, decay="channel", conv=4)
    assert state_bytes_per_sequence(model(ling, FFN, layers=35)) == 35 * (2_097_152 + 3 * 4096 * 3 * 2)
    assert state_bytes_per_sequence(model(glm, FFN, layers=34)) == 34 * (4_194_304 + 147_456)


def test_nemotron_super_and_ultra_hold_their_published_states():
    for heads, groups, layers, conv, ssm in ((128, 8, 40, 61_440, 4_194_304), (256, 8, 48, 110_592, 8_388_608)):
        mamba = Mamba2(heads=heads, head_dim=64, groups=groups, state=128, conv=4)
        assert state_bytes_per_sequence(model(mamba, FFN, layers=layers)) == layers * (ssm + conv)


def test_the_attention_page_of_qwen3_5_27b_that_holds_a_state_is_784_tokens():
    """Blocks of attention grow, in steps of 16 tokens, until a page holds one layer's state (vllm issue 40691)."""
    spec = preset("qwen3.5-27b")
    state = state_bytes_per_sequence(spec) / 48
    token = kv_bytes_per_token(spec) / 16
    assert state == 48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2
    assert 16 * ceil(state / token / 16) == 784


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_states_split_with_their_heads_and_groups_are_copied_beyond_their_number(tp):
    gdn = LinearAttention(heads=16, key_heads=4, key_dim=8, value_dim=32, decay="head", conv=4)
    mamba = Mamba2(heads=16, head_dim=32, groups=4, state=8, conv=4)
    for block in (gdn, mamba):
        got, _ = held(model(block, FFN, layers=3), tp=tp)
        of_heads = 16 * 8 * 32 * 4 + 16 * 32 * 3 * 2
        of_groups = 4 * 2 * 8 * 3 * 2
        assert got.state_bytes_per_sequence[0, 0] == 3 * (of_heads / tp + of_groups / min(tp, 4))


def test_channels_split_without_groups():
    for block, bytes_ in (
        (Mamba1(inner=512, state=16, dt_rank=8, conv=4), 512 * 16 * 4 + 512 * 3 * 2),
        (ShortConv(width=256, conv=3), 256 * 2 * 2),
    ):
        assert held(model(block, FFN, layers=1), tp=4)[0].state_bytes_per_sequence[0, 0] == bytes_ / 4


def test_context_ranks_hold_whole_states():
    spec = preset("qwen3.5-27b")
    plain, cut = (held(spec, length=1000, tp=8, dcp=dcp)[0] for dcp in (1, 2))
    assert plain.state_bytes_per_sequence[0, 0] == cut.state_bytes_per_sequence[0, 0]
    assert plain.kv_bytes_per_sequence[0, 0] == 2 * cut.kv_bytes_per_sequence[0, 0]
    longer = held(spec, length=2000, tp=8)[0]
    assert longer.state_bytes_per_sequence[0, 0] == plain.state_bytes_per_sequence[0, 0]


def test_a_recurrent_state_has_its_own_format_and_a_convolution_the_model_s():
    spec = model(KDA, FFN, kv_format="fp8", state_format="bf16")
    sizes = {(cache.name, cache_format(cache, spec)) for cache in caches(KDA)}
    assert sizes == {("state", "bf16"), ("conv", "bf16")}
    wide = model(KDA, FFN, kv_format="fp8")
    assert {(cache.name, cache_format(cache, wide)) for cache in caches(KDA)} == {
        ("state", "fp32"),
        ("conv", "bf16"),
    }
