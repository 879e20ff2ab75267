"""What a wrapper puts between the features of an encoder and the language model, by wrapper.

Shapes as in huggingface/transformers `models/gemma3`, `llava`, `llava_next` and `mistral3` (5.24); Phi-3-vision's as in
the modelling code beside its checkpoints on the hub.
"""

from dataclasses import replace

import msgspec

from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import EdgeImage, FixedImage, GridImage, ImageRule, Linear, TowerPart

GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
"""Canvases of LLaVA-NeXT's class."""
MAX_GRIDS = 1_000


def gemma3(encoder: p.Encoder, outer: ConfigReader, out: int) -> p.Encoder:
    """Return SigLIP with Gemma 3's projector: averages of patches (`mm_tokens_per_image`), an RMS norm, a matrix."""
    projector = TowerPart(
        name="projector",
        over="merged",
        width=encoder.width,
        linears={"projector": Linear(rows=out, cols=encoder.width)},
        norms={"norm": encoder.width},
    )
    image = encoder.image
    if isinstance(image, FixedImage):
        tokens = outer.integer_or_none("mm_tokens_per_image", high=p.MAX_SIZE) or 256
        image = msgspec.structs.replace(image, tokens=tokens)
    return replace(encoder, parts=(*encoder.parts, projector), width=out, image=image)


def llava(encoder: p.Encoder, outer: ConfigReader, out: int) -> p.Encoder:
    """Return an encoder with LLaVA's projector: features of one or more layers through [O, features] and [O, O]."""
    picked = _picked_layers(outer)
    biased = outer.flag("multimodal_projector_bias", default=True)
    projector = p.two_matrices("projector", encoder.width * len(picked), out, out, bias=biased)
    image = encoder.image
    if isinstance(image, FixedImage):
        dropped = int((outer.text("vision_feature_select_strategy") or "default") == "default")
        image = msgspec.structs.replace(image, tokens=image.tokens - dropped)
    return replace(encoder, parts=(*_running(encoder, picked), projector), width=out, image=image)


def llava_next(encoder: p.Encoder, outer: ConfigReader, out: int) -> p.Encoder:
    """Return an encoder with LLaVA-NeXT's projector: as LLaVA's, and one embedding that ends rows."""
    made = llava(encoder, outer, out)
    newline = TowerPart(name="newline", over=None, width=out, tables={"newline": out})
    image: ImageRule | None = made.image
    if isinstance(image, FixedImage):
        image = _grid(encoder, outer, image)
    return replace(made, parts=(*made.parts, newline), image=image)


def _grid(encoder: p.Encoder, outer: ConfigReader, square: FixedImage) -> GridImage:
    listed = outer.values.get("image_grid_pinpoints")
    outer.skip("image_grid_pinpoints")
    grids = _pairs(outer, listed) if listed is not None else GRIDS
    channels = next(part for part in encoder.parts if part.name == "patches").linears["patches"].cols / 3
    patch = round(channels**0.5)
    side = square.patches * patch
    if any(height % side or width % side for height, width in grids):
        raise outer.wrong("image_grid_pinpoints", listed, f"pairs of multiples of the tile's {side} pixels")
    return GridImage(side=side, patch=patch, classes=square.classes, grids=grids, base=square.tokens)


def _pairs(outer: ConfigReader, listed: object) -> tuple[tuple[int, int], ...]:
    problem = outer.wrong("image_grid_pinpoints", listed, "a list of [height, width]")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_GRIDS:
        raise problem
    found = []
    for pair in listed:
        if not isinstance(pair, list) or not all(isinstance(x, int) and 0 < x <= p.MAX_SIZE for x in pair):
            raise problem
        if len(pair) != 2:  # noqa: PLR2004  # a pair
            raise problem
        found.append((pair[0], pair[1]))
    return tuple(found)


def mistral3(encoder: p.Encoder, outer: ConfigReader, out: int) -> p.Encoder:
    """Return an encoder with Mistral 3's projector: an RMS norm, M x M patches merged to H, then [O, H] and [O, O]."""
    picked = _picked_layers(outer, default=-1)
    biased = outer.flag("multimodal_projector_bias", default=False)
    merge = outer.integer_or_none("spatial_merge_size", high=p.MAX_SIZE) or 2
    hidden = encoder.width
    norm = TowerPart(name="norm-after", over="patches", width=hidden, norms={"norm": hidden})
    merger = TowerPart(
        name="merger", over="merged", width=hidden, linears={"merger": Linear(rows=hidden, cols=merge * merge * hidden)}
    )
    projector = p.two_matrices("projector", hidden * len(picked), out, out, bias=biased)
    image = encoder.image
    if isinstance(image, EdgeImage):
        image = msgspec.structs.replace(image, merge=merge)
    return replace(encoder, parts=(*_running(encoder, picked), norm, merger, projector), width=out, image=image)


def _picked_layers(outer: ConfigReader, default: int = -2) -> tuple[int, ...]:
    """Return which layers' output is taken, as `vision_feature_layer` says: one, or several beside each other."""
    if isinstance(outer.values.get("vision_feature_layer"), list):
        return outer.integers("vision_feature_layer", low=-p.MAX_LAYERS, high=p.MAX_LAYERS) or (default,)
    one = outer.integer_or_none("vision_feature_layer", low=-p.MAX_LAYERS, high=p.MAX_LAYERS)
    return (default if one is None else one,)


def _running(encoder: p.Encoder, picked: tuple[int, ...]) -> tuple[TowerPart, ...]:
    """Return the parts with the layers that run: up to the last one picked; layer -1 is the last, -2 the one before."""
    found = []
    for part in encoder.parts:
        last = max(layer + part.layers + 1 if layer < 0 else layer for layer in picked)
        runs = min(max(last, 0), part.layers) if part.heads else None
        found.append(msgspec.structs.replace(part, runs=runs))
    return tuple(found)
