"""Families that tell layers apart by lists: cross-attention, inputs and sharing of the last layers, heads a layer."""

import pytest
from ingest.families import family, ffns, mixers
from ingest.samples import preset

from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import CrossAttention

VISION = "meta-llama/Llama-3.2-90B-Vision-Instruct"


def changed(hub_id, **inside):
    config = preset_config(hub_id).config
    return model_from_config(config | {"text_config": config["text_config"] | inside}, name="m", source="test")


def test_llama_3_2_vision_attends_to_images_on_each_fifth_layer():
    model = preset(VISION)
    crossed = [layer for layer, mixer in enumerate(mixers(model)) if isinstance(mixer, CrossAttention)]
    assert crossed == list(range(3, 100, 5))
    assert kv_bytes_per_token(model) == 80 * 2 * 8 * 128 * 2
    assert model.more_rows == 8
    assert any("skipped" in line for line in model.assumed)
    plain = count_params(changed(VISION, cross_attention_layers=[]))
    assert count_params(model).total - plain.total == 20 * (2 * 128 + 2)


@pytest.mark.parametrize(
    ("layers", "problem"),
    [(None, "is missing or null"), ([100], r"cross_attention_layers\[0\] is 100; allowed: an integer from 0 to 99")],
)
def test_layers_that_are_not_there_are_refused(layers, problem):
    with pytest.raises(InferometerError, match=problem):
        changed(VISION, cross_attention_layers=layers)


@pytest.mark.parametrize(
    ("hub_id", "layers", "shared", "kv_heads", "every"),
    [("google/gemma-4-E4B-it", 42, 18, 2, 6), ("google/gemma-4-E2B-it", 35, 20, 1, 5)],
)
def test_the_last_layers_of_gemma_4_e_have_no_keys_of_their_own(hub_id, layers, shared, kv_heads, every):
    model = preset(hub_id)
    blocks = mixers(model)
    assert [block.kv_shared for block in blocks] == [layer >= layers - shared for layer in range(layers)]
    assert [block.k_norm for block in blocks] == [not block.kv_shared for block in blocks]
    assert [block.window is None for block in blocks] == [(layer + 1) % every == 0 for layer in range(layers)]
    assert {(block.window, block.head_dim) for block in blocks} == {(512, 256), (None, 512)}
    own = layers - shared
    full = own // every
    assert kv_bytes_per_token(model) == 2 * 2 * kv_heads * (full * 512 + (own - full) * 256)


def test_feed_forwards_of_layers_that_share_are_twice_as_wide_where_it_is_switched_on():
    assert [ffn.width for ffn in ffns(preset("google/gemma-4-E2B-it"))] == [6144] * 15 + [12288] * 20
    assert {ffn.width for ffn in ffns(preset("google/gemma-4-E4B-it"))} == {10240}
    assert {ffn.width for ffn in ffns(changed("google/gemma-4-E2B-it", use_double_wide_mlp=False))} == {6144}


def test_gemma_4_brings_256_features_a_layer_unless_it_says_otherwise():
    model = preset("google/gemma-4-E4B-it")
    assert (model.layer_inputs.width, model.layer_inputs.rows) == (256, 262_144)
    without = changed("google/gemma-4-E4B-it", hidden_size_per_layer_input=0)
    assert without.layer_inputs is None
    hidden, wide = 2560, 42 * 256
    given = (262_144 + hidden) * wide + 256 + 42 * (2 * 256 * hidden + hidden)
    assert count_params(model).total - count_params(without).total == given
    config = preset_config("google/gemma-4-E4B-it").config
    text = {key: value for key, value in config["text_config"].items() if key != "hidden_size_per_layer_input"}
    assert model_from_config(config | {"text_config": text}, name="m", source="test").layer_inputs == model.layer_inputs


def test_layer_inputs_of_a_quantised_checkpoint_are_said_to_be_plain():
    model = changed("google/gemma-4-E4B-it", quantization_config={"quant_method": "fp8", "weight_block_size": None})
    assert any("unquantised" in line for line in model.assumed)


def test_all_layers_cannot_share():
    with pytest.raises(InferometerError, match="num_kv_shared_layers is 42; allowed: less than num_hidden_layers"):
        changed("google/gemma-4-E4B-it", num_kv_shared_layers=42)


@pytest.mark.parametrize("model_type", ["gemma3n", "gemma3n_text"])
def test_gemma_3n_is_refused_for_what_its_layers_have(model_type):
    with pytest.raises(InferometerError, match=f"AltUp streams and LAuReL branches of model_type '{model_type}'"):
        model_from_config({"model_type": model_type}, name="m", source="test")


LAGUNA = "poolside/Laguna-XS.2"


def test_laguna_lists_query_heads_a_layer_and_gates_each_head():
    model = family(LAGUNA)
    assert [block.heads for block in mixers(model)] == [48, 64, 64, 64] * 10
    assert {(block.kv_heads, block.head_dim, block.gate) for block in mixers(model)} == {(8, 128, "head")}
    assert [block.window for block in mixers(model)][:4] == [None, 512, 512, 512]
    assert [type(block) for block in ffns(model)] == [Ffn] + [Moe] * 39
    assert (model.ffns[1].shared_width, model.ffns[1].router_bias) == (512, True)


def test_laguna_s_defaults_are_its_class_s():
    lists = ("num_attention_heads_per_layer", "mlp_layer_types", "gating")
    model = family(LAGUNA, drop=lists)
    assert {block.heads for block in mixers(model)} == {48}
    assert [type(block) for block in ffns(model)] == [Ffn] + [Moe] * 39
    assert {block.gate for block in mixers(model)} == {"head"}
    assert family(LAGUNA, gating=True).mixers[0].gate == "head"
    assert family(LAGUNA, num_attention_heads_per_layer=None).mixers[0].heads == 48


def test_a_gate_an_element_and_biases_have_the_counted_parameters():
    """34,067,318,528: transformers 5.24.0 meta device."""
    model = family(LAGUNA, gating="per-element", attention_bias=True)
    assert model.mixers[0].gate == "wide"
    assert count_params(model).total == 34_067_318_528


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gating": "per-layer"}, "gating is 'per-layer'; allowed: true or 'per-head' or 'per-element'"),
        ({"gating": False}, "gating is false"),
        ({"gating": ["per-head"]}, "gating is "),
        (
            {"num_attention_heads_per_layer": [48] * 3},
            "allowed: an integer from 1 to .* num_hidden_layers = 40 of them",
        ),
        ({"num_attention_heads_per_layer": [44] * 40}, "num_key_value_heads is 8; allowed: a divisor of .* = 44"),
        ({"mlp_layer_types": ["dense"] * 39}, "mlp_layer_types is '39 layers'; allowed: num_hidden_layers = 40"),
        ({"mlp_layer_types": ["sparse", "none"] * 20}, "mlp_layer_types is 'none'; allowed: dense, sparse"),
        ({"moe_apply_router_weight_on_input": True}, "moe_apply_router_weight_on_input is true; allowed: false"),
    ],
    ids=str,
)
def test_what_laguna_cannot_be_is_refused(changes, problem):
    with pytest.raises(InferometerError, match=problem):
        family(LAGUNA, **changes)


def test_molmo_states_gate_and_up_together_and_has_128_rows_more():
    model = family("allenai/Molmo-7B-D-0924")
    assert (model.ffns[0].width, model.more_rows, model.vocab) == (18_944, 128, 152_064)
    assert model.mixers[0].qkv_bias
    assert any("without its image tower" in line for line in model.assumed)
    padded = family("allenai/Molmo-7B-D-0924", vocab_size=151_000)
    assert padded.vocab == 152_064
    with pytest.raises(InferometerError, match="norm_after is true; allowed: false"):
        family("allenai/Molmo-7B-D-0924", norm_after=True)


def test_arcee_has_a_plain_feed_forward():
    assert not family("arcee-ai/AFM-4.5B").ffns[0].gated
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    tiny = family("arcee-ai/AFM-4.5B", vocab_size=1000, num_key_value_heads=4, head_dim=32, **sizes)
    assert count_params(tiny).total == 2 * 256_000 + 256 + 2 * (2 * 256 + 3 * 256 * 256 + 2 * 256 * 512)
    biased = family(
        "arcee-ai/AFM-4.5B",
        vocab_size=1000,
        num_key_value_heads=4,
        head_dim=32,
        attention_bias=True,
        mlp_bias=True,
        **sizes,
    )
    assert count_params(biased).total == 1_433_856


@pytest.mark.parametrize("model_type", ["arcee", "llama"])
def test_native_parameters_are_refused_as_such(model_type):
    with pytest.raises(InferometerError, match=r"native parameters \(dim, n_layers\), not a Hugging Face config"):
        model_from_config({"model_type": model_type, "dim": 2560, "n_layers": 36}, name="m", source="test")
