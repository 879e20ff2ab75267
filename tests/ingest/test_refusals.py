"""What is no config, or no model we know, is refused in one line that says what is allowed."""

import math

import pytest
from ingest.samples import TINY, tiny

from inferometer.errors import InferometerError, UnknownNameError
from inferometer.ingest.config import model_from_config

REQUIRED = {
    "llama": ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"),
    "mixtral": ("num_local_experts", "num_experts_per_tok", "intermediate_size"),
    "qwen3_moe": ("num_experts", "moe_intermediate_size", "num_experts_per_tok"),
    "deepseek_v3": ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts"),
}
PAIRS = [(family, key) for family, keys in REQUIRED.items() for key in keys]
WRONG = [0, -1, 10**12, 10**400, "4096", "", True, 1.5, math.nan, math.inf, -math.inf, [4096], {"a": 1}, None]


def refusal(**arguments):
    with pytest.raises(InferometerError) as caught:
        tiny(**arguments)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize(("family", "key"), PAIRS)
def test_a_missing_shape_is_named(family, key):
    text = refusal(family=family, drop=[key])
    assert "is missing" in text
    assert key.removeprefix("num_local_").removeprefix("n_routed_").removeprefix("num_") in text


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        (*pair, value)
        for pair in PAIRS
        for value in WRONG
        if pair[1] != "n_routed_experts" or value is not None  # null means a dense model
    ],
    ids=lambda value: repr(value)[:12],
)
def test_a_wrong_shape_is_refused_with_key_value_and_range(family, key, value):
    text = refusal(family=family, **{key: value})
    assert f"tiny: {key} is " in text
    assert "allowed: an integer from 1 to" in text


def test_an_integral_float_is_an_integer():
    assert tiny("llama", hidden_size=256.0) == tiny("llama")


@pytest.mark.parametrize("value", ["true", 1, 0, [], math.nan])
@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
def test_a_flag_that_is_no_boolean_is_refused(key, value):
    assert f"{key} is" in refusal(family="llama", **{key: value})


@pytest.mark.parametrize(
    ("model_type", "what"),
    [
        ("bert", "an encoder"),
        ("vit", "a vision model"),
        ("clip", "a vision model"),
        ("whisper", "a speech model"),
        ("t5", "an encoder-decoder"),
        ("rwkv5", "a recurrent network"),
        ("gpt_neox_reward_model", "a reward model"),
    ],
)
def test_what_is_no_decoder_only_language_model_is_refused_by_name(model_type, what):
    with pytest.raises(InferometerError, match=rf"model_type '{model_type}' is {what}.*not a decoder-only language"):
        model_from_config({"model_type": model_type}, name="m", source="test")


def test_a_reward_head_on_a_known_family_is_refused():
    text = refusal(family="llama", architectures=["LlamaForSequenceClassification"])
    assert "not a decoder-only language model" in text


def test_an_unknown_family_is_refused_with_the_closest_known_one():
    with pytest.raises(UnknownNameError, match="unknown model_type 'qwen3_mo'; did you mean 'qwen3_moe'"):
        model_from_config({"model_type": "qwen3_mo"}, name="m", source="test")


@pytest.mark.parametrize("model_type", [None, 7, ["llama"], {}])
def test_a_model_type_that_is_no_name_is_refused(model_type):
    with pytest.raises(InferometerError, match=r"model_type is .*; allowed: arcee, baichuan, .*, deepseek_v2, "):
        model_from_config({"model_type": model_type}, name="m", source="test")


def test_native_arguments_without_a_model_type_are_refused():
    with pytest.raises(InferometerError, match="m: model_type is null"):
        model_from_config({"dim": 7168, "n_layers": 61}, name="m", source="test")


@pytest.mark.parametrize("config", [None, [], "llama", 3])
def test_a_config_that_is_no_object_is_refused(config):
    with pytest.raises(InferometerError, match="the config is"):
        model_from_config(config, name="m", source="test")


@pytest.mark.parametrize("family", TINY)
def test_a_key_that_is_not_understood_is_listed(family):
    model = tiny(family, frobnicate=3, rope_theta=1e6, eos_token_id=[1, 2], attention_dropout=0.0, _name_or_path="x")
    assert model.unknown_keys == ("frobnicate",)


def test_a_key_of_another_family_is_listed_where_it_does_nothing():
    assert tiny("llama", sliding_window=4096).unknown_keys == ("sliding_window",)
    assert tiny("mistral", attention_bias=True).unknown_keys == ("attention_bias",)
