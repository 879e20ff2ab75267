"""Configs that transformers has saved again are the models of the configs they were."""

import pytest

from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.mixers import Attention

GEMMA = "google/gemma-4-26B-A4B"
V4 = "deepseek-ai/DeepSeek-V4-Flash"
GLOBAL = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
WORDS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def read(config):
    return model_from_config(config, name="m", source="test")


def gemma(**changes):
    """The config as transformers 5.24 saves it: sizes of layers without a window in an object a layer."""
    config = preset_config(GEMMA).config
    text = config["text_config"]
    full = [layer for layer, word in enumerate(text["layer_types"]) if word == "full_attention"]
    sizes = {name: text[other] for name, other in GLOBAL.items()}
    saved = {key: value for key, value in text.items() if key not in GLOBAL.values()}
    saved["per_layer_config"] = {f"{layer:02d}": sizes for layer in full} | changes
    return config | {"text_config": saved}


def v4(**changes):
    """The same of ratios and hashed layers: a word a layer."""
    config = preset_config(V4).config
    layers, hashed = config["num_hidden_layers"], config["num_hash_layers"]
    saved = {key: value for key, value in config.items() if key not in {"compress_ratios", "num_hash_layers"}}
    words = {
        "layer_types": [WORDS[ratio] for ratio in config["compress_ratios"][:layers]],
        "compress_rates": {WORDS[4]: 4, WORDS[128]: 128},
        "mlp_layer_types": ["hash_moe"] * hashed + ["moe"] * (layers - hashed),
        "mlp_bias": False,
    }
    return saved | words | changes


@pytest.mark.parametrize(("hub_id", "saved"), [(GEMMA, gemma), (V4, v4)])
def test_a_config_saved_again_is_the_same_model(hub_id, saved):
    assert read(saved()) == read(preset_config(hub_id).config)


def test_sizes_an_object_a_layer_are_those_of_layers_without_a_window():
    model, flat = read(gemma()), preset_config(GEMMA).config["text_config"]
    full, windowed = 5, 25
    assert kv_bytes_per_token(model) == 2 * 2 * (full * 2 * 512 + windowed * 8 * 256)
    left_out = {key: value for key, value in flat.items() if key != "num_global_key_value_heads"}
    plain = read(preset_config(GEMMA).config | {"text_config": left_out})
    assert count_params(plain).total - count_params(model).total == full * (8 - 2) * 512 * flat["hidden_size"]


def test_objects_that_repeat_the_models_own_sizes_change_nothing():
    assert read(gemma(**{"00": {"head_dim": 256}})) == read(gemma())


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (gemma(**{"00": {"head_dim": 128}}), "per_layer_config tells layers apart otherwise than by their window"),
        (gemma(**{"05": {"head_dim": 128}}), "per_layer_config tells layers apart otherwise"),
        (gemma(**{"05": {"sliding_window": 8}}), r"per_layer_config.05 is .*; allowed: an object of head_dim and num_"),
        (gemma(last={"head_dim": 512}), "per_layer_config has the layer 'last'; allowed: the number of a layer"),
        (gemma(**{"9" * 50: {"head_dim": 512}}), "allowed: the number of a layer"),
        (v4(layer_types=["full_attention"]), "layer_types is 'full_attention'; allowed: sliding_attention, compressed"),
        (v4(mlp_layer_types=["moe", "hash_moe"]), "mlp_layer_types has hashed layers behind others"),
        (v4(compress_rates={WORDS[4]: 8}), "compress_ratios is 8; allowed: 0, 4, 128"),
    ],
)
def test_what_makers_configs_cannot_say_is_refused(config, problem):
    with pytest.raises(InferometerError, match=problem):
        read(config)


def test_a_drafters_pattern_in_letters_is_that_in_words():
    config = preset_config("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4").config
    assert config["mtp_hybrid_override_pattern"] == "*E"
    words = {key: value for key, value in config.items() if key != "mtp_hybrid_override_pattern"}
    letters, worded = read(config), read(words | {"mtp_layers_block_type": ["full_attention", "moe"]})
    assert letters == worded
    (drafter,) = letters.drafters
    assert [type(block) for block in drafter.mixers] == [Attention]
    assert [(layer.mixer, layer.ffn) for layer in drafter.layers] == [(0, None), (None, 0)]


def test_the_names_that_ling_3s_class_saves_under_are_its_fields():
    config = preset_config("inclusionAI/Ling-3.0-flash").config
    names = {"n_group": "num_expert_group", "max_position_embeddings": "model_max_length"}
    assert names.keys() <= config.keys()
    saved = read({names.get(key, key): value for key, value in config.items()})
    assert saved == read(config)
    assert saved.max_context == config["max_position_embeddings"]
