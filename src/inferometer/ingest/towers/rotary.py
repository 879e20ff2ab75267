"""Towers whose positions are rotations alone: DeepSeek-V4.1's and GLM-5.3-Flash's.

Shapes of the former as in huggingface/pytorch-image-models `timm/models/deepseek_vit.py` (issue 2772), its image
processor as in sgl-project/sglang `deepseek_v41_image_processing.py`; of the latter as in huggingface/transformers
`models/glm_ocr` with sizes of the release, which take the 1,075 MiB of FlashML-org/FreeToken pull 479; its processor as
in `models/glm5_next`.
"""

from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import CappedImage, Linear, RoundedImage, TowerPart

GLM_TOKENS = (16, 8000)
GLM_SOURCE = "{} to {} tokens (class of its image processor)"
DEEPSEEK_SOURCE = "at most {} tokens, at least {} pixels (vision_config)"


def deepseek_vit(reader: ConfigReader, out: int) -> p.Encoder:
    """Return DeepSeek's tower: gated layers whose attention alone has biases, RMS norms, [O, M^2 H] and [O, O].

    The learned vectors around and between rows of an image are left out.
    """
    hidden = p.sized(reader, "hidden_size")
    heads, head_dim = p.read_heads(reader, hidden)
    at = p.Layout(
        hidden=hidden,
        width=p.sized(reader, "intermediate_size"),
        layers=reader.integer("num_hidden_layers", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head_dim,
        ffn_bias=False,
        gated=True,
        norm_bias=False,
        rotated=True,
    )
    patch, merge = p.sized(reader, "patch_size"), p.sized(reader, "downsample_ratio")
    tokens, pixels = reader.integer("max_image_tokens", low=4, high=p.MAX_SIZE), p.sized(reader, "min_pixels")
    if reader.values.get("max_wh_ratio") is not None:
        raise reader.wrong("max_wh_ratio", reader.values["max_wh_ratio"], "null")
    reader.skip("max_wh_ratio", "rope_theta")
    return p.Encoder(
        parts=(
            p.patches(hidden, 3 * patch * patch, bias=True),
            p.layers(at),
            TowerPart(name="norm-after", over="patches", width=hidden, norms={"norm": hidden}),
            p.two_matrices("aligner", merge * merge * hidden, out, out, bias=True),
        ),
        width=out,
        image=CappedImage(patch=patch, merge=merge, min_pixels=pixels, tokens=tokens),
        image_source=DEEPSEEK_SOURCE.format(tokens, pixels),
    )


def glm5_next(reader: ConfigReader, out: int) -> p.Encoder:
    """Return GLM-5.3-Flash's tower: gated layers with biases, RMS norms also of q and k; M x M patches made one.

    Behind the layers a norm, [O, M^2 H] with a bias, [O, O], a LayerNorm and a gated feed-forward without biases.
    """
    hidden = p.sized(reader, "hidden_size")
    heads, head_dim = p.read_heads(reader, hidden, "num_heads")
    at = p.Layout(
        hidden=hidden,
        width=p.sized(reader, "intermediate_size"),
        layers=reader.integer("depth", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head_dim,
        bias=reader.flag("attention_bias", default=True),
        gated=True,
        norm_bias=False,
        rotated=True,
    )
    if p.sized(reader, "out_hidden_size") != out:
        raise reader.wrong("out_hidden_size", reader.find("out_hidden_size")[1], f"the model's hidden_size = {out}")
    patch, merge = p.sized(reader, "patch_size"), p.sized(reader, "spatial_merge_size")
    inputs = p.sized(reader, "in_channels") * p.sized(reader, "temporal_patch_size") * patch * patch
    wide = p.sized(reader, "projection_intermediate_size")
    reader.skip("image_size", "swiglu_limit")
    norms = {"attention_norm": hidden, "q_norm": head_dim, "k_norm": head_dim, "ffn_norm": hidden}
    return p.Encoder(
        parts=(
            p.patches(hidden, inputs, bias=True),
            p.layers(at, norms=norms),
            TowerPart(name="norm-after", over="patches", width=hidden, norms={"norm": hidden}),
            *_merger(merge * merge * hidden, wide, out),
        ),
        width=out,
        image=RoundedImage(patch=patch, merge=merge, min_tokens=GLM_TOKENS[0], tokens=GLM_TOKENS[1]),
        image_source=GLM_SOURCE.format(*GLM_TOKENS),
    )


def _merger(merged: int, wide: int, out: int) -> tuple[TowerPart, TowerPart]:
    """Return what makes M x M patches one, and the gated feed-forward behind it."""
    one = {"downsample": Linear(rows=out, cols=merged, bias=out), "project": Linear(rows=out, cols=out)}
    gated = {
        "gate+up": Linear(rows=2 * wide, cols=out, split="rows"),
        "down": Linear(rows=out, cols=wide, split="cols"),
    }
    return (
        TowerPart(name="downsample", over="merged", width=out, linears=one),
        TowerPart(name="merger", over="merged", width=out, linears=gated, norms={"norm": 2 * out}),
    )
