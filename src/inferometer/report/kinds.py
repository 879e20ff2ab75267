"""What blocks and segments are called."""

from collections.abc import Callable, Mapping
from typing import Any

from inferometer.blocks.model import layer_kinds
from inferometer.specs.feedforward import FeedForward, Moe
from inferometer.specs.indexer import Indexer
from inferometer.specs.lookup import Lookup
from inferometer.specs.matrix import Matrix
from inferometer.specs.mixers import Attention, Beside, Compressed, CrossAttention, Mixer, Mla
from inferometer.specs.model import Layer, ModelSpec
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv


def _grouped(mixer: Attention) -> str:
    """Return MHA (a kv head a query head), MQA (one kv head), else GQA with its ratio.

    `w` marks a window, `top` what an indexer picks.
    """
    window = f" w{mixer.window}" if mixer.window else _sparse(mixer.indexer)
    if mixer.heads == mixer.kv_heads:
        return f"MHA {mixer.heads}{window}"
    return f"{'MQA' if mixer.kv_heads == 1 else 'GQA'} {mixer.heads}/{mixer.kv_heads}{window}"


def _latent(mixer: Mla) -> str:
    return f"MLA w{mixer.window}" if mixer.window else f"MLA{_sparse(mixer.indexer)}"


def _sparse(indexer: Indexer | None) -> str:
    """Return how many tokens an indexer picks; `+` marks one that uses the choice of a layer before."""
    return f" top {indexer.top_k}{'+' if indexer.shared else ''}" if indexer else ""


def _compressed(mixer: Compressed) -> str:
    """Return CSA where entries are picked, HCA where all are read, with the tokens of one; SWA for a window alone."""
    if not mixer.ratio:
        return f"SWA w{mixer.window}"
    return f"CSA /{mixer.ratio}{_sparse(mixer.indexer)}" if mixer.indexer else f"HCA /{mixer.ratio}"


def _cross(mixer: CrossAttention) -> str:
    return f"cross {mixer.heads}/{mixer.kv_heads}"


DECAYS = {"fixed": "lightning", "head": "GDN", "channel": "KDA"}
"""Decay of linear attention -> what it is called by."""


def _linear(mixer: LinearAttention) -> str:
    shared = "" if mixer.key_heads == mixer.heads else f"/{mixer.key_heads}"
    return f"{DECAYS[mixer.decay]} {mixer.heads}{shared}"


def _mamba2(mixer: Mamba2) -> str:
    return f"Mamba-2 {mixer.heads}/{mixer.groups}"


def _mamba1(mixer: Mamba1) -> str:
    del mixer
    return "Mamba"


def _short_conv(mixer: ShortConv) -> str:
    return f"conv {mixer.conv}"


def _matrix(block: Matrix) -> str:
    del block
    return "matrix"


def _beside(mixer: Beside) -> str:
    return " + ".join(mixer_text(part) for part in mixer.parts)


MIXERS: Mapping[type, Callable[[Any], str]] = {
    Attention: _grouped,
    CrossAttention: _cross,
    Mla: _latent,
    Compressed: _compressed,
    LinearAttention: _linear,
    Mamba2: _mamba2,
    Mamba1: _mamba1,
    ShortConv: _short_conv,
    Matrix: _matrix,
    Beside: _beside,
}


def mixer_text(mixer: Mixer) -> str:
    """Return what a mixer is called; with `/`, its heads and the kv heads or groups that they share."""
    return MIXERS[type(mixer)](mixer)


def attention_text(model: ModelSpec) -> str:
    """Return the kinds of mixer of a model."""
    return ", ".join(dict.fromkeys(mixer_text(mixer) for mixer in model.mixers))


def _ffn(ffn: FeedForward) -> str:
    """Return `dense`, or how many of how many experts: `+s` shared ones, `+256z` of which zero, `in 2048` a latent."""
    if isinstance(ffn, Lookup):
        return f"{ffn.reads} rows of {ffn.rows}"
    if not isinstance(ffn, Moe):
        return "matrix" if isinstance(ffn, Matrix) else "dense"
    shared = "+s" if ffn.shared_width else ""
    zero = f"+{ffn.zero_experts}z" if ffn.zero_experts else ""
    latent = f" in {ffn.latent_width}" if ffn.latent_width else ""
    return f"{ffn.top_k}{shared} of {ffn.experts}{zero}{latent}"


def ffn_text(model: ModelSpec) -> str:
    """Return the kinds of feed-forward of a model: `dense`, or experts with how many a token takes."""
    kinds = dict.fromkeys(_ffn(ffn) for ffn in model.ffns if not isinstance(ffn, Lookup))
    return ", ".join(sorted(kinds, key=lambda kind: kind == "dense"))


def segment_text(model: ModelSpec, segment: str) -> str:
    """Return what a segment is: `layer-1` with its mixer and feed-forward; the ends say it themselves."""
    kind, _, index = segment.partition("-")
    if kind != "layer":
        return segment
    return f"{segment} ({layer_text(model, layer_kinds(model)[int(index)])})"


def layer_text(model: ModelSpec, layer: Layer) -> str:
    """Return what a layer is made of."""
    parts = [] if layer.mixer is None else [mixer_text(model.mixers[layer.mixer])]
    if layer.ffn is not None:
        ffn = model.ffns[layer.ffn]
        parts.append("MoE" if isinstance(ffn, Moe) else _ffn(ffn))
    if layer.prompt_tail is not None:
        parts.append(f"last {layer.prompt_tail} of a prompt")
    return ", ".join(parts) or "nothing"
