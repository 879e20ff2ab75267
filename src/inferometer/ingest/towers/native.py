"""Towers of images of any shape: Kimi K2.5's MoonViT, Gemma 4's and Pixtral's.

Shapes as in huggingface/transformers `models/kimi_k25`, `gemma4` and `pixtral` (5.24), with their image processors.
"""

from collections.abc import Mapping
from math import isqrt, prod
from typing import Final

from inferometer.ingest.reader import ConfigReader, Default
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import BudgetImage, EdgeImage, Linear, PatchImage, TowerPart

PIXTRAL_DEFAULTS: Final[Mapping[str, Default]] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 1024,
    "patch_size": 16,
}
MOONVIT_PATCHES, MOONVIT_SIDE = 16384, 512
MOONVIT_SOURCE = "16384 patches and 512 a side (class of its image processor)"
PIXTRAL_SOURCE = "sides of {} pixels (vision_config.image_size)"
GEMMA4_TOKENS = 280
GEMMA4_SOURCE = "{} tokens an image (default_output_length)"


def moonvit(reader: ConfigReader, out: int) -> p.Encoder:
    """Return Kimi K2.5's MoonViT: a LayerNorm, then merged patches through [M^2 H, M^2 H] and [O, M^2 H]."""
    hidden = p.sized(reader, "vt_hidden_size")
    heads, head_dim = p.read_heads(reader, hidden, "vt_num_attention_heads")
    at = p.Layout(
        hidden=hidden,
        width=p.sized(reader, "vt_intermediate_size"),
        layers=reader.integer("vt_num_hidden_layers", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head_dim,
        rotated=True,
    )
    patch = p.sized(reader, "patch_size")
    height, width = (p.sized(reader, f"init_pos_emb_{side}") for side in ("height", "width"))
    down = prod(reader.integers("merge_kernel_size", low=1, high=p.MAX_SIZE) or (1,))
    reader.skip("init_pos_emb_time", "pos_emb_type", "merge_type", "mm_hidden_size", "mm_projector_type")
    reader.skip("projector_hidden_act", "projector_ln_eps", "text_hidden_size", "video_attn_type")
    merged = down * hidden
    merger = p.two_matrices("merger", merged, merged, out, bias=True, norms={"norm": 2 * hidden})
    last = TowerPart(name="norm-after", over="positions", width=hidden, norms={"norm": 2 * hidden})
    found = (
        p.patches(hidden, 3 * patch * patch, bias=True, tables={"positions": height * width * hidden}),
        p.layers(at),
        last,
        merger,
    )
    image = PatchImage(patch=patch, merge=isqrt(down), max_patches=MOONVIT_PATCHES, max_side=MOONVIT_SIDE)
    return p.Encoder(parts=found, width=out, image=image, image_source=MOONVIT_SOURCE)


def gemma4_vision(reader: ConfigReader, out: int) -> p.Encoder:
    """Return Gemma 4's tower: gated layers with four RMS norms and norms of q and k, positions by row and by column.

    Patches are averaged, and a matrix [O, H] leads to the language model. Mean and scale of `standardize` and the
    bounds of clipped inputs are no parameters (published counts leave them out).
    """
    hidden = p.sized(reader, "hidden_size")
    heads, head = p.sized(reader, "num_attention_heads"), p.sized(reader, "head_dim")
    patch = p.sized(reader, "patch_size")
    for name, allowed in (("num_key_value_heads", heads), ("global_head_dim", head)):
        if p.sized(reader, name) != allowed:
            raise reader.wrong(name, reader.find(name)[1], str(allowed))
    if reader.flag("attention_bias", default=False):
        raise reader.wrong("attention_bias", value=True, allowed="false")
    reader.skip("max_position_embeddings", "rope_parameters", "standardize", "use_clipped_linears")
    at = p.Layout(
        hidden=hidden,
        width=p.sized(reader, "intermediate_size"),
        layers=reader.integer("num_hidden_layers", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=head,
        bias=False,
        gated=True,
        rotated=True,
    )
    around = dict.fromkeys(("attention_norm", "attention_norm_after", "ffn_norm", "ffn_norm_after"), hidden)
    positions = 2 * p.sized(reader, "position_embedding_size") * hidden
    tokens = reader.integer_or_none("default_output_length", high=p.MAX_SIZE) or GEMMA4_TOKENS
    pooled = reader.integer_or_none("pooling_kernel_size", high=p.MAX_SIZE) or 3
    projector = TowerPart(
        name="projector", over="merged", width=hidden, linears={"projector": Linear(rows=out, cols=hidden)}
    )
    return p.Encoder(
        parts=(
            p.patches(hidden, 3 * patch * patch, tables={"positions": positions}),
            p.layers(at, norms={**around, "q_norm": head, "k_norm": head}),
            projector,
        ),
        width=out,
        image=BudgetImage(patch=patch, merge=pooled, tokens=tokens),
        image_source=GEMMA4_SOURCE.format(tokens),
    )


def pixtral(reader: ConfigReader, out: int) -> p.Encoder:
    """Return Pixtral's tower: gated layers without biases, RMS norms, rotated positions."""
    del out
    hidden = p.sized(reader, "hidden_size")
    heads = p.sized(reader, "num_attention_heads")
    inner = reader.integer_or_none("head_dim", high=p.MAX_SIZE) or p.read_heads(reader, hidden)[1]
    if inner * heads != hidden:
        raise reader.wrong("head_dim", inner, f"hidden_size / num_attention_heads = {hidden} / {heads}")
    at = p.Layout(
        hidden=hidden,
        width=p.sized(reader, "intermediate_size"),
        layers=reader.integer("num_hidden_layers", high=p.MAX_LAYERS),
        heads=heads,
        head_dim=inner,
        bias=False,
        gated=True,
        norm_bias=False,
        rotated=True,
    )
    patch, longest = p.sized(reader, "patch_size"), p.sized(reader, "image_size")
    p.patches_a_side(reader, longest, patch)
    inputs = p.sized(reader, "num_channels") * patch * patch
    return p.Encoder(
        parts=(p.patches(hidden, inputs, norms={"norm_before": hidden}), p.layers(at)),
        width=hidden,
        image=EdgeImage(patch=patch, merge=1, longest=longest),
        image_source=PIXTRAL_SOURCE.format(longest),
    )
