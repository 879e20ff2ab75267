"""From an image's size in pixels to what a tower runs over and what the prompt gains, exactly, by the tower's rule.

Rules as in the image processors of huggingface/transformers 5.24 (named at each). Tokens are those of the image and
those that end its rows or part its tiles; the one or two markers around an image are counted with the text.

Letters: P pixels a side of a patch, M patches a side that are merged into one token.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from inferometer.errors import InferometerError
from inferometer.specs.deployment import Workload
from inferometer.specs.model import ModelSpec
from inferometer.specs.tower import (
    BudgetImage,
    CanvasImage,
    CappedImage,
    EdgeImage,
    FixedImage,
    GridImage,
    ImageRule,
    PatchImage,
    PixelImage,
    RoundedImage,
    TiledImage,
)

MAX_SHAPE = 200
"""Longest side over the shortest that Qwen-VL's image processor takes."""


class ImageCount(NamedTuple):
    """What one image is to a tower: tiles that attend to themselves alone, each a grid of patches."""

    rows: int
    cols: int
    tokens: int
    """That the prompt gains, or that cross-attention sees."""
    merged: int
    """Merged patches of all tiles, that go through the projector."""
    tiles: int = 1
    classes: int = 0
    """Class tokens a tile."""

    def over(self, what: Literal["patches", "positions", "merged"]) -> int:
        """Return how many patches, positions (with class tokens) or merged patches all tiles have."""
        if what == "merged":
            return self.merged
        return self.tiles * (self.rows * self.cols + (self.classes if what == "positions" else 0))

    def pairs(self, window: int = 0) -> int:
        """Return pairs of positions that attend to each other; in windows of `window` x `window` patches, cut at edges.

        >>> ImageCount(rows=4, cols=6, tokens=6, merged=6).pairs(), 24 * 24
        (576, 576)
        >>> ImageCount(rows=4, cols=6, tokens=6, merged=6).pairs(4), 16 * 16 + 8 * 8
        (320, 320)
        """
        if window:
            return self.tiles * _squares(self.rows, window) * _squares(self.cols, window)
        return self.tiles * (self.rows * self.cols + self.classes) ** 2


def _squares(side: int, window: int) -> int:
    whole, rest = divmod(side, window)
    return whole * window * window + rest * rest


def images_of(model: ModelSpec, workload: Workload) -> ImageCount | None:
    """Return what an image of the workload is to the model's tower; None for a workload without images.

    Raises InferometerError for a model without a tower whose images are understood, and for a shape it refuses.
    """
    if not workload.images:
        return None
    rules = [tower.image for tower in model.towers if tower.image is not None]
    if not rules:
        raise InferometerError(f"--images: {model.name} has no vision tower whose images are understood")
    return count_image(rules[0], workload.image_width, workload.image_height)


def count_image(rule: ImageRule, width: int, height: int) -> ImageCount:
    """Return what an image of `width` x `height` pixels is to a tower.

    Raises InferometerError for a shape that the tower's image processor refuses.

    >>> count_image(EdgeImage(patch=14, merge=2, longest=1540), 1000, 600).tokens, 22 * (36 + 1)
    (814, 814)
    """
    return _RULES[type(rule)](rule, width, height)


@cache
def largest_image(rule: ImageRule) -> ImageCount:
    """Return the image that becomes the most tokens.

    >>> largest_image(PixelImage(patch=14, merge=2, min_pixels=56 * 56, max_pixels=12845056)).tokens, 12845056 // 28**2
    (16384, 16384)
    """
    return max((count_image(rule, width, height) for width, height in _large(rule)), key=lambda found: found.tokens)


def _large(rule: ImageRule) -> list[tuple[int, int]]:
    """Return widths and heights among which the largest image is."""
    if isinstance(rule, TiledImage | CanvasImage):
        most = rule.max_tiles
        return [(rule.side * (most // rows), rule.side * rows) for rows in range(1, most + 1)]
    if isinstance(rule, GridImage):
        return [(wide, high) for high, wide in rule.grids]
    if isinstance(rule, BudgetImage | CappedImage | RoundedImage):
        unit = rule.patch * rule.merge
        return [(unit, unit), (unit, unit * rule.tokens)]
    side = 1
    if isinstance(rule, PixelImage):
        side = math.isqrt(rule.max_pixels)
    elif isinstance(rule, EdgeImage):
        side = rule.longest
    elif isinstance(rule, PatchImage):
        side = rule.patch * min(math.isqrt(rule.max_patches), rule.max_side)
    return [(side, side)]


def _fixed(rule: FixedImage, width: int, height: int) -> ImageCount:
    del width, height
    side = rule.patches
    return ImageCount(rows=side, cols=side, tokens=rule.tokens, merged=rule.tokens, classes=rule.classes)


def _merged(rows: int, cols: int, merge: int) -> ImageCount:
    """Return an image of rows x cols tokens."""
    return ImageCount(rows=rows * merge, cols=cols * merge, tokens=rows * cols, merged=rows * cols)


def _pixels(rule: PixelImage, width: int, height: int) -> ImageCount:
    """Round both sides to tokens; where that leaves the range of pixels, scale both sides by the root (qwen2_vl)."""
    if max(width, height) > MAX_SHAPE * min(width, height):
        raise InferometerError(f"an image of {width}x{height}: one side is more than {MAX_SHAPE} times the other")
    unit = rule.patch * rule.merge
    rows, cols = round(height / unit), round(width / unit)
    pixels = rows * cols * unit * unit
    if pixels > rule.max_pixels:
        shrink = math.sqrt(width * height / rule.max_pixels)
        rows, cols = (max(1, math.floor(side / shrink / unit)) for side in (height, width))
    elif pixels < rule.min_pixels:
        grow = math.sqrt(rule.min_pixels / (width * height))
        rows, cols = (math.ceil(side * grow / unit) for side in (height, width))
    return _merged(rows, cols, rule.merge)


def _edge(rule: EdgeImage, width: int, height: int) -> ImageCount:
    """Scale down to the longest edge, round up to tokens; each row of tokens ends in one more (pixtral)."""
    ratio = max(width, height) / rule.longest
    if ratio > 1:
        width, height = math.floor(width / ratio), math.floor(height / ratio)
    unit = rule.patch * rule.merge
    found = _merged(max(1, -(-height // unit)), max(1, -(-width // unit)), rule.merge)
    return found._replace(tokens=found.merged + found.rows // rule.merge)


def _patches(rule: PatchImage, width: int, height: int) -> ImageCount:
    """Scale down to the most patches in all and a side, pad to tokens (kimi_k25)."""
    patch, unit = rule.patch, rule.patch * rule.merge
    there = max(1, height // patch) * max(1, width // patch)
    longest = rule.max_side * patch
    scale = min(1.0, math.sqrt(rule.max_patches / there), longest / height, longest / width)
    rows, cols = (-(-min(max(1, int(side * scale)), longest) // unit) for side in (height, width))
    return _merged(rows, cols, rule.merge)


def _capped(rule: CappedImage, width: int, height: int) -> ImageCount:
    """Scale up to the least pixels, round up to patches; down where the tokens are too many (deepseek_v41).

    A grid of r x c tokens takes r (c + 1) + 2 of them: with r / c = h / w, c + 1/2 = sqrt((most - 2) w / h + 1/4).
    """
    if width * height < rule.min_pixels:
        grow = (rule.min_pixels / (width * height)) ** 0.5
        width, height = int(width * grow), int(height * grow)
    patch, unit, most = rule.patch, rule.patch * rule.merge, rule.tokens - 2
    rows, cols = -(-height // patch), -(-width // patch)
    if -(-rows // rule.merge) * (-(-cols // rule.merge) + 1) > most:
        wide = math.sqrt(most / (height / width) + 0.25) - 0.5
        high = wide * (height / width)
        if wide < 1:
            rows, cols = most // 2 * rule.merge, rule.merge
        elif high < 1:
            rows, cols = rule.merge, (most - 1) * rule.merge
        else:
            scale = min(math.floor(wide) * unit / width, math.floor(high) * unit / height)
            rows, cols = math.floor(height * scale / patch), math.floor(width * scale / patch)
    high_tokens, wide_tokens = -(-rows // rule.merge), -(-cols // rule.merge)
    merged = high_tokens * wide_tokens
    return ImageCount(rows=rows, cols=cols, tokens=merged + high_tokens, merged=merged)


def _rounded(rule: RoundedImage, width: int, height: int) -> ImageCount:
    """Round up to tokens; up by the root to the least tokens, down to the highest image within the most (glm5_next)."""
    unit = rule.patch * rule.merge

    def tokens(high: int, wide: int) -> tuple[int, int]:
        return -(-high // unit), -(-wide // unit)

    rows, cols = tokens(height, width)
    if rows * cols < rule.min_tokens:
        grow = math.sqrt(rule.min_tokens * unit * unit / (height * width))
        rows, cols = tokens(math.ceil(height * grow), math.ceil(width * grow))
    if rows * cols > rule.tokens:
        low, high, rows, cols = 1, height, 1, 1
        while low <= high:
            tried = (low + high) // 2
            found = tokens(tried, max(1, width * tried // height))
            if math.prod(found) <= rule.tokens:
                (rows, cols), low = found, tried + 1
            else:
                high = tried - 1
    return _merged(rows, cols, rule.merge)


def _budget(rule: BudgetImage, width: int, height: int) -> ImageCount:
    """Scale to the budget of patches, round down to tokens; a side too short for one gets one (gemma4)."""
    unit = rule.patch * rule.merge
    scale = math.sqrt(rule.tokens * unit * unit / (width * height))
    rows, cols = math.floor(scale * height / unit), math.floor(scale * width / unit)
    if not rows and not cols:
        raise InferometerError(f"an image of {width}x{height} leaves no token")
    if not rows:
        rows, cols = 1, min(width // height, rule.tokens)
    elif not cols:
        rows, cols = min(height // width, rule.tokens), 1
    return _merged(rows, cols, rule.merge)


def _tiled(rule: TiledImage, width: int, height: int) -> ImageCount:
    """Take the best canvas (llama4). More than one tile: one more of the whole, and a token behind each other tile."""
    tiles = _tiles(rule.max_tiles, rule.side, width, height)
    grid = rule.side // rule.patch
    each = grid * grid // (rule.merge * rule.merge)
    run = tiles + 1 if tiles > 1 else 1
    parted = tiles if tiles > 1 else 0
    return ImageCount(
        rows=grid, cols=grid, tokens=run * each + parted, merged=run * each, tiles=run, classes=rule.classes
    )


def _tiles(most: int, side: int, width: int, height: int) -> int:
    """Return the tiles of the canvas that scales an image up least, else down least, the smallest of equals."""
    canvases = [(r, c) for r in range(1, most + 1) for c in range(1, most // r + 1)]
    scaled = [(min(r * side / height, c * side / width), r, c) for r, c in canvases]
    up = [scale for scale, _, _ in scaled if scale >= 1]
    wanted = min(up) if up else max(scale for scale, _, _ in scaled)
    return min(r * c for scale, r, c in scaled if scale == wanted)


def _canvas(rule: CanvasImage, width: int, height: int) -> ImageCount:
    """Take the best canvas (mllama): the tower runs over all tiles there can be, features are of the canvas's."""
    grid, most = rule.side // rule.patch, rule.max_tiles
    tokens = _tiles(most, rule.side, width, height) * (grid * grid + 1)
    return ImageCount(rows=most * grid, cols=grid, tokens=tokens, merged=tokens, classes=most)


def _grid(rule: GridImage, width: int, height: int) -> ImageCount:
    """Take the canvas that keeps most of the image, wasting least; cut padding off, end rows (llava_next)."""

    def kept(canvas: tuple[int, int]) -> tuple[int, int]:
        scale = min(canvas[1] / width, canvas[0] / height)
        pixels = min(int(width * scale) * int(height * scale), width * height)
        return -pixels, canvas[0] * canvas[1] - pixels

    high, wide = min(rule.grids, key=kept)
    side = rule.side // rule.patch
    rows, cols = high // rule.side * side, wide // rule.side * side
    tiles = high // rule.side * (wide // rule.side) + 1
    if width / height > cols / rows:
        rows -= (rows - int(round(height * (cols / width), 7))) // 2 * 2
    else:
        cols -= (cols - int(round(width * (rows / height), 7))) // 2 * 2
    tokens = rows * cols + rows + rule.base
    return ImageCount(rows=side, cols=side, tokens=tokens, merged=tiles * rule.base, tiles=tiles, classes=rule.classes)


_RULES: Mapping[type, Callable[[Any, int, int], ImageCount]] = {
    FixedImage: _fixed,
    PixelImage: _pixels,
    EdgeImage: _edge,
    PatchImage: _patches,
    CappedImage: _capped,
    RoundedImage: _rounded,
    BudgetImage: _budget,
    TiledImage: _tiled,
    CanvasImage: _canvas,
    GridImage: _grid,
}
