"""What a tower takes of the pass that an engine sizes itself by."""

import msgspec
import pytest
from memory.questions import asked, planned

from inferometer.api.load import load_model
from inferometer.blocks.images import count_image, largest_image
from inferometer.catalog.loader import preset_ids
from inferometer.memory.asked import tower_factor
from inferometer.memory.encoder import encoder_cache_bytes, encoder_pass_bytes

VL = "qwen3-vl-8b-instruct"
H = 4096
ITEM = 16384  # tokens of the largest image: vllm-project/vllm issue 34209


def test_vllm_holds_the_outputs_of_its_budget():
    """2 bytes x H x max(tokens of a pass, an item): pull 11895."""
    assert encoder_cache_bytes(asked(VL, "vllm@0.24")) == 2 * H * max(8192, ITEM)
    more = asked(VL, "vllm@0.24", max_num_batched_tokens=20_000)
    assert encoder_cache_bytes(more) == 2 * H * 20_000
    assert encoder_cache_bytes(asked("llama-3.1-8b", "vllm@0.24")) == 0
    assert encoder_cache_bytes(asked(VL, "sglang")) == 0


def test_they_are_beside_the_largest_pass():
    """The same model without its tower: activations differ by what is held."""
    spec = load_model(VL)
    bare = msgspec.structs.replace(spec, towers=())
    both, alone = (planned(model, "vllm@0.24").tightest.parts_bytes["activations"] for model in (spec, bare))
    assert both - alone == pytest.approx(2 * H * ITEM, rel=1e-9)


def test_only_the_first_stage_holds_them():
    spec = load_model(VL)
    bare = msgspec.structs.replace(spec, towers=())
    (first, last), (plain, same) = (
        [stage.parts_bytes["activations"] for stage in planned(model, "vllm@0.24", sizes={"pp": 2}).stages]
        for model in (spec, bare)
    )
    assert last == same
    assert first == pytest.approx(max(plain + 2 * H * ITEM, encoder_pass_bytes(asked(spec, "vllm@0.24"))), rel=1e-9)


def test_a_pass_of_the_tower_is_of_the_budget_in_whole_items():
    """Ratio 1.5 x 2 bytes x positions x (2 x width + outputs of the widest part)."""
    (tower,) = load_model(VL).towers
    image = largest_image(tower.image)
    assert image.tokens == ITEM
    widest = max(
        image.over(part.over) * (2 * part.width + sum(one.rows for one in part.linears.values()))
        for part in tower.parts
        if part.over and part.running
    )
    assert encoder_pass_bytes(asked(VL, "vllm@0.24")) == 1.5 * 2 * widest
    assert encoder_pass_bytes(asked(VL, "vllm@0.24", max_num_batched_tokens=3 * ITEM)) == 3 * 1.5 * 2 * widest


def test_sglang_takes_less_of_memory_beside_a_tower():
    """0.95 x (1 - 0.1 (c - 1)) within 0.8 .. 1.05, c = L W^2 / (24 x 1024^2): adjust_mem_fraction_for_vlm."""
    rules = asked(VL, "sglang").rules
    (tower,) = load_model(VL).towers
    (layers,) = [part for part in tower.parts if part.heads]
    c = layers.layers * layers.width**2 / (24 * 1024**2)
    want = 0.95 * min(max(1 - 0.1 * (c - 1), 0.8), 1.05)
    assert tower_factor(rules.tower_share, load_model(VL)) == pytest.approx(want, rel=1e-12)
    assert tower_factor(rules.tower_share, load_model("llama-3.1-8b")) == 1
    both, told = asked(VL, "sglang"), asked(VL, "sglang", share=0.8)
    assert both.used_share == pytest.approx(want * asked("llama-3.1-8b", "sglang").used_share, rel=1e-12)
    assert told.used_share == 0.8


def test_no_image_is_larger_than_the_largest():
    """Brute force over sizes and shapes, for every rule of a preset."""
    rules = {tower.image for name in preset_ids() for tower in load_model(name).towers if tower.image is not None}
    sides = (224, 448, 896, 1344, 1792, 2688, 3584, 5376)
    for rule in rules:
        most = largest_image(rule).tokens
        seen = max(count_image(rule, width, height).tokens for width in sides for height in sides)
        assert seen <= most * 1.04, rule  # long images are padded to whole tokens
        assert most > 0
