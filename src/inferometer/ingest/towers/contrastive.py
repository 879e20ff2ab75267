"""CLIP and SigLIP encoders: L layers with biases and LayerNorms over patches of a square image, learned positions.

Shapes as in huggingface/transformers `models/clip/modeling_clip.py` and `models/siglip/modeling_siglip.py` (5.24).
"""

from collections.abc import Mapping
from typing import Final

from inferometer.ingest.reader import ConfigReader, Default
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import FixedImage, Linear, TowerPart

CLIP_DEFAULTS: Final[Mapping[str, Default]] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}
SIGLIP_DEFAULTS: Final[Mapping[str, Default]] = {**CLIP_DEFAULTS, "patch_size": 16}


def _sizes(reader: ConfigReader) -> p.Layout:
    hidden = p.sized(reader, "hidden_size")
    heads, head_dim = p.read_heads(reader, hidden)
    return p.Layout(
        hidden=hidden,
        width=p.sized(reader, "intermediate_size"),
        layers=reader.integer("num_hidden_layers", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head_dim,
    )


def _patches(reader: ConfigReader) -> tuple[int, int]:
    """Return (patches a side, elements of a patch)."""
    patch = p.sized(reader, "patch_size")
    inputs = p.sized(reader, "num_channels") * patch * patch
    return p.patches_a_side(reader, p.sized(reader, "image_size"), patch), inputs


def clip(reader: ConfigReader, out: int) -> p.Encoder:
    """Return CLIP's image encoder: a class token, norms before and after; the patch projection has no bias."""
    del out
    reader.skip("projection_dim", "initializer_factor", "vocab_size")
    at = _sizes(reader)
    side, inputs = _patches(reader)
    tables = {"class": at.hidden, "positions": (side * side + 1) * at.hidden}
    norm = 2 * at.hidden
    return p.Encoder(
        parts=(
            p.patches(at.hidden, inputs, norms={"norm_before": norm}, tables=tables),
            p.layers(at),
            TowerPart(name="norm-after", over=None, width=at.hidden, norms={"norm_after": norm}),
        ),
        width=at.hidden,
        image=FixedImage(patches=side, classes=1, tokens=side * side + 1),
    )


def siglip(reader: ConfigReader, out: int) -> p.Encoder:
    """Return SigLIP's image encoder: no class token; a pooling head, which no language model uses, where it is held."""
    del out
    reader.skip("projection_dim", "initializer_factor", "vocab_size")
    at = _sizes(reader)
    side, inputs = _patches(reader)
    last = TowerPart(name="norm-after", over="positions", width=at.hidden, norms={"norm_after": 2 * at.hidden})
    found = [
        p.patches(at.hidden, inputs, bias=True, tables={"positions": side * side * at.hidden}),
        p.layers(at),
        last,
    ]
    if reader.flag("vision_use_head", default=True):
        found.append(_pooling(at))
    return p.Encoder(
        parts=tuple(found),
        width=at.hidden,
        image=FixedImage(patches=side, tokens=side * side),
    )


def _pooling(at: p.Layout) -> TowerPart:
    """Return the pooling head: attention of a probe to all patches, a norm, a feed-forward; it never runs."""
    hidden, width = at.hidden, at.width
    return TowerPart(
        name="pooling",
        over=None,
        width=hidden,
        linears={
            "qkv": Linear(rows=3 * hidden, cols=hidden, bias=3 * hidden),
            "o": Linear(rows=hidden, cols=hidden, bias=hidden),
            "up": Linear(rows=width, cols=hidden, bias=width),
            "down": Linear(rows=hidden, cols=width, bias=hidden),
        },
        norms={"norm": 2 * hidden},
        tables={"probe": hidden},
    )
