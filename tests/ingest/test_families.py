"""Families beside the presets: published counts, exactly, and the traps of their configs."""

import pytest
from ingest.families import FAMILIES, IDS, family, ffns, mixers

from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config, preset_ids
from inferometer.errors import InferometerError, UnknownNameError
from inferometer.ingest.config import model_from_config
from inferometer.ingest.dialects import DIALECTS
from inferometer.ingest.wrappers import WRAPPERS
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.feedforward import Ffn, Moe


@pytest.mark.parametrize("row", FAMILIES, ids=IDS)
def test_a_published_model_has_its_published_parameter_count(row):
    model = family(row["model"])
    assert count_params(model).total == row["total"] - row.get("apart", 0), row.get("why")
    assert model.unknown_keys == ()


def test_a_family_without_a_published_config_says_so():
    presets = [preset_config(ident) for ident in preset_ids()]
    configs = [preset.config for preset in presets if not preset.assumed]
    configs += [row["config"] for row in FAMILIES if row["kind"] != "recalled"]
    inner = [config["text_config"] for config in configs if "text_config" in config]
    texts = [config.get("model_type", "") for config in inner]
    at_hand = {config["model_type"] for config in configs} | set(texts)
    at_hand |= {WRAPPERS[config["model_type"]].text for config in configs if config["model_type"] in WRAPPERS}
    from_code = {name for name, dialect in DIALECTS.items() if dialect.from_code_alone}
    in_part = {name for name, dialect in DIALECTS.items() if any("rebuilt" in said for said in dialect.says)}
    assert from_code | in_part == set(DIALECTS) - at_hand
    hunyuan = family("tencent/Hunyuan-A13B-Instruct", model_type="hunyuan_v1_moe")
    assert any("rests on the public modelling code alone" in line for line in hunyuan.assumed)
    assert not any("modelling code" in line for line in family("tencent/Hunyuan-A13B-Instruct").assumed)


def test_every_count_that_differs_says_why():
    assert all(row["why"] for row in FAMILIES if row.get("apart"))


@pytest.mark.parametrize(
    ("model", "of_all_layers"),
    [
        ("openai/gpt-oss-120b", 73_728),
        ("openai/gpt-oss-20b", 49_152),
        ("zai-org/GLM-4.5", 376_832),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 196_608),
        ("MiniMaxAI/MiniMax-M2.5", 253_952),
        ("ByteDance-Seed/Seed-OSS-36B", 262_144),
        ("moonshotai/Kimi-K2.5", 70_272),
    ],
)
def test_a_token_s_cache_in_bf16(model, of_all_layers):
    assert kv_bytes_per_token(family(model)) == of_all_layers


def windows(model):
    return [mixer.window for mixer in mixers(model)]


def test_gemma_2_windows_even_layers_and_gemma_3_all_but_each_sixth():
    assert windows(family("google/gemma-2-2b"))[:4] == [4096, None, 4096, None]
    assert windows(family("google/gemma-3-12b"))[:12] == [*[1024] * 5, None, *[1024] * 5, None]
    assert windows(family("google/gemma-3-1b-it", sliding_window_pattern=3))[:6] == [512, 512, None] * 2
    listed = windows(family("google/medgemma-27b-it"))
    assert [layer for layer, window in enumerate(listed) if window is None][:2] == [5, 11]


def test_gpt_oss_windows_every_other_layer_and_has_sinks_on_all():
    model = family("openai/gpt-oss-20b")
    assert windows(model)[:2] == [128, None]
    assert windows(family("openai/gpt-oss-20b", drop=["layer_types"])) == windows(model)
    assert all(mixer.sinks and mixer.qkv_bias and mixer.out_bias for mixer in model.mixers)
    assert all(ffn.bias and ffn.router_linear_bias for ffn in model.ffns)


def test_gpt_oss_has_only_its_experts_in_mxfp4():
    model = family("openai/gpt-oss-20b")
    assert all(not mixer.formats for mixer in model.mixers)
    assert model.ffns[0].formats == {"gate": "mxfp4", "up": "mxfp4", "down": "mxfp4"}
    assert count_params(model).checkpoint_bytes == pytest.approx(13.76e9, rel=2e-3)


def test_exaone_4_spells_its_period_in_letters():
    assert windows(family("LGAI-EXAONE/EXAONE-4.0-32B"))[:8] == [4096, 4096, 4096, None] * 2
    with pytest.raises(InferometerError, match="sliding_window_pattern is 'LLX'"):
        family("LGAI-EXAONE/EXAONE-4.0-32B", sliding_window_pattern="LLX")


@pytest.mark.parametrize("model", ["allenai/Olmo-3-7B", "CohereForAI/c4ai-command-r7b-12-2024"])
def test_each_fourth_layer_is_full(model):
    assert windows(family(model))[:8] == [4096, 4096, 4096, None] * 2


def test_phi_3_and_starcoder_2_window_every_layer():
    assert set(windows(family("microsoft/Phi-3-mini-4k-derived"))) == {2047}
    assert set(windows(family("bigcode/starcoder2-7b"))) == {4096}
    assert set(windows(family("microsoft/phi-4"))) == {None}


def test_llama_4_attends_in_chunks_but_for_each_fourth_layer():
    model = family("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    assert [mixer.chunk for mixer in mixers(model)][:8] == [8192, 8192, 8192, None] * 2
    assert set(windows(model)) == {None}
    ropes = {"no_rope_layers": [1, 0] * 24}
    listed = family("meta-llama/Llama-4-Scout-17B-16E-Instruct", inside=ropes)
    assert [mixer.chunk for mixer in mixers(listed)][:4] == [8192, None] * 2


def test_llama_4_maverick_routes_every_other_layer_with_one_shared_expert():
    model = family("meta-llama/Llama-4-Maverick-17B-128E-Instruct")
    first, second = ffns(model)[:2]
    assert isinstance(first, Ffn)
    assert first.width == 16384
    assert (second.experts, second.top_k, second.width, second.shared_width) == (128, 1, 8192, 8192)
    assert any(
        line.startswith("Absent from the vision_config, so as its class has it: hidden") for line in model.assumed
    )


def test_hunyuan_shares_keys_and_values_between_two_layers_only_where_it_is_switched_on():
    large, small = family("tencent/Hunyuan-Large"), family("tencent/Hunyuan-A13B-Instruct")
    assert [mixer.kv_shared for mixer in mixers(large)] == [False, True] * 32
    assert kv_bytes_per_token(large) == 32 * 2 * 2 * 8 * 80
    assert not any(mixer.kv_shared for mixer in small.mixers)
    assert (small.mixers[0].head_dim, small.ffns[0].top_k, small.ffns[0].shared_width) == (128, 8, 3072)


def test_hunyuan_lists_one_size_a_layer():
    widths = [3072] * 31 + [1024]
    model = family("tencent/Hunyuan-A13B-Instruct", moe_intermediate_size=widths)
    assert [ffn.width for ffn in ffns(model)] == widths
    with pytest.raises(InferometerError, match=r"moe_topk is .*; allowed: .* num_hidden_layers = 32 of them"):
        family("tencent/Hunyuan-A13B-Instruct", moe_topk=[8, 8])
    with pytest.raises(InferometerError, match="use_mla is true; allowed: false"):
        family("tencent/Hunyuan-A13B-Instruct", use_mla=True)


def test_qwen_1_states_gate_and_up_together():
    assert family("Qwen/Qwen-72B").ffns[0].width == 24576
    with pytest.raises(InferometerError, match="intermediate_size is 49151; allowed: a multiple of 2"):
        family("Qwen/Qwen-72B", intermediate_size=49151)
    with pytest.raises(InferometerError, match="no_bias is false; allowed: true"):
        family("Qwen/Qwen-72B", no_bias=False)


def test_qwen_1_5_moe_has_a_gated_shared_expert():
    block = family("Qwen/Qwen1.5-MoE-A2.7B").ffns[0]
    assert (block.experts, block.shared_width, block.shared_gate) == (60, 5632, True)


def test_falcon_s_multi_query_means_one_head_only_in_the_old_architecture():
    assert family("tiiuae/falcon-7b").mixers[0].kv_heads == 1
    assert family("tiiuae/falcon-180B-chat").mixers[0].kv_heads == 8
    assert family("bigcode/gpt_bigcode-santacoder").mixers[0].kv_heads == 1


def test_falcon_stores_a_head_and_says_so():
    model = family("tiiuae/falcon-180B-chat")
    assert not model.tied
    assert any("head" in line for line in model.assumed)


@pytest.mark.parametrize(
    ("model", "parallel", "own_norm"),
    [
        ("tiiuae/falcon-7b", True, False),
        ("tiiuae/falcon-180B-chat", True, True),
        ("EleutherAI/gpt-j-6b", True, False),
        ("EleutherAI/pythia-6.9b", True, True),
        ("microsoft/phi-2", True, False),
        ("CohereForAI/aya-23-8B", True, False),
        ("stabilityai/stablelm-3b-4e1t", False, True),
        ("stabilityai/stablelm-2-12b", True, False),
        ("openai-community/gpt2", False, True),
    ],
)
def test_which_families_run_the_feed_forward_beside_attention(model, parallel, own_norm):
    block = family(model).ffns[0]
    assert (block.parallel, block.pre_norm) == (parallel, own_norm)


@pytest.mark.parametrize(
    ("model", "pre", "post"),
    [
        ("google/gemma-2b", True, False),
        ("google/gemma-2-9b", True, True),
        ("google/gemma-3-27b", True, True),
        ("allenai/OLMo-2-0325-32B", False, True),
        ("LGAI-EXAONE/EXAONE-4.0-32B", False, True),
        ("THUDM/GLM-4-9B-0414", True, True),
        ("zai-org/GLM-4.5", True, False),
    ],
)
def test_where_the_norms_are(model, pre, post):
    for block in (*family(model).mixers, *family(model).ffns):
        assert (block.pre_norm, block.post_norm) == (pre, post)


@pytest.mark.parametrize(
    ("model", "over"),
    [
        ("allenai/OLMo-2-0325-32B", "all"),
        ("MiniMaxAI/MiniMax-M2.5", "all"),
        ("CohereForAI/c4ai-command-r-plus", "heads"),
        ("zai-org/GLM-4.5", "head"),
        ("CohereForAI/aya-23-8B", None),
        ("PrimeIntellect/INTELLECT-3-Base", None),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", None),
    ],
)
def test_what_norms_of_q_and_k_span(model, over):
    block = family(model).mixers[0]
    assert (block.qk_norm_over if block.qk_norm else None) == over


def test_mimo_v2_has_other_heads_and_sinks_on_windowed_layers():
    full, windowed = mixers(family("XiaomiMiMo/MiMo-V2-Flash"))[:2]
    assert (full.window, full.kv_heads, full.sinks) == (None, 4, False)
    assert (windowed.window, windowed.kv_heads, windowed.sinks) == (128, 8, True)
    assert (full.head_dim, full.v_dim) == (192, 128)


def test_olmo_1_has_norms_without_weights_and_gpt_2_learned_positions():
    olmo = family("allenai/OLMo-7B-hf")
    assert not any(tensor == "norm" for tensor in count_params(olmo).by_kind)
    assert family("openai-community/gpt2").positions == 1024
    assert family("bigscience/bloom-560m").embedding_norm
    assert family("microsoft/phi-2").head_bias


def test_ties_follow_the_class_where_the_key_is_absent():
    tied = ("google/gemma-2b", "CohereForAI/aya-23-8B", "bigscience/bloom", "openai-community/gpt2")
    assert all(family(model).tied for model in tied)
    assert not family("baichuan-inc/Baichuan2-7B").tied


def test_a_wrapper_may_hold_the_tie_the_type_and_the_quantisation_at_the_top():
    vl = family("Qwen/Qwen3-VL-8B-Instruct", drop=["tie_word_embeddings"], inside={"tie_word_embeddings": True})
    assert vl.tied
    assert not family("Qwen/Qwen3-VL-8B-Instruct").tied
    assert family("google/gemma-3-12b", torch_dtype="float16").dtype == "fp16"
    quantised = family("google/gemma-3-12b", quantization_config={"quant_method": "fp8", "weight_block_size": None})
    assert quantised.mixers[0].formats["q"] == "fp8"
    nested = family("moonshotai/Kimi-K2.5")
    assert nested.ffns[-1].formats["gate"] == "int4-g32"


def test_a_null_inside_a_wrapper_is_not_an_absence():
    direct = family("moonshotai/Kimi-K2.5", inside={"q_lora_rank": None})
    assert direct.mixers[0].q_rank is None
    outer = family("Qwen/Qwen3-VL-8B-Instruct", tie_word_embeddings=True, inside={"tie_word_embeddings": None})
    assert outer.tied


def test_qwen_2_5_vl_holds_its_language_model_at_the_top():
    model = family("Qwen/Qwen2.5-VL-7B-Instruct", frobnicate=1)
    assert model.unknown_keys == ("frobnicate",)
    assert count_params(model).by_kind["tower"] == 676_550_144
    assert set(windows(model)) == {None}


def test_a_tower_that_does_not_end_in_the_language_model_is_refused():
    sizes = {
        "out_hidden_size": 7,
        "depth": 1,
        "hidden_size": 8,
        "num_heads": 2,
        "intermediate_size": 8,
        "patch_size": 2,
    }
    tower = sizes | {"temporal_patch_size": 2, "spatial_merge_size": 2}
    with pytest.raises(InferometerError, match="vision_config: out_hidden_size is 7; allowed: the language model's"):
        family("Qwen/Qwen2.5-VL-7B-Instruct", vision_config=tower)


def test_gemma_3_leaves_its_vocabulary_to_the_class():
    text = family("google/gemma-3-4b-it")
    assert text.vocab == 262208
    assert any("vocab_size = 262208" in line for line in text.assumed)


def test_gemma_4_has_other_heads_and_no_v_projection_on_full_layers():
    model = family("google/gemma-4-26B-A4B")
    windowed, full = mixers(model)[0], mixers(model)[5]
    assert (windowed.window, windowed.kv_heads, windowed.head_dim, windowed.v_from_k) == (1024, 8, 256, False)
    assert (full.window, full.kv_heads, full.head_dim, full.v_from_k) == (None, 2, 512, True)
    block = model.ffns[0]
    assert (block.experts, block.top_k, block.width, block.shared_width, block.branch_norms) == (128, 8, 704, 2112, 3)
    dense = family("google/gemma-4-31B").ffns
    assert [type(ffn) for ffn in dense] == [Ffn]


def test_gemma_4_caches_k_and_v_apart_although_they_share_a_projection():
    """20,480 bytes a token on full layers, 8,192 a token in the window of each other (published for 26B-A4B)."""
    model = family("google/gemma-4-26B-A4B")
    assert kv_bytes_per_token(model) == 20_480 + 25 * 8192


def test_towers_are_counted_where_they_are_understood():
    assert count_params(family("google/gemma-3-27b")).by_kind["tower"] == 423_060_336
    assert count_params(family("Qwen/Qwen3-VL-2B-Instruct")).by_kind["tower"] == 406_957_056
    assert count_params(family("moonshotai/Kimi-K2.5")).by_kind["tower"] == 471_143_920
    assert family("google/gemma-3-27b").towers[0].name == "vision"


def test_a_tower_that_is_not_understood_is_listed_and_said():
    config = {"model_type": "llava", "text_config": llama(), "vision_config": {"model_type": "intern_vit"}}
    model = model_from_config(config, name="m", source="test")
    assert model.unknown_keys == ("vision_config",)
    assert "The parameters of vision_config are not counted." in model.assumed


def llama(**more):
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    return {"model_type": "llama", "vocab_size": 1000, "max_position_embeddings": 4096} | sizes | more


def test_unknown_keys_inside_a_wrapper_say_where_they_are():
    config = {"model_type": "llava", "text_config": llama(frobnicate=1), "frob": 2}
    assert model_from_config(config, name="m", source="test").unknown_keys == ("frob", "text_config.frobnicate")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"model_type": "gemma3"}, "text_config is missing or null"),
        ({"model_type": "gemma3", "text_config": 3}, "text_config is 3; allowed: an object"),
    ],
)
def test_a_wrapper_without_a_language_model_is_refused(config, problem):
    with pytest.raises(InferometerError, match=problem):
        model_from_config(config, name="m", source="test")


def test_a_wrapper_of_an_unknown_family_is_refused():
    with pytest.raises(UnknownNameError, match="unknown model_type 'lama'"):
        model_from_config({"model_type": "llava", "text_config": llama(model_type="lama")}, name="m", source="test")


def test_dbrx_nests_its_sizes():
    model = family("databricks/dbrx-instruct", attn_config={"kv_n_heads": 8, "frob": 1})
    assert (model.mixers[0].kv_heads, model.ffns[0].experts, model.ffns[0].top_k) == (8, 16, 4)
    assert model.unknown_keys == ("attn_config.frob",)


def test_prediction_layers_of_mimo_stand_apart():
    count = count_params(family("XiaomiMiMo/MiMo-7B-Base"))
    assert count.total + count.mtp == 7_833_409_536


def test_active_parameters_of_families_whose_names_state_them():
    assert count_params(family("openai/gpt-oss-120b")).active_one_table == pytest.approx(5.13e9, rel=2e-3)
    assert count_params(family("openai/gpt-oss-20b")).active_one_table == pytest.approx(3.61e9, rel=2e-3)
    scout = count_params(family("meta-llama/Llama-4-Scout-17B-16E-Instruct"))
    assert scout.active - scout.by_kind["tower"] == pytest.approx(17.17e9, rel=1e-2)
    assert any(isinstance(ffn, Moe) for ffn in family("zai-org/GLM-4.5").ffns)
