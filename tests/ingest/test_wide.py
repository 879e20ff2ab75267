"""Families of wide experts: published counts, shapes by layer, and what is refused.

Counts: of transformers 5.24.0's classes on the meta device (LongCat without the projections it makes for experts that
return their input, which no checkpoint has), or of the same shapes by formula; actives without the input embedding.
"""

import pytest
from blocks.made_up import decode, machine

from inferometer.blocks.params import count_params
from inferometer.errors import InferometerError
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.lookup import Lookup

LONGCAT = {
    "model_type": "longcat_flash",
    "vocab_size": 131072,
    "hidden_size": 6144,
    "ffn_hidden_size": 12288,
    "expert_ffn_hidden_size": 2048,
    "num_layers": 28,
    "num_attention_heads": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 512,
    "moe_topk": 12,
    "zero_expert_num": 256,
    "zero_expert_type": "identity",
    "max_position_embeddings": 131072,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LITE = LONGCAT | {
    "model_type": "longcat_flash_ngram",
    "hidden_size": 3072,
    "ffn_hidden_size": 6144,
    "expert_ffn_hidden_size": 1024,
    "num_layers": 14,
    "num_attention_heads": 32,
    "n_routed_experts": 256,
    "zero_expert_num": 128,
    "ngram_vocab_size_ratio": 78,
    "emb_neighbor_num": 4,
    "emb_split_num": 4,
    "max_position_embeddings": 327680,
}
STEP = {
    "model_type": "step3p5",
    "hidden_size": 4096,
    "intermediate_size": 11264,
    "num_hidden_layers": 45,
    "num_attention_heads": 64,
    "num_attention_groups": 8,
    "head_dim": 128,
    "attention_other_setting": {
        "attention_type": "sliding_attention",
        "num_attention_heads": 96,
        "num_attention_groups": 8,
        "head_dim": 128,
        "true_head_dim": 128,
    },
    "layer_types": [("full_attention", *["sliding_attention"] * 3)[i % 4] for i in range(48)],
    "sliding_window": 512,
    "moe_num_experts": 288,
    "moe_top_k": 8,
    "moe_layers_enum": ",".join(map(str, range(3, 45))),
    "moe_intermediate_size": 1280,
    "share_expert_dim": 1280,
    "num_nextn_predict_layers": 3,
    "use_head_wise_attn_gate": True,
    "vocab_size": 128896,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
HY3 = {
    "model_type": "hy_v3",
    "vocab_size": 120832,
    "hidden_size": 4096,
    "intermediate_size": 13312,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 192,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 1536,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MIMO_PRO = {
    "model_type": "mimo_v2",
    "num_hidden_layers": 70,
    "hidden_size": 6144,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_attention_heads": 128,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "intermediate_size": 16384,
    "vocab_size": 152576,
    "max_position_embeddings": 262144,
    "sliding_window": 128,
    "hybrid_layer_pattern": [int(i % 7 > 0) for i in range(70)],
    "moe_layer_freq": [int(i > 0) for i in range(70)],
    "moe_intermediate_size": 2048,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "n_shared_experts": None,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "add_swa_attention_sink_bias": True,
    "add_full_attention_sink_bias": False,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


INKLING = {
    "model_type": "inkling_text",
    "hidden_size": 6144,
    "num_hidden_layers": 66,
    "vocab_size": 201024,
    "unpadded_vocab_size": 200058,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 16,
    "swa_head_dim": 128,
    "d_rel": 16,
    "rel_extent": 1024,
    "sliding_window_size": 512,
    "local_layer_ids": [i for i in range(66) if (i + 1) % 6],
    "dense_mlp_idx": 2,
    "dense_intermediate_size": 24576,
    "intermediate_size": 3072,
    "n_routed_experts": 256,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "sconv_kernel_size": 4,
    "torch_dtype": "bfloat16",
}


def read(config, **changes):
    return model_from_config(config | changes, name="wide", source="test")


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        (LONGCAT, 560.664e9, 27.150e9),
        (LITE, 68.562e9, 3.987e9),
        (STEP, 196.956e9, 11.987e9 - 128896 * 4096),
        (HY3, 295.034e9, 20.676e9 - 120832 * 4096),
        (MIMO_PRO, 1021.250e9, 40.960e9),
        (INKLING, 947.026e9, 41.056e9 - 201024 * 6144),
    ],
    ids=["longcat-flash", "longcat-flash-lite", "step-3.5-flash", "hy3", "mimo-v2.5-pro", "inkling"],
)
def test_published_counts(config, total, active):
    count = count_params(read(config))
    assert count.total == pytest.approx(total, abs=3e6)
    assert count.active_one_table == pytest.approx(active, abs=3e6)
    assert read(config).unknown_keys == ()


@pytest.mark.parametrize(("config", "cached"), [(LONGCAT, 64512), (LITE, 32256), (HY3, 327680)])
def test_published_cache(config, cached):
    assert kv_bytes_per_token(read(config)) == cached


def test_a_longcat_layer_is_two_sub_layers_and_experts_beside():
    spec = read(LONGCAT)
    assert spec.units == (3,) * 28
    first, beside, second = spec.layers[:3]
    assert first == second
    assert isinstance(spec.ffns[first.ffn], Ffn)
    assert beside.mixer is None
    experts = spec.ffns[beside.ffn]
    assert isinstance(experts, Moe)
    assert (experts.zero_experts, experts.pre_norm, experts.router_bias) == (256, False, True)


def test_the_n_gram_embedding_goes_with_the_first_layer():
    spec = read(LITE)
    assert spec.units == (4, *(3,) * 13)
    block = spec.ffns[spec.layers[0].ffn]
    assert isinstance(block, Lookup)
    assert (block.reads, block.width) == (12, 256)
    assert block.rows == sum(78 * 131072 + 2 * i + 1 for i in range(12))
    assert any("n-gram" in said for said in spec.assumed)


def test_a_step_layer_has_its_own_heads_and_a_gate():
    spec = read(STEP)
    kinds = {(block.window, block.heads, block.kv_heads, block.gate) for block in spec.mixers}
    assert kinds == {(None, 64, 8, "head"), (512, 96, 8, "head")}
    assert sum(isinstance(spec.ffns[layer.ffn], Ffn) for layer in spec.layers) == 3


def test_drafters_are_windowed_and_dense():
    (drafter,) = read(STEP).drafters
    assert [block.window for block in drafter.mixers] == [512]
    assert [type(block) for block in drafter.ffns] == [Ffn]
    attention = 4096 * 128 * (2 * 96 + 2 * 8) + 96 * 4096 + 2 * 128
    layer = attention + 3 * 4096 * 11264 + 2 * 4096
    assert count_params(read(STEP)).mtp == 3 * (layer + 2 * 4096 * 4096 + 3 * 4096)


def test_a_drafter_of_longcat_is_dense():
    (drafter,) = read(LONGCAT, num_nextn_predict_layers=1).drafters
    assert [type(block) for block in drafter.ffns] == [Ffn]


def held(spec, length):
    """Return (KV, state) bytes of a sequence of so many tokens on one chip."""
    problem = make_problem(spec, machine(), decode(length), backend="roofline")
    memory = estimate(problem, Deployment(sizes=Sizes(), batch=1)).memory
    return memory.kv_bytes_per_sequence, memory.state_bytes_per_sequence


def test_inkling_keeps_windows_and_the_taps_of_four_convolutions_a_layer():
    """K and V of 11 full layers grow, of 55 windowed ones are 512 tokens; 3 of 4 taps of k, v and two outputs."""
    full, windowed = 11 * 8 * 2 * 128 * 2, 55 * 16 * 2 * 128 * 2
    taps = 3 * (55 * (2 * 16 * 128 + 2 * 6144) + 11 * (2 * 8 * 128 + 2 * 6144)) * 2
    assert full == 45056
    assert taps == pytest.approx(6.35e6, rel=1e-3)
    assert held(read(INKLING), 4096) == (4096 * full + 512 * windowed, taps)


def test_inkling_gives_logits_by_distance():
    spec = read(INKLING)
    extents = {(block.window, block.relative_extent) for block in spec.mixers}
    assert extents == {(512, 512), (None, 1024)}
    problem = make_problem(spec, machine(), decode(4096), backend="roofline")
    ops = estimate(problem, Deployment(sizes=Sizes(), batch=4)).ops
    assert {op.flops for op in ops if op.name == "relative-logits"} == {2 * 4 * 64 * 16 * x for x in (512, 1024)}


@pytest.mark.parametrize(
    ("config", "changes", "problem"),
    [
        (LONGCAT, {"zero_expert_type": "drop"}, "zero_expert_type is 'drop'; allowed: 'identity'"),
        (LITE, {"emb_split_num": 5}, "hidden_size is 3072; allowed: a multiple of the 15 n-gram tables"),
        (STEP, {"moe_layers_enum": "3,x"}, "moe_layers_enum is '3,x'; allowed: numbers of layers"),
        (STEP, {"use_head_wise_attn_gate": False}, "use_head_wise_attn_gate is false; allowed: true"),
        (HY3, {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        (INKLING, {"shared_expert_sink": False}, "shared_expert_sink is false; allowed: true"),
    ],
)
def test_what_is_not_understood_is_refused(config, changes, problem):
    with pytest.raises(InferometerError, match=problem):
        read(config, **changes)
