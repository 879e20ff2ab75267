"""Configs that list a mixer and a feed-forward a layer (DeciLM, Nemotron NAS): what is there, and refusals."""

import pytest

from inferometer.blocks.params import count_params
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.matrix import Matrix

H, V, HEADS = 256, 1000, 8
PLAIN = {"n_heads_in_group": 4, "no_op": False, "replace_with_linear": False}
DENSE = {"ffn_mult": 2.0, "no_op": False, "replace_with_linear": False}
NONE, MATRIX = {"no_op": True}, {"replace_with_linear": True}


def block(attention=PLAIN, ffn=DENSE, **more):
    return {"attention": attention, "ffn": ffn, **more}


def nas(*blocks, **changes):
    config = {
        "model_type": "nemotron-nas",
        "hidden_size": H,
        "vocab_size": V,
        "num_hidden_layers": len(blocks),
        "num_attention_heads": HEADS,
        "num_key_value_heads": None,
        "intermediate_size": None,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "block_configs": list(blocks),
    }
    return model_from_config(config | changes, name="m", source="test")


def test_each_layer_has_what_its_block_says():
    model = nas(block(), block(NONE), block(ffn=NONE), block(NONE, NONE), block(MATRIX, MATRIX))
    assert [(layer.mixer, layer.ffn) for layer in model.layers] == [(0, 0), (None, 0), (0, None), (None, None), (1, 1)]
    assert isinstance(model.mixers[1], Matrix)
    assert isinstance(model.ffns[1], Matrix)
    attention, dense, matrix = 2 * H * H + 2 * H * 2 * 32 + H, 3 * H * 512 + H, H * H + H
    assert count_params(model).total == 2 * V * H + H + 2 * attention + 2 * dense + 2 * matrix
    assert kv_bytes_per_token(model) == 2 * (2 * 2 * 32) * 2
    assert model.unknown_keys == ()


@pytest.mark.parametrize("group", [1, 2, 8])
def test_kv_heads_are_the_query_heads_over_the_group(group):
    assert nas(block(PLAIN | {"n_heads_in_group": group})).mixers[0].kv_heads == HEADS // group


@pytest.mark.parametrize(
    ("hidden", "multiple", "width"),
    [(8192, 5.25, 28672), (8192, 2.625, 14336), (8192, 1.0, 5632), (8192, 0.5, 2816), (16384, 0.4875, 5376)],
)
def test_a_width_is_two_thirds_of_the_multiple_up_to_256(hidden, multiple, width):
    """28,672 is Llama 3 70B's width, of which the search started; 1.0 is 5461 and 0.4875 is 5324 before rounding up."""
    assert width - 256 < int(2 * multiple * hidden / 3) <= width
    model = nas(block(ffn=DENSE | {"ffn_mult": multiple}), hidden_size=hidden)
    assert model.ffns[0].width == width


def test_quantisation_reaches_a_matrix_in_place_of_a_block():
    fp8 = {"quant_method": "fp8", "weight_block_size": None}
    model = nas(block(), block(MATRIX, MATRIX), quantization_config=fp8)
    assert (model.mixers[1].formats, model.ffns[1].formats) == ({"matrix": "fp8"}, {"matrix": "fp8"})
    left = nas(block(MATRIX), quantization_config=fp8 | {"modules_to_not_convert": ["model.layers.0.self_attn"]})
    assert left.mixers[0].formats == {}


def test_what_a_block_says_that_is_not_understood_is_listed():
    odd = block(PLAIN | {"frob": 1}, DENSE | {"frob": 2}, frob=3)
    found = nas(odd, parallel_blocks=None).unknown_keys
    assert found == ("block_configs.attention.frob", "block_configs.ffn.frob", "block_configs.frob")


@pytest.mark.parametrize(
    ("blocks", "changes", "problem"),
    [
        ([block()], {"block_configs": None}, "block_configs is null; allowed: a list with an object a layer"),
        ([block(), 3], {}, r"block_configs\[1\] is 3; allowed: an object"),
        ([block()], {"num_hidden_layers": 2}, "block_configs is '1 layers'; allowed: num_hidden_layers = 2"),
        ([block({})], {}, r"block_configs\[0\].attention: n_heads_in_group is missing"),
        ([block(PLAIN | {"n_heads_in_group": 3})], {}, "n_heads_in_group is 3; allowed: a divisor of num_attention"),
        ([block(ffn={})], {}, r"block_configs\[0\].ffn: ffn_mult is missing or null"),
        ([block(ffn={"ffn_mult": -1.0})], {}, "ffn_mult is -1.0; allowed: a number from"),
        ([block(ffn={"ffn_mult": 1e6})], {"hidden_size": 10**6}, "ffn_mult is .*; allowed: a width of at most"),
        ([block(PLAIN | {"window_length": 7})], {}, "window_length is 7; allowed: null"),
        ([block(PLAIN | {"sparsify": ["q"]})], {}, "sparsify is .*; allowed: null"),
        ([block(PLAIN | {"no_op": 1})], {}, "no_op is 1; allowed: true or false"),
        ([block()], {"parallel_blocks": 2}, "parallel_blocks is 2; allowed: null"),
    ],
    ids=str,
)
def test_a_block_that_cannot_be_is_refused(blocks, changes, problem):
    with pytest.raises(InferometerError, match=problem) as caught:
        nas(*blocks, **changes)
    assert "\n" not in str(caught.value)


def test_deci_lists_kv_heads_a_layer():
    """DeciLM-7B has 67 kv heads in all and 7,043,551,232 parameters; how they lie over its layers is made up here."""
    kv_heads = [4] * 4 + [1] * 5 + [2] * 23
    config = {
        "model_type": "deci",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads_per_layer": kv_heads,
        "vocab_size": 32000,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    }
    model = model_from_config(config, name="m", source="test")
    assert sum(kv_heads) == 67
    assert [model.mixers[layer.mixer].kv_heads for layer in model.layers] == kv_heads
    assert count_params(model).total == 7_043_551_232
    with pytest.raises(InferometerError, match=r"num_key_value_heads is .*; allowed: .* = 32 of them"):
        model_from_config(config | {"num_key_value_heads_per_layer": [4, 4]}, name="m", source="test")
