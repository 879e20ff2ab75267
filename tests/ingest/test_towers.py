"""Towers with their projectors, exactly: counts of transformers 5.24.0 on its meta device, recorded in towers.jsonl."""

import json
from pathlib import Path

import pytest

from inferometer.api.load import load_model
from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.specs.tower import EdgeImage, FixedImage, GridImage, TiledImage

ROWS = [json.loads(line) for line in (Path(__file__).parent / "towers.jsonl").read_text().splitlines()]
BY_NAME = {row["model"]: row["config"] for row in ROWS}
BY_TOWER = {row["model"]: row["tower"] for row in ROWS}


def read(config, **vision):
    config = config | {"vision_config": config["vision_config"] | vision} if vision else config
    return model_from_config(config, name="m", source="test")


def tower(name, outer=None, **vision):
    return read(BY_NAME[name] | (outer or {}), **vision).towers[0]


def part(made, name):
    return next(one for one in made.parts if one.name == name)


@pytest.mark.parametrize("row", ROWS, ids=[row["model"] for row in ROWS])
def test_a_tower_has_the_count_that_transformers_makes(row):
    model = read(row["config"])
    assert count_params(model).by_kind["tower"] == row["tower"]
    assert model.unknown_keys == ()


def test_llama_4_scout_with_its_own_tower_has_the_hub_s_total():
    """108,641,793,536 is the hub's safetensors total; the published count by the class's tower is in families.jsonl."""
    by_class = 455_178_240
    text = 108_225_039_360 - by_class
    assert text + count_params(read(BY_NAME["Llama 4 Scout's tower"])).by_kind["tower"] == 108_641_793_536


def test_mistral_small_3_1_is_devstral_small_s_text_and_its_tower():
    """23,572,403,200 are published of Devstral-Small-2507, whose text it shares; 24,011,361,280 is the hub's total."""
    config = BY_NAME["Mistral Small 3.1"]
    wide = config | {"text_config": config["text_config"] | {"hidden_size": 5120}}
    assert 23_572_403_200 + count_params(read(wide)).by_kind["tower"] == 24_011_361_280


def test_llama_3_2_vision_has_the_hub_s_total():
    """10,670,220,835 is the hub's safetensors total of the 11B; its text is counted by the class."""
    assert 9_775_192_080 + (4096 - 256) * (7680 + 1) + BY_TOWER["Llama 3.2 Vision"] == 10_670_220_835


def test_deepseek_v4_1_s_tower_is_spelled_and_has_the_published_counts():
    """411.8e6 without and 485.3e6 with its projector (huggingface/pytorch-image-models pull 2775)."""
    h, f, out = 1024, 2816, 5120
    layer = 3 * h * h + 3 * h + h * h + h + 3 * h * f + 2 * h
    encoder = 3 * 14 * 14 * h + h + 32 * layer + h
    aligner = 9 * h * out + out + out * out + out
    assert (encoder, encoder + aligner) == (pytest.approx(411.8e6, abs=5e4), pytest.approx(485.3e6, abs=5e4))
    assert count_params(load_model("deepseek-v4.1-flash")).by_kind["tower"] == encoder + aligner


def test_glm_5_3_flash_s_tower_is_spelled_and_has_the_published_bytes():
    """1,075 MiB in bf16 (FlashML-org/FreeToken pull 479); with text and prediction layer 321.3e9 on the hub."""
    h, f, out, wide = 1024, 4096, 4096, 10240
    layer = 3 * h * h + 3 * h + h * h + h + 3 * h * f + 2 * f + h + 2 * h + 2 * 64
    tower = 3 * 2 * 14 * 14 * h + h + 24 * layer + h
    tower += 4 * h * out + out + out * out + 2 * out + 3 * out * wide
    assert 2 * tower / 2**20 == pytest.approx(1075, abs=0.5)
    count = count_params(load_model("glm-5.3-flash"))
    assert count.by_kind["tower"] == tower
    assert count.total + count.mtp == pytest.approx(321.3e9, abs=0.05e9)


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("deepseek-v4.1-flash", {"max_wh_ratio": 8}, "max_wh_ratio is 8; allowed: null"),
        ("deepseek-v4.1-flash", {"max_image_tokens": 3}, "max_image_tokens is 3"),
        (
            "glm-5.3-flash",
            {"out_hidden_size": 1536},
            "out_hidden_size is 1536; allowed: the model's hidden_size = 4096",
        ),
        ("glm-5.3-flash", {"num_heads": 7}, "num_heads is 7; allowed: a divisor"),
    ],
)
def test_rotary_towers_that_cannot_be_are_refused(name, changes, problem):
    with pytest.raises(InferometerError, match=problem):
        read(preset_config(name).config, **changes)


@pytest.mark.parametrize("name", ["deepseek-v4.1-flash", "glm-5.3-flash"])
def test_a_preset_without_its_tower_says_so(name):
    config = {key: value for key, value in preset_config(name).config.items() if key != "vision_config"}
    model = read(config)
    assert model.towers == ()
    assert "vision_config is absent: no parameters of a tower are counted." in model.assumed


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"vision_output_dim": 7}, "vision_output_dim is 7; allowed: 6 x hidden_size"),
        ({"supported_aspect_ratios": []}, "supported_aspect_ratios is .*; allowed: a list of aspect ratios"),
        ({"intermediate_layers_indices": [32]}, r"intermediate_layers_indices\[0\] is 32"),
    ],
    ids=str,
)
def test_a_tower_of_llama_3_2_vision_that_cannot_be_is_refused(changes, problem):
    with pytest.raises(InferometerError, match=problem):
        tower("Llama 3.2 Vision", **changes)


def test_a_tower_by_its_class_is_said():
    model = read(BY_NAME["Llama 4, tower by its class"])
    assert any("Absent from the vision_config" in line and "vision_output_dim = 7680" in line for line in model.assumed)


def test_the_tower_s_own_model_type_decides_under_a_wrapper_of_several():
    names = ("LLaVA 1.5, CLIP-L/14 of 336", "LLaVA, SigLIP without", "Pixtral 12B, through LLaVA")
    rules = [tower(name).image for name in names]
    assert [type(rule) for rule in rules] == [FixedImage, FixedImage, EdgeImage]
    assert [rules[0].classes, rules[1].classes] == [1, 0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Mistral Small 3.1", "clip_vision_model"),
        ("LLaVA 1.5, CLIP-L/14 of 336", "qwen2_5_vl"),
        ("Gemma 3's tower", "frobnicate"),
    ],
)
def test_a_tower_that_no_projector_here_stands_behind_is_listed(name, kind):
    model = read(BY_NAME[name], model_type=kind)
    assert model.towers == ()
    assert model.unknown_keys == ("vision_config",)
    assert "The parameters of vision_config are not counted." in model.assumed


@pytest.mark.parametrize(("layer", "runs"), [(-1, 24), (-2, 23), ([-2, -5], 23), (3, 3), (-24, 1), (99, 24)])
def test_layers_behind_the_one_whose_features_are_taken_are_held_and_do_not_run(layer, runs):
    """hidden_states of transformers: 0 is the input, i the output of layer i, -1 that of the last."""
    layers = part(tower("LLaVA 1.5, CLIP-L/14 of 336", {"vision_feature_layer": layer}), "layer")
    assert (layers.layers, layers.running) == (24, runs)


def test_llava_takes_the_class_token_only_where_it_is_told_to():
    drops, keeps = (
        tower("LLaVA 1.5, CLIP-L/14 of 336", {"vision_feature_select_strategy": how}).image.tokens
        for how in ("default", "full")
    )
    assert (drops, keeps) == (24 * 24, 24 * 24 + 1)


def test_qwen_2_5_vl_has_four_layers_without_windows():
    made = tower("Qwen2.5-VL 7B's tower")
    full, windowed = part(made, "layer"), part(made, "window-layer")
    assert (full.layers, full.window) == (4, 0)
    assert (windowed.layers, windowed.window) == (28, 112 // 14)


def test_limits_of_images_come_from_the_config_where_it_has_them():
    assert tower("Mistral Small 3.1").image == EdgeImage(patch=14, merge=2, longest=1540)
    tiled = tower("Llama 4 Scout's tower").image
    assert isinstance(tiled, TiledImage)
    assert (tiled.side, tiled.max_tiles) == (336, 16)
    grid = tower("LLaVA-NeXT, CLIP-L/14 of 336").image
    assert isinstance(grid, GridImage)
    assert (grid.side, grid.patch, grid.base) == (336, 14, 576)
    assert read(BY_NAME["a small Voxtral"]).towers[0].image is None


@pytest.mark.parametrize(
    ("name", "outer", "vision", "problem"),
    [
        ("LLaVA 1.5, CLIP-L/14 of 336", {}, {"num_attention_heads": 7}, "num_attention_heads is 7; allowed: a divisor"),
        ("LLaVA 1.5, CLIP-L/14 of 336", {}, {"image_size": 7}, "image_size is 7; allowed: from patch_size = 14"),
        ("LLaVA 1.5, CLIP-L/14 of 336", {}, {"patch_size": 0}, "patch_size is 0"),
        ("LLaVA 1.5, CLIP-L/14 of 336", {"vision_feature_layer": "x"}, {}, "vision_feature_layer is 'x'"),
        ("Llama 4 Scout's tower", {}, {"pixel_shuffle_ratio": 0.25}, "pixel_shuffle_ratio is 0.25; allowed: 0.5"),
        ("Llama 4 Scout's tower", {}, {"multi_modal_projector_bias": True}, "multi_modal_projector_bias is true"),
        ("Mistral Small 3.1", {}, {"head_dim": 32}, "head_dim is 32; allowed: hidden_size / num_attention_heads"),
        ("LLaVA-NeXT, CLIP-L/14 of 336", {"image_grid_pinpoints": [[336]]}, {}, "allowed: a list of"),
        ("LLaVA-NeXT, CLIP-L/14 of 336", {"image_grid_pinpoints": [[335, 336]]}, {}, "multiples of the tile's 336"),
        ("LLaVA-NeXT, CLIP-L/14 of 336", {"image_grid_pinpoints": []}, {}, "allowed: a list of"),
        ("Qwen2-VL 7B's tower", {}, {"hidden_size": 7}, "hidden_size is 7; allowed: the language model's"),
    ],
)
def test_sizes_that_make_no_tower_are_refused(name, outer, vision, problem):
    with pytest.raises(InferometerError, match=problem):
        tower(name, outer, **vision)


def test_another_image_model_than_the_one_known_by_name_is_refused():
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": "phi3_v", "vocab_size": 100, "max_position_embeddings": 64, **sizes}
    image = {"name": "clip_vision_model", "model_name": "somebody/else", "image_dim_out": 1024}
    with pytest.raises(InferometerError, match="img_processor: model_name is 'somebody/else'"):
        model_from_config(config | {"img_processor": image}, name="m", source="test")
