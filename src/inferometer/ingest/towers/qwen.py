"""The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: images of any shape, M x M patches merged by two matrices.

Shapes as in huggingface/transformers `models/qwen2_vl`, `qwen2_5_vl` and `qwen3_vl` (5.24). Least and most pixels are
of the `preprocessor_config.json` beside the checkpoints on the hub, for configs do not state them.
"""

from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import Linear, PixelImage, TowerPart

QWEN2_PIXELS = (56 * 56, 28 * 28 * 16384)
QWEN3_PIXELS = (256 * 256, 4096 * 4096)
SOURCE = "{} to {} pixels (preprocessor_config.json on the hub)"


def _inputs(reader: ConfigReader) -> int:
    """Return the elements of a patch: channels, frames and pixels."""
    reader.skip("in_chans")
    patch = p.sized(reader, "patch_size")
    return p.sized(reader, "in_channels") * p.sized(reader, "temporal_patch_size") * patch * patch


def _image(reader: ConfigReader, pixels: tuple[int, int]) -> PixelImage:
    patch, merge = p.sized(reader, "patch_size"), p.sized(reader, "spatial_merge_size")
    return PixelImage(patch=patch, merge=merge, min_pixels=pixels[0], max_pixels=pixels[1])


def _check_out(reader: ConfigReader, name: str, out: int) -> None:
    stated = p.sized(reader, name)
    if stated != out:
        raise reader.wrong(name, stated, f"the language model's hidden_size = {out}")


def _made(reader: ConfigReader, parts: list[TowerPart], out: int, pixels: tuple[int, int]) -> p.Encoder:
    return p.Encoder(parts=tuple(parts), width=out, image=_image(reader, pixels), image_source=SOURCE.format(*pixels))


def qwen2_vl(reader: ConfigReader, out: int) -> p.Encoder:
    """Return Qwen2-VL's tower: plain layers with biases and LayerNorms, rotated positions; its width is `embed_dim`."""
    _check_out(reader, "hidden_size", out)
    hidden = p.sized(reader, "embed_dim")
    heads, head_dim = p.read_heads(reader, hidden, "num_heads")
    width = p.sized(reader, "mlp_ratio") * hidden
    at = p.Layout(
        hidden=hidden,
        width=width,
        layers=reader.integer("depth", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head_dim,
        rotated=True,
    )
    merged = p.sized(reader, "spatial_merge_size") ** 2 * hidden
    reader.skip("spatial_patch_size")
    merger = p.two_matrices("merger", merged, merged, out, bias=True, norms={"norm": 2 * hidden})
    return _made(reader, [p.patches(hidden, _inputs(reader)), p.layers(at), merger], out, QWEN2_PIXELS)


def qwen2_5_vl(reader: ConfigReader, out: int) -> p.Encoder:
    """Return Qwen2.5-VL's tower: gated layers with biases and RMS norms, most of them in windows of patches."""
    hidden = p.sized(reader, "hidden_size")
    heads, head_dim = p.read_heads(reader, hidden, "num_heads")
    at = p.Layout(
        hidden=hidden,
        width=p.sized(reader, "intermediate_size"),
        layers=reader.integer("depth", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head_dim,
        gated=True,
        norm_bias=False,
        rotated=True,
    )
    patch, merge = p.sized(reader, "patch_size"), p.sized(reader, "spatial_merge_size")
    _check_out(reader, "out_hidden_size", out)
    reader.skip("tokens_per_second", "spatial_patch_size")
    window = p.sized(reader, "window_size") // patch // merge * merge
    listed = reader.integers("fullatt_block_indexes", low=0, high=p.MAX_LAYERS)
    wide = {7, 15, 23, 31} if listed is None else set(listed)
    full = len(wide & set(range(at.layers)))
    kinds = (("layer", full, 0), ("window-layer", at.layers - full, window))
    found = [p.patches(hidden, _inputs(reader))]
    found += [p.layers(at, name=name, held=held, window=reach) for name, held, reach in kinds if held]
    merged = merge**2 * hidden
    found.append(p.two_matrices("merger", merged, merged, out, bias=True, norms={"norm": hidden}))
    return _made(reader, found, out, QWEN2_PIXELS)


def qwen3_vl(reader: ConfigReader, out: int) -> p.Encoder:
    """Return Qwen3-VL's tower: learned positions, a merger, and one more for each deep-stack layer.

    A merger is a LayerNorm, [M^2 H, M^2 H] and [O, M^2 H] with biases; the first norms H wide, the others M^2 H.
    """
    hidden = p.sized(reader, "hidden_size")
    heads, head_dim = p.read_heads(reader, hidden, "num_heads")
    at = p.Layout(
        hidden=hidden,
        width=p.sized(reader, "intermediate_size"),
        layers=reader.integer("depth", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head_dim,
        rotated=True,
    )
    _check_out(reader, "out_hidden_size", out)
    merged = p.sized(reader, "spatial_merge_size") ** 2 * hidden
    positions = p.sized(reader, "num_position_embeddings") * hidden
    found = [
        p.patches(hidden, _inputs(reader), bias=True, tables={"positions": positions}),
        p.layers(at),
        p.two_matrices("merger", merged, merged, out, bias=True, norms={"norm": 2 * hidden}),
    ]
    stacked = len(reader.integers("deepstack_visual_indexes", low=0, high=p.MAX_LAYERS) or ())
    if stacked:
        found.append(_deep_stack(stacked, merged, out))
    return _made(reader, found, out, QWEN3_PIXELS)


def _deep_stack(count: int, merged: int, out: int) -> TowerPart:
    """Return the mergers of features of layers inside the tower, added in the language model's first layers."""
    return TowerPart(
        name="deep-stack",
        layers=count,
        over="merged",
        width=merged,
        linears={
            "in": Linear(rows=merged, cols=merged, bias=merged, split="rows"),
            "out": Linear(rows=out, cols=merged, bias=out, split="cols"),
        },
        norms={"norm": 2 * merged},
    )
