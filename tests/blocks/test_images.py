"""Tokens of an image by each tower's rule: as transformers 5.24.0 counts them (images.json), and by hand.

Of DeepSeek-V4.1 as the functions of its release count them, less the two tokens around an image.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.blocks.images import ImageCount, count_image
from inferometer.errors import InferometerError
from inferometer.specs.tower import (
    BudgetImage,
    CanvasImage,
    CappedImage,
    EdgeImage,
    FixedImage,
    GridImage,
    PatchImage,
    PixelImage,
    RoundedImage,
    TiledImage,
)

GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
RULES = {
    "Qwen2.5-VL": PixelImage(patch=14, merge=2, min_pixels=56 * 56, max_pixels=28 * 28 * 16384),
    "Qwen3-VL": PixelImage(patch=16, merge=2, min_pixels=256 * 256, max_pixels=4096 * 4096),
    "Pixtral 12B": EdgeImage(patch=16, merge=1, longest=1024),
    "Mistral Small 3.1": EdgeImage(patch=14, merge=2, longest=1540),
    "Kimi K2.5": PatchImage(patch=14, merge=2, max_patches=16384, max_side=512),
    "DeepSeek-V4.1": CappedImage(patch=14, merge=3, min_pixels=295936, tokens=1024),
    "GLM-5.3-Flash": RoundedImage(patch=14, merge=2, min_tokens=16, tokens=8000),
    "Gemma 4": BudgetImage(patch=16, merge=3, tokens=280),
    "Llama 4": TiledImage(side=336, patch=14, merge=2, max_tiles=16),
    "LLaVA-NeXT": GridImage(side=336, patch=14, classes=1, grids=GRIDS, base=576),
}
COUNTED = json.loads((Path(__file__).parent / "images.json").read_text())
CASES = [(name, *row) for name, rows in COUNTED.items() for row in rows]
sides = st.integers(1, 3000)


@pytest.mark.parametrize(("name", "width", "height", "patches", "tokens"), CASES)
def test_an_image_has_the_tokens_that_transformers_counts(name, width, height, patches, tokens):
    found = count_image(RULES[name], width, height)
    assert (found.over("patches"), found.tokens) == (patches, tokens)


def test_gemma_3_and_llava_make_every_image_one_square():
    gemma = FixedImage(patches=896 // 14, tokens=256)
    llava = FixedImage(patches=336 // 14, classes=1, tokens=576)
    assert {count_image(gemma, width, 700).tokens for width in (1, 700, 9000)} == {256}
    assert count_image(gemma, 5, 5).over("patches") == 64 * 64
    assert count_image(llava, 5, 5).over("positions") == 24 * 24 + 1


def test_qwen_refuses_what_its_processor_refuses():
    with pytest.raises(InferometerError, match="an image of 201x1: one side is more than 200 times the other"):
        count_image(RULES["Qwen3-VL"], 201, 1)


@given(width=sides, height=sides)
def test_deepseek_keeps_an_image_within_its_tokens(width, height):
    found = count_image(RULES["DeepSeek-V4.1"], width, height)
    high, wide = -(-found.rows // 3), -(-found.cols // 3)
    assert (found.merged, found.tokens) == (high * wide, high * (wide + 1))
    assert 0 < found.tokens + 2 <= 1024


@given(width=sides, height=sides)
def test_glm_keeps_an_image_within_its_tokens(width, height):
    found = count_image(RULES["GLM-5.3-Flash"], width, height)
    assert 16 <= found.tokens <= 8000
    if min(width, height) >= 4 * 28 and width * height <= 28 * 28 * 6000:
        assert found.tokens == steps(height, 28) * steps(width, 28)


def steps(pixels, unit):
    """Count units up along a side, the last one perhaps cut."""
    return sum(1 for _ in range(0, pixels, unit))


@given(width=st.integers(1, 1540), height=st.integers(1, 1540))
def test_pixtral_by_counting_along_the_sides_of_an_image_that_is_not_scaled(width, height):
    """Rows of 28 pixels, each of so many tokens and one that ends it."""
    found = count_image(RULES["Mistral Small 3.1"], width, height)
    assert found.tokens == steps(height, 28) * (steps(width, 28) + 1)
    assert found.over("patches") == 4 * steps(height, 28) * steps(width, 28)


@given(width=sides, height=sides)
def test_llama_4_tiles_hold_the_image_and_one_more_holds_the_whole(width, height):
    found = count_image(RULES["Llama 4"], width, height)
    tiles = found.tiles - 1 if found.tiles > 1 else 1
    assert 1 <= tiles <= 16
    assert found.tokens == found.tiles * 144 + (tiles if tiles > 1 else 0)
    if max(width, height) <= 336:
        assert found.tiles == 1


@given(width=sides, height=sides)
def test_limits_of_tokens_are_kept(width, height):
    """Up to 16,384 whole patches, but for those begun and for padding to whole tokens: three a side at most."""
    assert count_image(RULES["Gemma 4"], width, width).tokens <= 280
    moonvit = count_image(RULES["Kimi K2.5"], width, height)
    assert (moonvit.rows - 3) * (moonvit.cols - 3) <= 16384
    if 1 / 200 <= width / height <= 200:
        tokens = count_image(RULES["Qwen2.5-VL"], width, height).tokens
        assert 4 <= tokens <= 16384


@given(rows=st.integers(1, 20), cols=st.integers(1, 20), window=st.integers(1, 9), tiles=st.integers(1, 3))
def test_pairs_in_windows_by_asking_every_pair(rows, cols, window, tiles):
    found = ImageCount(rows=rows, cols=cols, tokens=1, merged=1, tiles=tiles)
    places = [(r // window, c // window) for r in range(rows) for c in range(cols)]
    assert found.pairs(window) == tiles * sum(a == b for a in places for b in places)
    assert found.pairs() == tiles * (rows * cols) ** 2


def test_a_class_token_attends_and_is_attended_to():
    found = ImageCount(rows=2, cols=3, tokens=6, merged=6, tiles=5, classes=1)
    assert found.over("positions") == 5 * 7
    assert found.pairs() == 5 * 7 * 7


@pytest.mark.parametrize(
    ("width", "height", "tiles"),
    [(560, 560, 1), (100, 100, 1), (561, 560, 2), (560, 1120, 2), (1120, 1120, 4), (2240, 560, 4), (5000, 5000, 4)],
)
def test_llama_3_2_vision_runs_over_four_tiles_and_sees_those_of_the_canvas(width, height, tiles):
    found = count_image(CanvasImage(side=560, patch=14, max_tiles=4), width, height)
    assert found.tokens == found.merged == tiles * (40 * 40 + 1)
    assert found.over("positions") == 4 * 1601
    assert found.pairs() == (4 * 1601) ** 2
