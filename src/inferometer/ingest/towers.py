"""What stands before the language model of a wrapper: shapes of vision towers with their projectors, by kind.

Letters: H width of the tower, L its layers, F its feed-forward width, P patch size, O the language model's hidden size.
"""

from collections.abc import Callable, Mapping
from math import prod

from inferometer.ingest.reader import ConfigReader
from inferometer.specs.model import Tower

MAX_SIZE = 10**6
MAX_LAYERS = 10_000

Shapes = dict[str, tuple[int, int, int]]


def _encoder(hidden: int, layers: int, width: int) -> Shapes:
    """Return the shapes of L encoder layers: attention and plain feed-forward with biases, two LayerNorms."""
    return {
        "attention": (hidden, hidden, 4 * layers),
        "attention_bias": (hidden, 1, 4 * layers),
        "up": (width, hidden, layers),
        "up_bias": (width, 1, layers),
        "down": (hidden, width, layers),
        "down_bias": (hidden, 1, layers),
        "norms": (hidden, 1, 4 * layers),
    }


def siglip(reader: ConfigReader, out: int) -> Shapes:
    """Return SigLIP without its pooling head, with Gemma 3's projector: an RMS norm and a matrix [H, O]."""
    hidden, layers = reader.integer("hidden_size", high=MAX_SIZE), reader.integer("num_hidden_layers", high=MAX_LAYERS)
    patch, channels = reader.integer("patch_size", high=MAX_SIZE), reader.integer("num_channels", high=MAX_SIZE)
    side = reader.integer("image_size", high=MAX_SIZE) // patch
    reader.skip("num_attention_heads")
    if reader.flag("vision_use_head", default=False):
        raise reader.wrong("vision_use_head", value=True, allowed="false")
    return {
        "patches": (hidden, channels * patch * patch, 1),
        "patches_bias": (hidden, 1, 1),
        "positions": (side * side, hidden, 1),
        **_encoder(hidden, layers, reader.integer("intermediate_size", high=MAX_SIZE)),
        "final_norm": (hidden, 1, 2),
        "projector": (out, hidden, 1),
        "projector_norm": (hidden, 1, 1),
    }


def qwen3_vl(reader: ConfigReader, out: int) -> Shapes:
    """Return Qwen3-VL's tower: a merger of M = merge^2 patches to O, and one more a deep-stack layer.

    A merger is a LayerNorm, [M H, M H] and [O, M H] with biases; the first norms H wide, the others M H.
    """
    hidden, layers = reader.integer("hidden_size", high=MAX_SIZE), reader.integer("depth", high=MAX_LAYERS)
    patch, frames = reader.integer("patch_size", high=MAX_SIZE), reader.integer("temporal_patch_size", high=MAX_SIZE)
    channels = reader.integer("in_channels", high=MAX_SIZE)
    merged = reader.integer("spatial_merge_size", high=MAX_SIZE) ** 2 * hidden
    stacked = len(reader.integers("deepstack_visual_indexes", low=0, high=MAX_LAYERS) or ())
    stated = reader.integer("out_hidden_size", high=MAX_SIZE)
    if stated != out:
        raise reader.wrong("out_hidden_size", stated, f"the language model's hidden_size = {out}")
    reader.skip("num_heads")
    return {
        "patches": (hidden, channels * frames * patch * patch, 1),
        "patches_bias": (hidden, 1, 1),
        "positions": (reader.integer("num_position_embeddings", high=MAX_SIZE), hidden, 1),
        **_encoder(hidden, layers, reader.integer("intermediate_size", high=MAX_SIZE)),
        "merger_norm": (hidden, 1, 2),
        "deepstack_norms": (merged, 1, 2 * stacked),
        "mergers_in": (merged, merged, 1 + stacked),
        "mergers_in_bias": (merged, 1, 1 + stacked),
        "mergers_out": (out, merged, 1 + stacked),
        "mergers_out_bias": (out, 1, 1 + stacked),
    }


def qwen2_5_vl(reader: ConfigReader, out: int) -> Shapes:
    """Return Qwen2.5-VL's tower: gated layers with biases and two RMS norms; no positions, they are rotated.

    M = merge^2 patches are normed, and go through [M H, M H] and [O, M H] with biases.
    """
    hidden, layers = reader.integer("hidden_size", high=MAX_SIZE), reader.integer("depth", high=MAX_LAYERS)
    width = reader.integer("intermediate_size", high=MAX_SIZE)
    patch, frames = reader.integer("patch_size", high=MAX_SIZE), reader.integer("temporal_patch_size", high=MAX_SIZE)
    channels = reader.integer("in_channels", high=MAX_SIZE)
    merged = reader.integer("spatial_merge_size", high=MAX_SIZE) ** 2 * hidden
    stated = reader.integer("out_hidden_size", high=MAX_SIZE)
    if stated != out:
        raise reader.wrong("out_hidden_size", stated, f"the language model's hidden_size = {out}")
    reader.skip("num_heads", "window_size", "fullatt_block_indexes", "tokens_per_second")
    reader.skip("spatial_patch_size", "in_chans")
    return {
        "patches": (hidden, channels * frames * patch * patch, 1),
        "attention": (hidden, hidden, 4 * layers),
        "attention_bias": (hidden, 1, 4 * layers),
        "ffn": (width, hidden, 3 * layers),
        "ffn_in_bias": (width, 1, 2 * layers),
        "ffn_out_bias": (hidden, 1, layers),
        "norms": (hidden, 1, 2 * layers + 1),
        "merger_in": (merged, merged, 1),
        "merger_in_bias": (merged, 1, 1),
        "merger_out": (out, merged, 1),
        "merger_out_bias": (out, 1, 1),
    }


def moonvit(reader: ConfigReader, out: int) -> Shapes:
    """Return Kimi K2.5's MoonViT: a LayerNorm, then M merged patches through [M H, M H] and [O, M H] with biases."""
    hidden = reader.integer("vt_hidden_size", high=MAX_SIZE)
    layers = reader.integer("vt_num_hidden_layers", high=MAX_LAYERS)
    patch = reader.integer("patch_size", high=MAX_SIZE)
    height, width = (reader.integer(f"init_pos_emb_{side}", high=MAX_SIZE) for side in ("height", "width"))
    down = reader.integers("merge_kernel_size", low=1, high=MAX_SIZE) or (1,)
    merged = prod(down) * hidden
    reader.skip("init_pos_emb_time", "pos_emb_type", "merge_type", "mm_hidden_size", "mm_projector_type")
    reader.skip("projector_hidden_act", "projector_ln_eps", "text_hidden_size", "video_attn_type")
    reader.skip("vt_num_attention_heads")
    return {
        "patches": (hidden, 3 * patch * patch, 1),
        "patches_bias": (hidden, 1, 1),
        "positions": (height * width, hidden, 1),
        **_encoder(hidden, layers, reader.integer("vt_intermediate_size", high=MAX_SIZE)),
        "norms_after": (hidden, 1, 4),
        "merger_in": (merged, merged, 1),
        "merger_in_bias": (merged, 1, 1),
        "merger_out": (out, merged, 1),
        "merger_out_bias": (out, 1, 1),
    }


def gemma4_vision(reader: ConfigReader, out: int) -> Shapes:
    """Return Gemma 4's tower: gated layers with four RMS norms and norms of q and k, positions by row and by column.

    A matrix [O, H] leads to the language model. Mean and scale of `standardize` are no parameters (published counts
    leave them out).
    """
    hidden, layers = reader.integer("hidden_size", high=MAX_SIZE), reader.integer("num_hidden_layers", high=MAX_LAYERS)
    heads, head = reader.integer("num_attention_heads", high=MAX_SIZE), reader.integer("head_dim", high=MAX_SIZE)
    width, patch = reader.integer("intermediate_size", high=MAX_SIZE), reader.integer("patch_size", high=MAX_SIZE)
    for name, allowed in (("num_key_value_heads", heads), ("global_head_dim", head)):
        if reader.integer(name, high=MAX_SIZE) != allowed:
            raise reader.wrong(name, reader.find(name)[1], str(allowed))
    for name in ("attention_bias", "use_clipped_linears"):
        if reader.flag(name, default=False):
            raise reader.wrong(name, value=True, allowed="false")
    reader.skip("default_output_length", "pooling_kernel_size", "max_position_embeddings", "rope_parameters")
    reader.skip("standardize")
    return {
        "patches": (hidden, 3 * patch * patch, 1),
        "positions": (2 * reader.integer("position_embedding_size", high=MAX_SIZE), hidden, 1),
        "attention": (heads * head, hidden, 4 * layers),
        "qk_norms": (head, 1, 2 * layers),
        "ffn": (width, hidden, 3 * layers),
        "norms": (hidden, 1, 4 * layers),
        "projector": (out, hidden, 1),
    }


KINDS: Mapping[str, Callable[[ConfigReader, int], Shapes]] = {
    "siglip": siglip,
    "qwen3_vl": qwen3_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "moonvit": moonvit,
    "gemma4_vision": gemma4_vision,
}


def tower(name: str, kind: str, reader: ConfigReader, out: int) -> Tower:
    """Return the tower of that kind, `out` the hidden size of the language model.

    Raises InferometerError for shapes that are missing or out of range.
    """
    reader.skip("torch_dtype", "dtype")
    shapes = KINDS[kind](reader, out)
    return Tower(name=name, shapes={tensor: shape for tensor, shape in shapes.items() if shape[2]})
