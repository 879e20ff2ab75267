"""Families of late 2026: counts of their classes, what their lists mean, drafters, and what is refused.

Counts: of transformers 5.24.0's classes on the meta device, plus the routers' correction biases, which are buffers
there; of DeepSeek-V4.1, which has no class there, of SGLang 0.5.23's tensors, spelled here.
"""

import pytest
from ingest.families import mixers

from inferometer.api.load import load_model
from inferometer.blocks.params import count_params, drafter_params
from inferometer.catalog.presets import preset_config
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import kv_bytes_per_token, state_bytes_per_sequence
from inferometer.specs.feedforward import Moe
from inferometer.specs.lookup import Lookup
from inferometer.specs.mixers import Attention, Compressed, Mla
from inferometer.specs.recurrent import LinearAttention
from inferometer.specs.residual import AttentionResiduals, GatedStreams, HyperConnections


def changed(name, *, drop=(), **changes):
    """Return the model of a preset with keys changed or dropped, in its text config where it has one."""
    config = preset_config(name).config
    inner = config.get("text_config", config)
    text = {key: value for key, value in (inner | changes).items() if key not in drop}
    whole = config | {"text_config": text} if "text_config" in config else text
    return model_from_config(whole, name=name, source="test")


@pytest.mark.parametrize(
    ("name", "of_class", "buffers", "more"),
    [
        ("glm-5.3-flash", 313_326_799_870, 42 * 288, 563_627_008),
        ("qwen3.8-flash-next", 176_943_899_520, 0, 0),
        ("hy4-preview", 769_907_389_085, 77 * 256, 0),
        ("inkling-2-small", 593_718_478_848, 48 * 384, 4608),
        ("inkling-2-mini", 26_068_156_416, 24 * 128, 2304),
        ("mistral-small-4", 118_972_826_624, 0, 0),
    ],
)
def test_counts_of_their_classes(name, of_class, buffers, more):
    """`more`: what the class lacks: the query of the first layer's attention residual; of GLM the release's tower."""
    model = load_model(name)
    assert count_params(model).total == of_class + buffers + more
    assert any("class" in said or "rebuilt" in said for said in model.assumed)


V41 = {"H": 5120, "N": 64, "D": 512, "q": 1280, "groups": 8, "o": 1024, "experts": 384, "F": 2304, "vocab": 129280}


def v41_layer(experts):
    """Return the parameters of a layer with a window alone: attention, experts, norms, and streams of four."""
    h, d = V41["H"], V41["D"]
    attention = V41["q"] * h + V41["N"] * d * V41["q"] + d * h
    attention += V41["o"] * V41["N"] * d + h * V41["groups"] * V41["o"]
    vectors = V41["q"] + d + V41["N"] + 2 * h
    moe = (experts + 1) * 3 * h * V41["F"] + experts * h + experts
    streams = 2 * (24 * 4 * h + 24 + 3)
    return attention + vectors + moe + streams


def test_deepseek_v4_1_has_the_tensors_of_its_code():
    """Four layers compress, two at a time or (the last) each token by itself; eight choose, four with keys."""
    h, d = V41["H"], V41["D"]
    compressors = 3 * 2 * d * h + d * h + 4 * d
    choosers = 8 * (32 * 128 * V41["q"] + 32 * h) + 4 * (128 * d + 128)
    engram = (384_006_168 + 384_016_682) * 256 + 2 * 5 * h * 24 * 256
    ends = 2 * V41["vocab"] * h + h
    model = load_model("deepseek-v4.1-flash")
    text = count_params(model).total - count_params(model).by_kind["tower"]
    assert text == 40 * v41_layer(384) + compressors + choosers + engram + ends
    assert text - engram == pytest.approx(551.566e9, abs=1e6)


def test_deepseek_v4_1_shares_entries_and_choices():
    held = mixers(load_model("deepseek-v4.1-flash"))
    assert [mixer.ratio for mixer in held] == [0, 0, *[2] * 18, *[1] * 20]
    assert [i for i, mixer in enumerate(held) if mixer.compresses] == [2, 8, 14, 20]
    chooses = [mixer.indexer is not None and not mixer.indexer.shared for mixer in held]
    assert [i for i, own in enumerate(chooses) if own] == [2, 8, 14, 20, 24, 28, 32, 36]
    assert {mixer.indexer.among for i, mixer in enumerate(held) if i > 20 and chooses[i]} == {2048 * 8}
    assert held[20].indexer.among is None


def test_deepseek_v4_1_keeps_two_and_a_half_entries_a_token():
    model = load_model("deepseek-v4.1-flash")
    assert kv_bytes_per_token(model, windows=False) == 2.5 * (512 * 9 / 16 + 64 + 4) == 890
    eight = load_model("deepseek-v4.1-flash", kv_cache_dtype="fp8")
    assert kv_bytes_per_token(eight, windows=False) == 2.5 * (584 + 68)


def test_deepseek_v4_1_prefills_its_decoder_with_the_last_window_alone():
    model = load_model("deepseek-v4.1-flash")
    tails = [layer.prompt_tail for layer in model.layers if layer.mixer is not None]
    assert tails == [None] * 20 + [128] * 20
    assert any("last window (128 tokens) alone" in said for said in model.assumed)


def test_the_table_before_a_layer_takes_what_comes_to_it():
    tables = changed("deepseek-v4.1-flash", engram_layer_ids=[20, 30]).layers
    assert [layer.prompt_tail for layer in tables if layer.mixer is None] == [None, 128]


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "glm-5.3-flash", "mistral-large-4"])
def test_all_of_a_prompt_goes_through_every_layer_of_others(name):
    assert {layer.prompt_tail for layer in load_model(name).layers} == {None}


@pytest.mark.parametrize(
    ("name", "experts", "published"),
    [("deepseek-v4-flash-0731", None, 19.9e9), ("deepseek-v4.1-flash", 128, 14.2e9)],
)
def test_draft_stages_have_a_window_alone_and_experts_of_their_own(name, experts, published):
    model = load_model(name)
    (drafter,) = model.drafters
    assert (drafter.kind, drafter.tokens, len(drafter.layers)) == ("dspark", 5, 3)
    (mixer,), (ffn,) = drafter.mixers, drafter.ffns
    assert isinstance(mixer, Compressed)
    assert (mixer.ratio, mixer.indexer, mixer.compresses) == (0, None, False)
    assert isinstance(ffn, Moe)
    assert ffn.hash_vocab == 0
    assert ffn.experts == (experts or 256)
    assert count_params(model).mtp == drafter_params(model, drafter) == pytest.approx(published, rel=5e-3)


STAGES = {"dspark_block_size": 5, "dspark_markov_rank": 256, "dspark_target_layer_ids": [1, 2, 3]}


def test_any_family_may_draft_in_stages():
    """Configs of Mistral Large 4 and Inkling 2 with stages were not at hand: they are read as DeepSeek-V4's are."""
    large, small = changed("mistral-large-4", **STAGES), changed("inkling-2-small", **STAGES)
    assert large.unknown_keys == small.unknown_keys == ()
    assert [mixer.window for mixer in small.drafters[0].mixers] == [1024]
    assert [len(model.drafters[0].layers) for model in (large, small)] == [3, 3]
    assert any("no layer has a window" in said for said in large.assumed)


def test_the_drafter_of_deepseek_v4_1_tensor_by_tensor():
    h, rank = V41["H"], 256
    ends = 3 * h * h + 2 * h + 2 * V41["vocab"] * rank + h + rank
    assert count_params(load_model("deepseek-v4.1-flash")).mtp == 3 * v41_layer(128) + ends


def test_deepseek_v4_1_has_the_bytes_of_its_checkpoint():
    """510,286,023,000 by its index: with draft stages, spelled here, and its image tower in bf16."""
    model, h = load_model("deepseek-v4.1-flash"), V41["H"]
    expert = 3 * h * V41["F"]
    fp8, fp4 = 1 + 1 / 1024, 0.53125
    attention = V41["q"] * h + V41["N"] * V41["D"] * V41["q"] + V41["D"] * h
    attention += V41["o"] * V41["N"] * V41["D"] + h * V41["groups"] * V41["o"]
    stage = (attention + expert) * fp8 + 128 * expert * fp4 + 2 * 128 * h + 4 * 2 * 24 * 4 * h
    drafts = 3 * stage + 3 * h * h * fp8 + 2 * 2 * V41["vocab"] * 256
    stored = count_params(model).checkpoint_bytes + drafts
    assert stored == pytest.approx(510_286_023_000, rel=1e-6)


def test_a_prediction_layer_of_deepseek_v4_has_a_window_alone_and_a_head_of_its_streams():
    (drafter,) = load_model("deepseek-v4-flash").drafters
    assert drafter.kind == "mtp"
    assert [mixer.ratio for mixer in drafter.mixers] == [0]
    assert drafter.shapes["hc_head"] == (4, 4 * 4096, 1)
    assert count_params(load_model("deepseek-v4-flash")).mtp == pytest.approx(291e9 - 284.33e9, rel=0.02)


def test_glm_5_3_flash_mixes_kda_with_pools_of_keys():
    model = load_model("glm-5.3-flash")
    held = mixers(model)
    assert [i for i, mixer in enumerate(held) if isinstance(mixer, Mla)] == list(range(3, 45, 4))
    (latent,) = [mixer for mixer in model.mixers if isinstance(mixer, Mla)]
    assert (latent.rope_dim, latent.indexer.pool, latent.indexer.pool_gate) == (0, 4, True)
    assert model.residual == HyperConnections(streams=4, head=False)
    assert kv_bytes_per_token(model) == 11 * (512 * 2 + 132 / 4)
    assert state_bytes_per_sequence(model) == 34 * (64 * 128 * 128 * 4 + 3 * 8192 * 3 * 2)
    (drafter,) = model.drafters
    assert [type(mixer) for mixer in drafter.mixers] == [Mla]
    assert count_params(model).mtp == pytest.approx(7.4e9, rel=0.01)


def test_qwen3_8_flash_next_has_gated_streams_and_a_table():
    model = load_model("qwen3.8-flash-next")
    assert model.residual == GatedStreams(streams=4, rank=320)
    assert [isinstance(mixer, LinearAttention) for mixer in mixers(model)] == ([True] * 3 + [False]) * 12
    (table,) = [ffn for ffn in model.ffns if isinstance(ffn, Lookup)]
    assert (table.rows, table.width, table.reads, table.place) == (320_001_536, 160, 16, "host")
    own = next(mixer for mixer in model.mixers if isinstance(mixer, Attention)).indexer
    assert (own.pool, own.top_k, own.weighted) == (4, 2048, False)
    assert kv_bytes_per_token(model) == 12 * (2 * 2 * 256 * 2 + 128 * 2 / 4)


def test_hy4_gates_latents_and_shares_choices():
    model = load_model("hy4-preview")
    assert model.residual == HyperConnections(streams=4, mixes=False)
    own = [i for i, mixer in enumerate(mixers(model)) if not mixer.indexer.shared]
    assert own == [0, *range(1, 78, 4)]
    assert {(mixer.gate, mixer.sinks) for mixer in model.mixers} == {("wide", True)}


def test_inkling_2_mini_visits_twelve_layers_three_times():
    model = load_model("inkling-2-mini")
    assert [layer.visits for layer in model.layers] == [1] * 6 + [3] * 12 + [1] * 6
    assert model.units == (*[1] * 6, 12, *[1] * 6)
    assert sum(layer.visits for layer in model.layers) == 48
    assert [mixer.message_rank > 0 for mixer in mixers(model)] == [layer.visits > 1 for layer in model.layers]
    assert model.residual == AttentionResiduals(every=6, norm=False, format="fp32")
    taps = 3 * (2 * 8 * 128 + 2 * 2304) * 2
    assert state_bytes_per_sequence(model) == 48 * taps
    assert kv_bytes_per_token(model, windows=False) == 8 * 8 * 2 * 128 * 2


def test_a_loop_may_be_an_object_of_its_own():
    spelled = {"core_start": 6, "core_end": 18, "num_passes": 3, "gate_rank": 64}
    flat = tuple(f"loop_{name}" for name in ("layer_index_start", "layer_index_end", "num_passes", "gate_rank"))
    assert changed("inkling-2-mini", drop=flat, loop_config=spelled).layers == load_model("inkling-2-mini").layers


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("inkling-2-mini", {"loop_layer_index_end": 5}, "loop_layer_index_end is 5; allowed: a layer after"),
        ("deepseek-v4.1-flash", {"kv_source_layer_ids": [8]}, "kv_source_layer_ids leaves out the first layer"),
        ("deepseek-v4.1-flash", {"index_source_layer_ids": [8]}, "index_source_layer_ids leaves out the first layer"),
        ("deepseek-v4.1-flash", {"kv_source_layer_ids": None}, "kv_source_layer_ids is missing or null"),
        ("deepseek-v4.1-flash", {"dspark_target_layer_ids": []}, "dspark_target_layer_ids is missing, null or empty"),
        ("deepseek-v4.1-flash", {"dspark_num_experts_per_tok": 200}, "at most dspark_n_routed_experts = 128"),
        ("glm-5.3-flash", {"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail is false"),
        ("glm-5.3-flash", {"mlp_layer_types": ["dense"]}, "mlp_layer_types has 1 entries"),
        ("glm-5.3-flash", {"mlp_layer_types": ["odd"] * 45}, "mlp_layer_types is 'odd'; allowed: dense or sparse"),
        ("qwen3.8-flash-next", {"indexer_kv_heads": 2}, "indexer_kv_heads is 2; allowed: 1"),
    ],
)
def test_what_is_not_understood_is_refused(name, changes, problem):
    with pytest.raises(InferometerError, match=problem):
        changed(name, **changes)
