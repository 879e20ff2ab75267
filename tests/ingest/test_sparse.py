"""Configs of sparse attention: totals and bytes published of released models, and what each family's keys mean."""

import pytest
from ingest.families import family, mixers
from ingest.samples import preset

from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.ingest.dialect import FROM_CODE_ALONE
from inferometer.memory.footprint import kv_bytes_per_token

M3 = "MiniMaxAI/MiniMax-M3"


def changed(name, *, drop=(), **changes):
    """Return the model of a preset with keys changed or dropped."""
    config = {key: value for key, value in (preset_config(name).config | changes).items() if key not in drop}
    return model_from_config(config, name=name, source="test")


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("deepseek-v3.2", 61 * (576 * 2 + 132)),
        ("glm-5.1", 100_152),
        ("glm-5-nvfp4", 61_464),
        ("glm-5.2", 92_628),
        ("glm-5.3", 92_628),
        ("glm-5.3-nvfp4", 53_940),
    ],
)
def test_a_token_keeps_the_published_bytes(name, each):
    assert kv_bytes_per_token(preset(name)) == each


def test_minimax_m3_keeps_one_index_key_in_layers_that_choose():
    model = family(M3)
    assert kv_bytes_per_token(model) == 137_472
    assert [mixer.indexer is not None for mixer in mixers(model)] == [False] * 3 + [True] * 57
    own = mixers(model)[-1].indexer
    assert (own.top_k, own.block, own.lists, own.heads, own.weighted) == (2048, 128, 4, 4, False)
    assert count_params(model).active - 2 * model.vocab * model.hidden == pytest.approx(23.504e9, rel=1e-3)


def test_minimax_m3_without_sparse_attention():
    config = {"sparse_attention_config": {"use_sparse_attention": False}}
    assert all(mixer.indexer is None for mixer in mixers(family(M3, **config)))


@pytest.mark.parametrize(
    ("name", "active"), [("glm-5-fp8", 40.833e9), ("glm-5.2", 40.299e9), ("deepseek-v3.2", 37.48e9)]
)
def test_active_parameters(name, active):
    assert count_params(preset(name)).active_one_table == pytest.approx(active, rel=2e-4)


def test_glm_5_1_has_the_bytes_of_its_checkpoint():
    assert count_params(preset("glm-5.1")).checkpoint_bytes == 1_487_822_475_264


@pytest.mark.parametrize("name", ["glm-5-fp8", "deepseek-v3.2"])
def test_what_decides_where_to_look_stays_wide(name):
    formats = preset(name).mixers[0].formats
    assert formats["index_q"] == formats["index_k"] == formats["kv_b"] == "fp8-block"
    assert "index_weights" not in formats


def test_the_nvfp4_recipe_quantises_experts_alone():
    model = preset("glm-5.3-nvfp4")
    assert all(mixer.formats == {} for mixer in model.mixers)
    assert all(set(ffn.formats) <= {"gate", "up", "down"} for ffn in model.ffns)
    assert model.kv_format == "fp8"


FULL = [0, 1, 2, *range(6, 78, 4)]


def test_layers_that_share_a_choice_are_listed_or_follow_a_period():
    listed = preset("glm-5.2")
    own = [layer for layer, mixer in enumerate(mixers(listed)) if not mixer.indexer.shared]
    assert own == FULL
    assert len(own) == 21
    assert changed("glm-5.2", drop=["indexer_types"]).layers == listed.layers
    letters = "".join("F" if layer in FULL else "S" for layer in range(78))
    by_letter = changed("glm-5.2", drop=["indexer_types"], index_topk_pattern=letters)
    assert by_letter.layers == listed.layers
    assert not any(mixer.indexer.shared for mixer in preset("glm-5.1").mixers)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"indexer_types": ["full"] * 77}, "indexer_types has 77 entries; allowed: num_hidden_layers = 78"),
        ({"indexer_types": ["shared"] * 78}, "indexer_types is 'shared'; allowed: full in the first layer"),
        ({"indexer_types": ["half"] * 78}, "indexer_types is 'half'; allowed: full or shared"),
        ({"index_topk": 0}, "index_topk is 0; allowed: an integer from 1"),
        ({"mlp_layer_types": ["dense"] * 3}, "mlp_layer_types is '3 layers'"),
    ],
)
def test_lists_that_do_not_fit_are_refused(changes, problem):
    with pytest.raises(InferometerError, match=problem):
        changed("glm-5.2", **changes)


DOTS3 = {
    "model_type": "dots3_note_text",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 46,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "kv_lora_rank": 512,
    "q_lora_rank": 1024,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "vocab_size": 152064,
    "max_position_embeddings": 524288,
    "torch_dtype": "bfloat16",
    "layer_types": ["indexed_attention" if i < 2 or i % 4 == 1 else "sliding_attention" for i in range(46)],
}
LARGE_4 = {
    "model_type": "mistral_large4_text",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "moe_intermediate_size": 6144,
    "num_hidden_layers": 72,
    "num_attention_heads": 64,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "vocab_size": 204800,
    "max_position_embeddings": 1048576,
    "torch_dtype": "bfloat16",
}


def read(config, **changes):
    return model_from_config(config | changes, name="made of class defaults", source="test")


def test_dots3_alternates_chosen_tokens_and_windows():
    """Sizes are the class defaults (transformers 5.24.0): 279.552e9, 16.254e9 active, 16,692 B beside windows."""
    model = read(DOTS3)
    count = count_params(model)
    assert count.total == pytest.approx(279.552e9, rel=1e-5)
    assert count.active == pytest.approx(16.254e9, rel=1e-4)
    assert kv_bytes_per_token(model, windows=False) == 16_692
    windowed = [mixer for mixer in mixers(model) if mixer.window]
    assert len(windowed) == 33
    assert (windowed[0].window * 33) * (1024 + 64) * 2 == pytest.approx(36.8e6, rel=1e-2)
    assert {mixer.kv_rank for mixer in windowed} == {1024}
    with pytest.raises(InferometerError, match="layer_types is missing"):
        read({key: value for key, value in DOTS3.items() if key != "layer_types"})


def test_mistral_large_4_rotates_three_layers_of_four():
    """Sizes are the class's defaults (transformers 5.24.0): 1050.118e9, 53.099e9 active."""
    model = read(LARGE_4)
    count = count_params(model)
    assert count.total == pytest.approx(1050.118e9, rel=1e-6)
    assert count.active == pytest.approx(53.099e9, rel=1e-5)
    assert kv_bytes_per_token(model) == (54 * 576 + 18 * 512) * 2 + 72 * 132


SMALL_4 = LARGE_4 | {
    "hidden_size": 96,
    "intermediate_size": 160,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "index_head_dim": 16,
    "index_n_heads": 3,
    "vocab_size": 500,
}
SHARED_4 = {
    "n_shared_experts": 2,
    "kv_source_layers": [0, 0, 2, 2, 4],
    "no_rope_layers": [1, 0, 1, 0, 1],
    "indexer_types": ["full", "shared", "full", "full", "shared"],
}


@pytest.mark.parametrize(("changes", "counted"), [({}, 794_466), (SHARED_4, 831_782)], ids=["plain", "shared"])
def test_a_small_mistral_large_4_has_the_parameters_that_transformers_counts(changes, counted):
    """MistralLarge4TextModel of transformers 5.24.0 on the meta device, and a head; 8 / 2 factors of the rotation."""
    assert count_params(read(SMALL_4, **changes)).total == counted - 8 // 2


def test_mistral_large_4_may_share_latents():
    model = read(LARGE_4, kv_source_layers=[layer - layer % 2 for layer in range(72)])
    assert [mixer.kv_shared for mixer in mixers(model)] == [False, True] * 36
    assert kv_bytes_per_token(model) == 36 * 576 * 2 + 72 * 132
    with pytest.raises(InferometerError, match="a layer before it that has a latent of its own"):
        read(LARGE_4, kv_source_layers=[1] * 72)


@pytest.mark.parametrize("config", [DOTS3, LARGE_4], ids=["dots3", "mistral large 4"])
def test_what_was_read_from_code_alone_says_so(config):
    assert f"{FROM_CODE_ALONE}." in read(config).assumed


V4 = {
    "hc_mult": 4,
    "num_hash_layers": 3,
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "num_hidden_layers": 5,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1024,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "sliding_window": 128,
    "compress_ratios": [0, 0, 4, 128, 4, 0],
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2048,
    "topk_method": "noaux_tc",
    "vocab_size": 129280,
    "max_position_embeddings": 1048576,
    "torch_dtype": "bfloat16",
    "expert_dtype": "fp4",
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
}
"""Five layers in the shapes of DeepSeek-V4-Flash, with one residual stream and no hashed experts."""


def test_deepseek_v4_s_layers_by_their_ratios():
    model = read(V4)
    assert [mixer.ratio for mixer in mixers(model)] == [0, 0, 4, 128, 4]
    assert [mixer.overlap for mixer in mixers(model)] == [mixer.ratio == 4 for mixer in mixers(model)]
    assert {mixer.indexer.top_k for mixer in mixers(model) if mixer.indexer} == {512}
    assert kv_bytes_per_token(model, windows=False) == 2 * (584 + 132) / 4 + 584 / 128
    assert kv_bytes_per_token(read(V4, quantization_config=None), windows=False) == 2 * (584 + 132) / 4 + 584 / 128


def test_deepseek_v4_s_formats():
    formats = [ffn.formats for ffn in read(V4).ffns] + [mixer.formats for mixer in mixers(read(V4))]
    assert {formats[0][name] for name in ("gate", "up", "down")} == {"mxfp4"}
    assert formats[0]["shared_up"] == "fp8-block-ue8m0"
    assert set(formats[-1]) == {"q_a", "q_b", "kv", "out_a", "out_b", "index_q"}
    eight = read({key: value for key, value in V4.items() if key != "expert_dtype"})
    assert set(eight.ffns[0].formats.values()) == {"fp8-block-ue8m0"}


FLASH = {"num_hidden_layers": 43, "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0]}
PRO = {
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "o_groups": 16,
    "n_routed_experts": 384,
    "moe_intermediate_size": 3072,
    "compress_ratios": [128, 128, *([4, 128] * 29), 4, 0],
}


@pytest.mark.parametrize(
    ("shape", "markov", "published"),
    [(FLASH, 256, 166_878_536_440), (PRO, 512, 892_727_580_904)],
    ids=["flash", "pro"],
)
def test_deepseek_v4_has_the_bytes_of_its_checkpoints(shape, markov, published):
    """Index totals of the re-releases with three draft stages, which are spelled here.

    A stage is a layer with the window alone; besides, a projection of three layers' states in fp8 and two [V, markov]
    tables. Three hashed layers hold an int64 for each of six experts a token: in int32 the totals are 9 MB short.
    """
    config = V4 | shape
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    windows = [
        count_params(read(config, num_hidden_layers=n, compress_ratios=[0] * n, num_hash_layers=0)).checkpoint_bytes
        for n in (1, 2)
    ]
    drafts = 3 * (windows[1] - windows[0]) + 3 * hidden * hidden * (1 + 1 / 16384) + 2 * 2 * vocab * markov
    stored = count_params(read(config)).checkpoint_bytes + drafts
    assert stored == pytest.approx(published, rel=1e-5)


def test_experts_quantised_again_leave_the_rest_in_fp8():
    layers = {f"layers.{layer}.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16} for layer in range(5)}
    again = {
        "quant_algo": "MIXED_PRECISION",
        "kv_cache_quant_algo": None,
        "quantized_layers": layers,
        "exclude_modules": ["*.attn.*", "*.ffn.shared_experts.*", "head"],
    }
    sidecar = {"producer": {"name": "modelopt"}, "quantization": again}
    model = model_from_config(V4, name="again", source="test", sidecar=sidecar)
    assert {model.ffns[0].formats[name] for name in ("gate", "up", "down")} == {"nvfp4"}
    assert model.ffns[0].formats["shared_up"] == model.mixers[0].formats["q_b"] == "fp8-block-ue8m0"
    copied = V4["quantization_config"] | again
    assert read(V4, quantization_config=copied).ffns == model.ffns
    assert read(V4, quantization_config=copied).unknown_keys == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"compress_ratios": [0, 0, 4]}, "compress_ratios has 3 entries; allowed: num_hidden_layers = 5"),
        ({"compress_ratios": [0, 0, 8, 0, 0]}, "compress_ratios is 8; allowed: 0, 4, 128"),
        ({"o_groups": 7}, "o_groups is 7; allowed: a divisor of num_attention_heads = 64"),
        ({"qk_rope_head_dim": 1024}, "qk_rope_head_dim is 1024; allowed: at most head_dim = 512"),
        ({"expert_dtype": "fp2"}, "expert_dtype is 'fp2'; allowed: fp4 or fp8"),
    ],
)
def test_shapes_of_deepseek_v4_that_cannot_be_are_refused(changes, problem):
    with pytest.raises(InferometerError, match=problem):
        read(V4, **changes)
