"""Families with recurrent layers: operations of their own modelling code, and the traps of their configs.

`hybrids.jsonl` has small made-up configs, and what torch 2.14's FlopCounterMode counted in the classes of transformers
5.24.0 over a prefill of "TxB" tokens with the head on the last: `mm` of matrices, `bmm` of batched ones (attention and
scans). Parameters are in `made_up.jsonl`.
"""

import json
from pathlib import Path

import pytest
from blocks.made_up import machine, prefill
from ingest.families import family

from inferometer.blocks.params import count_params
from inferometer.errors import InferometerError
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import kv_bytes_per_token, state_bytes_per_sequence
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Moe
from inferometer.specs.mixers import Attention, Beside, Mla
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv

ROWS = {
    row["name"]: row
    for row in map(json.loads, (Path(__file__).parent / "hybrids.jsonl").read_text(encoding="utf-8").splitlines())
}
COUNTED = [(name, at) for name, row in ROWS.items() for at in row["flops"]]
NOT_MLA = [(name, at) for name, at in COUNTED if name != "kimi_linear"]


def made(name, *, drop=(), **changes):
    config = {key: value for key, value in (ROWS[name]["config"] | changes).items() if key not in drop}
    return model_from_config(config, name=name, source="test")


def prefilled(name, at):
    tokens, batch = map(int, at.split("x"))
    problem = make_problem(made(name), machine(), prefill(tokens), backend="roofline")
    return estimate(problem, Deployment(sizes=Sizes(), batch=batch)).ops, tokens, batch


def flops(ops, *kinds):
    return sum(op.flops * op.layers for op in ops if op.kind in kinds)


@pytest.mark.parametrize(("name", "at"), NOT_MLA)
def test_a_prefill_multiplies_by_matrices_as_often_as_its_class(name, at):
    ops, *_ = prefilled(name, at)
    assert flops(ops, "gemm", "grouped-gemm") == pytest.approx(ROWS[name]["flops"][at]["mm"], rel=1e-12)


def whole_squares(model, tokens, batch):
    """Return FLOPs of attention over all pairs, masked or not, as the class's eager attention multiplies them."""
    total = 0
    for layer in model.layers:
        mixer = None if layer.mixer is None else model.mixers[layer.mixer]
        parts = mixer.parts if isinstance(mixer, Beside) else (mixer,)
        for part in parts:
            if isinstance(part, Attention):
                total += batch * part.heads * 2 * 2 * part.head_dim * tokens**2
    return total


@pytest.mark.parametrize(("name", "at"), [(n, at) for n, at in COUNTED if n.startswith(("qwen3", "minimax", "lfm2"))])
def test_a_scan_takes_the_products_of_its_class(name, at):
    """The class solves a triangular system, which the counter leaves out, where ours multiplies by the inverse."""
    ops, tokens, batch = prefilled(name, at)
    model = made(name)
    solved = 0.0
    for layer in model.layers:
        mixer = model.mixers[layer.mixer]
        if isinstance(mixer, LinearAttention) and mixer.delta:
            for c in [min(mixer.chunk, tokens - start) for start in range(0, tokens, mixer.chunk)]:
                both = mixer.key_dim + mixer.value_dim
                solved += batch * mixer.heads * (2 * c * c * both + c**3 / 3)
    scans = flops(ops, "scan") - solved + whole_squares(model, tokens, batch)
    assert scans == pytest.approx(ROWS[name]["flops"][at]["bmm"], rel=1e-12)


@pytest.mark.parametrize(
    ("name", "at"), [(n, at) for n, at in COUNTED if n.startswith(("mamba2", "nemotron", "granite", "falcon"))]
)
def test_mamba_2_takes_the_products_of_its_class_less_those_it_does_once_a_group(name, at):
    """The class scores once a head, and hands states from chunk to chunk by a matrix of their decays."""
    ops, tokens, batch = prefilled(name, at)
    model, more = made(name), 0
    for layer in model.layers:
        mixer = None if layer.mixer is None else model.mixers[layer.mixer]
        for part in mixer.parts if isinstance(mixer, Beside) else (mixer,):
            if isinstance(part, Mamba2):
                n = tokens // part.chunk
                assert n * part.chunk == tokens
                more += (part.heads - part.groups) * 2 * part.state * tokens * part.chunk
                more += part.heads * 2 * (n + 1) ** 2 * part.head_dim * part.state
    scans = flops(ops, "scan") + batch * more + whole_squares(model, tokens, batch)
    assert scans == pytest.approx(ROWS[name]["flops"][at]["bmm"], rel=1e-12)


def kinds(model):
    return [None if layer.mixer is None else type(model.mixers[layer.mixer]) for layer in model.layers]


def test_layers_are_told_apart_as_each_family_spells_it():
    assert kinds(made("qwen3_next")) == [LinearAttention, LinearAttention, Attention, LinearAttention]
    assert kinds(made("kimi_linear")) == [LinearAttention, Mla] * 2
    assert kinds(made("nemotron_h")) == [Mamba2, None, Attention, None, Mamba2, None]
    assert kinds(made("jamba")) == [Mamba1, Mamba1, Attention, Mamba1] * 2
    assert kinds(made("lfm2")) == [ShortConv, Attention] * 2
    assert kinds(made("falcon_h1")) == [Beside] * 4
    assert kinds(made("minimax")) == [LinearAttention, Attention, LinearAttention, LinearAttention]
    assert kinds(made("bailing_hybrid")) == [LinearAttention, Mla] * 2


def test_layers_without_a_feed_forward_and_without_a_mixer():
    spec = made("nemotron_h")
    assert [layer.ffn is None for layer in spec.layers] == [True, False, True, False, True, False]
    assert all(layer.ffn is None for layer in made("mamba2").layers)


def test_kda_gates_are_low_rank_or_full():
    (kimi, *_), (ling, *_) = made("kimi_linear").mixers, made("bailing_hybrid").mixers
    assert (kimi.decay, kimi.decay_rank, kimi.gate_rank) == ("channel", 20, 20)
    assert (ling.decay, ling.decay_rank, ling.gate_rank) == ("channel", None, None)


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        ("nemotron_h", {"hybrid_override_pattern": "MEX-ME"}, "hybrid_override_pattern is 'X'"),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3]}}, "leaves out layer 4"),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [2, 1], "kda_layers": [1]}}, "listed already"),
        ("qwen3_next", {"linear_num_key_heads": 4}, "linear_num_key_heads is 4; allowed: a divisor"),
        ("qwen3_next", {"attention_bias": True}, "attention_bias is true"),
        ("falcon_h1", {"mamba_d_ssm": 100}, "mamba_d_ssm is 100; allowed: 8 heads"),
        ("mamba2", {"n_groups": 3}, "n_groups is 3|mamba_n_groups is 3"),
        ("jamba", {"attn_layer_offset": 4}, "attn_layer_offset is 4"),
        ("minimax", {"num_kv_heads_for_linear_attn": 2}, "num_kv_heads_for_linear_attn is 2"),
        ("bailing_hybrid", {"no_kda_lora": False}, "no_kda_lora is false"),
    ],
    ids=str,
)
def test_what_is_not_understood_is_refused(name, changes, match):
    with pytest.raises(InferometerError, match=match):
        made(name, **changes)


def test_the_format_of_a_state_is_the_config_s_or_fp32_and_said():
    plain = made("mamba2")
    assert plain.state_format == "fp32"
    assert any("recurrent states is not stated" in text for text in plain.assumed)
    told = made("nemotron_h", mamba_ssm_cache_dtype="bfloat16")
    assert told.state_format == "bf16"
    assert not any("recurrent states" in text for text in told.assumed)
    with pytest.raises(InferometerError, match="mamba_ssm_cache_dtype is 'int8'"):
        made("nemotron_h", mamba_ssm_cache_dtype="int8")


def test_a_recurrent_model_needs_no_longest_context():
    assert made("mamba2").max_context == 10**9


def test_keys_of_a_nested_object_that_are_not_understood_are_listed_where_they_stand():
    nested = ROWS["kimi_linear"]["config"]["linear_attn_config"] | {"surprise": 1}
    assert made("kimi_linear", linear_attn_config=nested).unknown_keys == ("linear_attn_config.surprise",)


LING_2_6 = {
    "architectures": ["BailingMoeV2_5ForCausalLM"],
    "model_type": "bailing_hybrid",
    "first_k_dense_replace": 1,
    "group_norm_size": 4,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 9216,
    "kv_lora_rank": 512,
    "layer_group_size": 8,
    "linear_silu": False,
    "max_position_embeddings": 131072,
    "moe_intermediate_size": 1024,
    "moe_shared_expert_intermediate_size": 1024,
    "n_group": 8,
    "num_attention_heads": 32,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "num_kv_heads_for_linear_attn": 32,
    "num_shared_experts": 1,
    "partial_rotary_factor": 0.5,
    "q_lora_rank": 1536,
    "qk_head_dim": 192,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rope_theta": 6000000,
    "vocab_size": 157184,
}
"""An excerpt of inclusionAI/Ling-2.6-flash-fp8; model_type and vocab_size are those of the family."""


def test_ling_2_6_flash_keeps_four_latents_and_twenty_eight_lightning_states():
    model = model_from_config(LING_2_6, name="ling-2.6-flash", source="test")
    assert kv_bytes_per_token(model) == 4 * (512 + 64) * 2 == 4608
    assert state_bytes_per_sequence(model) == 28 * 32 * 128 * 128 * 4
    assert {block.decay for block in model.mixers if isinstance(block, LinearAttention)} == {"fixed"}
    assert any("modelling code" in text for text in model.assumed)
    assert model.unknown_keys == ()


LING_3 = {
    "model_type": "bailing_hybrid",
    "first_k_dense_replace": 2,
    "head_dim": 128,
    "hidden_size": 2560,
    "intermediate_size": 6144,
    "kv_lora_rank": 512,
    "layer_group_size": 6,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 768,
    "n_group": 8,
    "num_attention_heads": 32,
    "num_experts": 512,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 42,
    "num_shared_experts": 1,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "short_conv_kernel_size": 4,
    "topk_group": 4,
    "v_head_dim": 128,
    "vocab_size": 157184,
}
"""Class defaults of transformers 5.24.0: Ling-3.0-Flash."""


def test_ling_3_flash_has_the_parameters_latents_and_states_of_its_class():
    model = model_from_config(LING_3, name="ling-3.0-flash", source="test")
    assert count_params(model).total == pytest.approx(124.414e9, abs=0.5e6)
    assert count_params(model).active == pytest.approx(5.103e9 + 157184 * 2560, rel=0.09)
    assert kv_bytes_per_token(model) == 7 * (512 + 64) * 2 == 8064
    assert state_bytes_per_sequence(model) == 35 * (2_097_152 + 3 * 4096 * 3 * 2)


def test_nemotron_lightning_spells_its_layers_in_words():
    model = family("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B")
    assert [kinds(model).count(kind) for kind in (Mamba2, None, Attention)] == [23, 23, 6]
    (drafter,) = model.drafters
    assert [type(block) for block in (*drafter.mixers, *drafter.ffns)] == [Attention, Moe]
