"""Published parameter counts and checkpoint bytes, exactly."""

import pytest
from ingest.samples import MODELS, TINY, TRUTH, params_by_hand, preset, tiny

from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config, preset_ids
from inferometer.ingest.config import model_from_config

GIB = 2**30


@pytest.mark.parametrize("row", TRUTH, ids=MODELS)
def test_a_published_model_has_its_published_parameter_count(row):
    assert count_params(preset(row["model"])).total == int(row["total_params"])


@pytest.mark.parametrize("row", TRUTH, ids=MODELS)
def test_the_count_by_hand_agrees_with_the_published_one(row):
    assert params_by_hand(preset_config(row["model"]).config) == int(row["total_params"])


@pytest.mark.parametrize("family", TINY)
def test_a_small_model_of_every_family_has_the_count_by_hand(family):
    assert count_params(tiny(family)).total == params_by_hand(TINY[family])


@pytest.mark.parametrize("ident", preset_ids())
def test_every_preset_is_understood_to_the_last_key(ident):
    assert preset(ident).unknown_keys == ()


@pytest.mark.parametrize("ident", preset_ids())
def test_layers_that_are_equal_share_one_block(ident):
    model = preset(ident)
    few = max(6, len(model.layers) // 8)
    assert len(set(map(repr, model.mixers))) == len(model.mixers) <= few
    assert len(set(map(repr, model.ffns))) == len(model.ffns) <= few


def test_llama_3_1_70b_in_bf16_has_the_bytes_its_engine_logs():
    count = count_params(preset("meta-llama/Meta-Llama-3.1-70B"))
    assert count.total == 70_553_706_496
    assert count.checkpoint_bytes == 2 * 70_553_706_496
    assert round(count.checkpoint_bytes / GIB, 4) == 131.4165


W4A16 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128},
        }
    },
}


def quantised(hub_id, quantization_config):
    config = preset_config(hub_id).config | {"quantization_config": quantization_config}
    return model_from_config(config, name="quantised", source="test")


def test_llama_3_1_8b_w4a16_has_the_bytes_of_its_published_checkpoint():
    stored = count_params(quantised("meta-llama/Meta-Llama-3.1-8B", W4A16)).checkpoint_bytes
    assert stored == 5_700_591_616
    assert stored == pytest.approx(5_700_595_200, rel=1e-4)


def test_llama_3_3_70b_fp8_dynamic_has_the_weights_its_engine_logs():
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
    group = {"targets": ["Linear"], "weights": weights}
    scheme = {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"group_0": group}}
    stored = count_params(quantised("meta-llama/Llama-3.3-70B-Instruct", scheme)).checkpoint_bytes
    assert stored / GIB == pytest.approx(67.72, rel=5e-3)


def test_deepseek_v3_in_fp8_blocks_with_mtp_has_about_its_published_bytes():
    """688.6e9 with the MTP layer, which is about 11.6e9 parameters of mostly one byte."""
    stored = count_params(preset("deepseek-ai/DeepSeek-V3")).checkpoint_bytes
    assert stored == pytest.approx(688.6e9 - 14e9, rel=5e-3)


def test_an_nvfp4_sidecar_decides_the_bytes_of_a_mixed_checkpoint():
    """Router, head, embedding and norms stay bf16; a tensor's fp32 scale is 4 bytes (0.5625 a parameter)."""
    model = preset("nvidia/Qwen3-235B-A22B-NVFP4")
    count = count_params(model)
    hidden, layers, experts = 4096, 94, 128
    plain = 2 * 151936 * hidden + hidden + layers * (2 * hidden + 2 * 128 + hidden * experts)
    tensors = layers * (4 + 3 * experts)
    assert count.checkpoint_bytes == 2 * plain + 0.5625 * (count.total - plain) + 4 * tensors
