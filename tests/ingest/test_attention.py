"""Heads, windows, biases and latents, as each family's own code reads its config."""

import pytest
from ingest.samples import TINY, preset, tiny

from inferometer.errors import InferometerError


@pytest.mark.parametrize("family", ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"])
def test_kv_heads_that_are_null_mean_one_a_query_head(family):
    assert tiny(family, num_key_value_heads=None).mixers[0].kv_heads == 8


def test_kv_heads_that_are_absent_mean_one_a_query_head_and_it_is_said():
    model = tiny("llama", drop=["num_key_value_heads"])
    assert model.mixers[0].kv_heads == 8
    assert any("num_key_value_heads is absent" in line for line in model.assumed)


def test_an_explicit_head_dim_wins_over_hidden_over_heads():
    assert tiny("llama", head_dim=48).mixers[0].head_dim == 48
    assert tiny("llama").mixers[0].head_dim == 32
    assert preset("qwen3-0.6b").mixers[0].head_dim == 128


def test_qwen3_without_a_head_dim_has_its_class_default():
    model = tiny("qwen3", drop=["head_dim"])
    assert model.mixers[0].head_dim == 128
    assert any("head_dim = 128" in line for line in model.assumed)


def test_heads_must_divide():
    with pytest.raises(InferometerError, match="num_attention_heads is 7; allowed: a divisor of hidden_size = 256"):
        tiny("llama", num_attention_heads=7, num_key_value_heads=7)
    with pytest.raises(InferometerError, match="num_key_value_heads is 3; allowed: a divisor"):
        tiny("llama", num_key_value_heads=3)
    assert tiny("llama", num_attention_heads=7, num_key_value_heads=7, head_dim=64).mixers[0].head_dim == 64


def biases(model):
    mixer = model.mixers[0]
    return mixer.qkv_bias, mixer.out_bias, model.ffns[0].bias


def test_biases_follow_each_family():
    assert biases(tiny("qwen2")) == (True, False, False)
    assert biases(tiny("qwen2", attention_bias=False)) == (True, False, False)
    assert biases(tiny("llama", attention_bias=True)) == (True, True, False)
    assert biases(tiny("llama", mlp_bias=True)) == (False, False, True)
    assert biases(tiny("qwen3", attention_bias=True)) == (True, True, False)
    assert biases(tiny("mistral")) == (False, False, False)
    assert tiny("deepseek_v3", attention_bias=True).mixers[0].bias


@pytest.mark.parametrize("family", [name for name, config in TINY.items() if "kv_lora_rank" not in config])
def test_only_qwen3_normalises_q_and_k(family):
    assert tiny(family).mixers[0].qk_norm == family.startswith("qwen3")


def windows(model):
    return [model.mixers[layer.mixer].window for layer in model.layers]


def test_mistral_honours_its_window_on_every_layer():
    assert windows(tiny("mistral", sliding_window=1024)) == [1024] * 4
    assert windows(tiny("mistral")) == [None] * 4
    assert windows(tiny("mixtral", drop=["sliding_window"])) == [None] * 4


def test_mistral_without_the_key_has_its_class_default_and_says_so():
    model = tiny("mistral", drop=["sliding_window"])
    assert windows(model) == [4096] * 4
    assert any("sliding_window = 4096" in line for line in model.assumed)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "qwen3_moe"])
def test_qwen_windows_are_inert_until_switched_on(family):
    window = {"sliding_window": 1024, "max_window_layers": 3}
    assert windows(tiny(family, **window)) == [None] * 4
    assert windows(tiny(family, **window, use_sliding_window=False)) == [None] * 4
    assert windows(tiny(family, **window, use_sliding_window=True)) == [None, None, None, 1024]


def test_layers_with_and_without_a_window_are_two_blocks():
    model = tiny("qwen2", sliding_window=1024, max_window_layers=2, use_sliding_window=True)
    assert len(model.mixers) == 2
    assert len(model.ffns) == 1


def test_layer_types_say_which_qwen_layers_have_a_window():
    kinds = ["sliding_attention", "full_attention"] * 2
    on = {"sliding_window": 512, "use_sliding_window": True}
    assert windows(tiny("qwen3", layer_types=kinds, **on)) == [512, None] * 2
    with pytest.raises(InferometerError, match="layer_types has 2 entries; allowed: num_hidden_layers = 4"):
        tiny("qwen3", layer_types=kinds[:2], **on)
    with pytest.raises(InferometerError, match="layer_types is 'linear'"):
        tiny("qwen3", layer_types=["linear"] * 4, **on)


def test_a_null_q_latent_and_an_absent_one_differ():
    assert tiny("deepseek_v2", q_lora_rank=None).mixers[0].q_rank is None
    absent = tiny("deepseek_v2", drop=["q_lora_rank"])
    assert absent.mixers[0].q_rank == 1536
    assert any("q_lora_rank = 1536" in line for line in absent.assumed)


def test_latent_attention_ignores_kv_heads_and_head_dim():
    assert tiny("deepseek_v3", num_key_value_heads=3, head_dim=7) == tiny("deepseek_v3")


def test_ties_are_the_config_s_or_else_the_class_s():
    assert tiny("llama", tie_word_embeddings=True).tied
    absent = tiny("llama", drop=["tie_word_embeddings"])
    assert not absent.tied
    assert any("tie_word_embeddings = false" in line for line in absent.assumed)


def test_dtype_has_two_spellings_and_is_bf16_where_absent():
    assert tiny("llama", torch_dtype="float16").dtype == "fp16"
    assert tiny("llama", torch_dtype="float16").kv_format == "fp16"
    assert tiny("llama", drop=["torch_dtype"], dtype="float32").dtype == "fp32"
    assert tiny("llama", torch_dtype=None, dtype="torch.float16").dtype == "fp16"
    absent = tiny("llama", drop=["torch_dtype"])
    assert absent.dtype == "bf16"
    assert any("torch_dtype" in line for line in absent.assumed)
    with pytest.raises(InferometerError, match="torch_dtype is 'int7'; allowed: bfloat16, float16 or float32"):
        tiny("llama", torch_dtype="int7")


def test_two_spellings_that_disagree_are_said():
    model = tiny("llama", dtype="float16")
    assert model.dtype == "bf16"
    assert any("disagree" in line for line in model.assumed)


def test_yarn_stretches_the_context_the_config_states():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    assert tiny("qwen3", rope_scaling=yarn).max_context == 16384
    assert tiny("qwen3", rope_parameters=yarn, max_position_embeddings=16384).max_context == 16384
    assert tiny("llama", rope_scaling={"rope_type": "llama3", "factor": 8.0}).max_context == 4096
