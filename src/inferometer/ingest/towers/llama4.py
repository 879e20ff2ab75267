"""Llama 4's tower: layers over patches of tiles and a class token, a shuffle of patches, an adapter, a projector.

Shapes as in huggingface/transformers `models/llama4/modeling_llama4.py` (5.24); published configs often leave the tower
to the class `Llama4VisionConfig`, whose defaults then apply.
"""

from collections.abc import Mapping
from typing import Final

from inferometer.ingest.reader import ConfigReader, Default
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import Linear, TiledImage, TowerPart

DEFAULTS: Final[Mapping[str, Default]] = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 7680,
}
MERGE = 2
"""Patches a side that a shuffle ratio of 0.5 makes one token."""
MAX_TILES = 16
SOURCE = "16 tiles an image (class of its image processor)"


def llama4_vision(reader: ConfigReader, out: int) -> p.Encoder:
    """Return Llama 4's tower with its projector [O, output].

    The first matrix after the shuffle takes `intermediate_size` = H / 0.5^2 elements; the class's defaults do not fit
    together there and count all the same.
    """
    hidden, width = p.sized(reader, "hidden_size"), p.sized(reader, "intermediate_size")
    heads, head_dim = p.read_heads(reader, hidden)
    layers = reader.integer("num_hidden_layers", high=p.MAX_LAYERS)
    at = p.Layout(hidden=hidden, width=width, layers=layers, heads=heads, head_dim=head_dim, rotated=True)
    patch, tile = p.sized(reader, "patch_size"), p.sized(reader, "image_size")
    side = p.patches_a_side(reader, tile, patch)
    ratio = reader.number("pixel_shuffle_ratio", low=0.0, high=1.0)
    if ratio not in (None, 1 / MERGE):
        raise reader.wrong("pixel_shuffle_ratio", ratio, "0.5")
    if reader.flag("multi_modal_projector_bias", default=False):
        raise reader.wrong("multi_modal_projector_bias", value=True, allowed="false")
    reader.skip("vision_feature_layer", "vision_feature_select_strategy", "projector_dropout", "norm_eps")
    inner, output = p.sized(reader, "projector_input_dim"), p.sized(reader, "projector_output_dim")
    features = p.sized(reader, "vision_output_dim")
    inputs = p.sized(reader, "num_channels") * patch * patch
    tables = {"class": hidden, "positions": (side * side + 1) * hidden}
    return p.Encoder(
        parts=(
            p.patches(hidden, inputs, norms={"norm_before": 2 * hidden}, tables=tables),
            p.layers(at),
            TowerPart(name="norm-after", over="positions", width=hidden, norms={"norm_after": 2 * hidden}),
            p.two_matrices("adapter", width, inner, output, bias=False),
            TowerPart(
                name="projector", over="merged", width=out, linears={"projector": Linear(rows=out, cols=features)}
            ),
        ),
        width=out,
        image=TiledImage(side=tile, patch=patch, merge=MERGE, max_tiles=MAX_TILES),
        image_source=SOURCE,
    )
