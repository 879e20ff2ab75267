"""Which layers are routed, how many experts, and how a token chooses them."""

import pytest
from ingest.samples import preset, tiny

from inferometer.errors import InferometerError
from inferometer.specs.feedforward import Moe


def routed(model):
    return [isinstance(model.ffns[layer.ffn], Moe) for layer in model.layers]


def moe(model):
    return next(block for block in model.ffns if isinstance(block, Moe))


def test_mixtral_routes_every_layer_and_its_intermediate_size_is_the_expert_s():
    model = tiny("mixtral")
    assert routed(model) == [True] * 4
    assert (moe(model).experts, moe(model).top_k, moe(model).width) == (8, 2, 512)


def test_qwen3_moe_counts_its_sparse_step_from_one():
    assert routed(tiny("qwen3_moe", decoder_sparse_step=2)) == [False, True, False, True]
    assert routed(tiny("qwen3_moe", mlp_only_layers=[0, 3])) == [False, True, True, False]


def test_deepseek_begins_dense_and_then_routes_every_so_many():
    assert routed(tiny("deepseek_v3", first_k_dense_replace=2)) == [False, False, True, True]
    assert routed(tiny("deepseek_v3", moe_layer_freq=2)) == [False, False, True, False]
    assert routed(tiny("deepseek_v3", moe_layer_freq=[1, 1, 0, 1])) == [False, True, False, True]
    assert routed(tiny("deepseek_v3", n_routed_experts=None)) == [False] * 4


def test_an_expert_map_of_the_wrong_length_is_refused():
    with pytest.raises(InferometerError, match="moe_layer_freq has 2 entries"):
        tiny("deepseek_v3", moe_layer_freq=[1, 1])


def test_shared_experts_are_each_as_wide_as_a_routed_one():
    assert moe(tiny("deepseek_v2", n_shared_experts=2)).shared_width == 256
    assert moe(tiny("deepseek_v2", n_shared_experts=None)).shared_width == 0
    absent = tiny("deepseek_v2", drop=["n_shared_experts"])
    assert moe(absent).shared_width == 0
    assert any("n_shared_experts is absent" in line for line in absent.assumed)


def test_groups_count_only_where_the_method_chooses_groups():
    grouping = {"n_group": 4, "topk_group": 2}
    assert moe(tiny("deepseek_v2", topk_method="greedy", **grouping)).groups == 1
    limited = moe(tiny("deepseek_v2", topk_method="group_limited_greedy", **grouping))
    assert (limited.groups, limited.top_groups) == (4, 2)
    corrected = moe(tiny("deepseek_v3", **grouping))
    assert (corrected.groups, corrected.top_groups) == (4, 2)
    assert moe(tiny("deepseek_v3", n_group=None, topk_group=None)).groups == 1


def test_correction_biases_come_with_noaux_tc_and_with_the_v3_class():
    assert not moe(tiny("deepseek_v2")).router_bias
    assert moe(tiny("deepseek_v2", topk_method="noaux_tc")).router_bias
    assert moe(tiny("deepseek_v3")).router_bias
    assert moe(tiny("kimi_k2", drop=["topk_method"])).router_bias
    assert not moe(tiny("mixtral")).router_bias


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_experts_per_tok": 17}, "num_experts_per_tok is 17; allowed: at most the 16 experts"),
        ({"n_group": 3}, "n_group is 3; allowed: a divisor of the 16 experts"),
        ({"topk_group": 5}, "topk_group is 5; allowed: at most n_group = 4"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9; allowed: at most the 8 experts of topk_group = 2"),
        ({"topk_method": "lottery"}, "topk_method is 'lottery'; allowed: greedy"),
    ],
)
def test_routing_that_cannot_be_is_refused(changes, problem):
    with pytest.raises(InferometerError, match=problem):
        tiny("deepseek_v3", **changes)


def test_mtp_layers_are_listed_apart():
    assert [len(drafter.layers) for drafter in preset("deepseek-v3").drafters] == [1]
    assert len(preset("deepseek-v3").layers) == 61
    assert preset("kimi-k2-instruct").drafters == ()
    assert tiny("llama").drafters == ()


def test_experts_have_three_spellings():
    base = moe(tiny("mixtral"))
    for key in ("num_experts", "n_routed_experts"):
        assert moe(tiny("mixtral", drop=["num_local_experts"], **{key: 8})) == base
