import json

import pytest

from inferometer.catalog.presets import expand, preset_config, preset_ids, preset_index
from inferometer.errors import InferometerError, UnknownNameError


@pytest.mark.parametrize("ident", preset_ids())
def test_every_preset_is_a_config_with_a_source(ident):
    preset = preset_config(ident)
    assert preset.id == ident == ident.lower()
    assert preset.source
    assert isinstance(preset.config["model_type"], str)
    assert ".." not in json.dumps([preset.config, preset.quant_sidecar])


def test_every_name_finds_its_preset():
    assert len(preset_ids()) == 38 + 3 + 49 + 12 + 10 + 6 + 3 + 37 + 6
    for name, ident in preset_index().items():
        assert preset_config(name).id == ident


@pytest.mark.parametrize(
    ("name", "ident"),
    [
        ("llama-3.1-70b", "meta-llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B", "meta-llama-3.1-70b"),
        ("llama-3-8b", "meta-llama-3-8b"),
        ("kimi-k2", "kimi-k2-instruct"),
        ("mixtral-8x7b", "mixtral-8x7b-v0.1"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("deepseek-v3", "deepseek-v3"),
        ("deepseek-r1", "deepseek-r1"),
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("gemma-3-27b", "gemma-3-27b-it"),
        ("llama-4-scout", "llama-4-scout-17b-16e-instruct"),
        ("llama-4-maverick", "llama-4-maverick-17b-128e-instruct"),
        ("glm-4.5", "glm-4.5"),
        ("kimi-k2.5", "kimi-k2.5"),
        ("hunyuan-a13b", "hunyuan-a13b-instruct"),
        ("qwen3-vl-235b-a22b", "qwen3-vl-235b-a22b-instruct"),
        ("phi-3.5-mini", "phi-3.5-mini-instruct"),
        ("falcon-180b", "falcon-180b-chat"),
        ("stablelm-2-zephyr-1.6b", "stablelm-2-zephyr-1_6b"),
    ],
)
def test_names(name, ident):
    assert preset_config(name).id == ident


LATE = """
deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro deepseek-v4.1-flash kimi-linear kimi-k2.5 kimi-k2.6 kimi-k2.7 kimi-k3
glm-5 glm-5.1 glm-5.2 glm-5.3 glm-5.3-flash qwen3-next qwen3.5-27b qwen3.6-27b qwen3.8-flash-next minimax-m1
minimax-m2.5 minimax-m2.7 minimax-m3 nemotron-3-nano nemotron-3-super nemotron-3-ultra nemotron-3.5 gemma-4-e2b
gemma-4-e4b gemma-4-26b-a4b gemma-4-31b step-3.5 step-3.7 mimo-v2-flash mimo-v2-pro longcat-flash hy3 hy4 inkling
nemotron-h jamba falcon-h1 granite-4-hybrid mamba-2 qwen3.8-27b
inkling-2-small inkling-2-mini dots3 ling-2.6 ling-3.0 lfm2-1.2b mistral-large-3 mistral-large-4 mistral-small-4
"""


@pytest.mark.parametrize("name", LATE.split())
def test_models_of_2026_are_found_by_name(name):
    assert preset_config(name).id in preset_ids()


@pytest.mark.parametrize(
    "name",
    "nemotron-h-47b jamba-v0.1 falcon-h1-34b granite-4.0-h-tiny lfm2 longcat-2.0 ling-2.5 ling-3.1".split(),  # noqa: SIM905
)
def test_models_of_which_no_config_was_found_are_refused_with_the_reason(name):
    with pytest.raises(InferometerError, match="no preset: it"):
        preset_config(name)


def test_configs_that_are_not_the_published_file_say_so():
    assert preset_config("hy4").assumed
    assert not preset_config("deepseek-v4-flash").assumed


def test_llama_3_has_the_shapes_of_3_1_and_a_shorter_context():
    for size in ("8b", "70b"):
        older, newer = (preset_config(f"llama-{v}-{size}").config for v in ("3", "3.1"))
        assert older["max_position_embeddings"] == 8192
        assert {k for k in newer if older[k] != newer[k]} == {"max_position_embeddings", "rope_scaling"}


def test_per_module_rules_are_written_out():
    config = preset_config("qwen3-235b-a22b-fp8").config
    kept = config["quantization_config"]["modules_to_not_convert"]
    layers = config["num_hidden_layers"]
    assert len(kept) == len(set(kept)) == 3 * layers + 1
    assert {f"model.layers.{i}.mlp.gate" for i in range(layers)} < set(kept)
    sidecar = preset_config("nvidia/Qwen3-235B-A22B-NVFP4").quant_sidecar
    assert sidecar is not None
    assert len(sidecar["quantization"]["exclude_modules"]) == layers + 1


def test_module_lists_of_sidecars_are_written_out():
    sidecar = preset_config("nvidia/Kimi-K2.7-Code-NVFP4").quant_sidecar
    assert sidecar is not None
    left_out = sidecar["quantization"]["exclude_modules"]
    assert {f"language_model.model.layers.{i}.self_attn*" for i in range(1, 61)} < set(left_out)


def test_a_preset_is_the_callers_own():
    preset_config("deepseek-v3").config.clear()
    assert preset_config("deepseek-v3").config


def test_names_that_do_not_decide():
    with pytest.raises(InferometerError, match=r"ambiguous; choose one of: qwen2\.5-1\.5b"):
        preset_config("qwen2.5")
    with pytest.raises(UnknownNameError, match="did you mean"):
        preset_config("deepseek-v33")


def test_expand_leaves_the_rest_alone():
    assert expand({"a": [1, {"b": None}], "c": "x.{0..2}"}) == {"a": [1, {"b": None}], "c": "x.{0..2}"}
