"""Llama 3.2 Vision's tower: layers over all tiles of an image at once, gated layers behind them, a projector.

Its features are of the last layer and of a few before it. Shapes as in huggingface/transformers
`models/mllama/modeling_mllama.py` (5.24). Letters: H width of the tower, O the language model's hidden size.
"""

from collections.abc import Mapping
from typing import Final

from inferometer.ingest.reader import ConfigReader, Default
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import CanvasImage, Linear, TowerPart

DEFAULTS: Final[Mapping[str, Default]] = {"num_channels": 3, "num_global_layers": 8, "max_num_tiles": 4}
MAX_RATIOS = 10_000


def mllama_vision(reader: ConfigReader, out: int) -> p.Encoder:
    """Return the tower with its projector [O, H (1 + layers kept)].

    Positions are of a tile and of a tile of each aspect ratio, with scalars that gate them; each of the last layers
    gates what it adds.
    """
    hidden, width = p.sized(reader, "hidden_size"), p.sized(reader, "intermediate_size")
    heads, head_dim = p.read_heads(reader, hidden, "attention_heads")
    layers = reader.integer("num_hidden_layers", high=p.MAX_LAYERS)
    last = reader.integer("num_global_layers", high=p.MAX_LAYERS)
    patch, tile = p.sized(reader, "patch_size"), p.sized(reader, "image_size")
    side, tiles = p.patches_a_side(reader, tile, patch), p.sized(reader, "max_num_tiles")
    ratios = 1 + _ratios(reader)
    kept = reader.integers("intermediate_layers_indices", low=0, high=layers - 1) or ()
    features = hidden * (1 + len(kept))
    if reader.has("vision_output_dim") and p.sized(reader, "vision_output_dim") != features:
        raise reader.wrong("vision_output_dim", reader.find("vision_output_dim")[1], f"{1 + len(kept)} x hidden_size")
    positions = (side * side + 1) * hidden
    tables = {
        "class": hidden,
        "positions": positions + 1 + ratios * tiles * positions,
        "tile_positions": 2 * (ratios * tiles * hidden + 1),
    }
    at = p.Layout(hidden=hidden, width=width, layers=layers, heads=heads, head_dim=head_dim)
    inputs = p.sized(reader, "num_channels") * patch * patch
    return p.Encoder(
        parts=(
            p.patches(hidden, inputs, norms={"norm_before": 2 * hidden}, tables=tables),
            _plain_attention(p.layers(at)),
            TowerPart(name="norm-after", over="positions", width=hidden, norms={"norm_after": 2 * hidden}),
            _plain_attention(p.layers(at, name="global-layer", held=last), gates=2),
            TowerPart(
                name="projector",
                over="merged",
                width=out,
                linears={"projector": Linear(rows=out, cols=features, bias=out)},
            ),
        ),
        width=out,
        image=CanvasImage(side=tile, patch=patch, max_tiles=tiles),
    )


def _ratios(reader: ConfigReader) -> int:
    """Return how many aspect ratios there are."""
    key, listed = reader.find("supported_aspect_ratios")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_RATIOS:
        raise reader.wrong(key, listed, "a list of aspect ratios")
    return len(listed)


def _plain_attention(part: TowerPart, gates: int = 0) -> TowerPart:
    """Return layers whose attention has no biases, with scalars that gate what each adds."""
    bare = {
        name: Linear(rows=one.rows, cols=one.cols, bias=0 if name in ("qkv", "o") else one.bias, split=one.split)
        for name, one in part.linears.items()
    }
    return TowerPart(
        name=part.name,
        layers=part.layers,
        over=part.over,
        width=part.width,
        linears=bare,
        norms=part.norms,
        tables={"gates": gates} if gates else {},
        heads=part.heads,
        head_dim=part.head_dim,
    )
