"""A model from a GGUF file: blocks from the shapes of its tensors, heads and windows from its metadata.

The names of tensors are the same for all architectures (ggml-org/llama.cpp src/llama-arch.cpp); a name that is not
known here is refused, for its cost is not. Letters: H hidden, N heads, K kv heads, D head dim, F width, E experts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from inferometer.errors import InferometerError
from inferometer.ingest.bounds import MAX_LAYERS
from inferometer.ingest.gguf_file import TensorInfo, read_header
from inferometer.ingest.quantization import unique_blocks
from inferometer.ingest.read_json import one_line
from inferometer.specs.feedforward import FeedForward, Ffn, Moe
from inferometer.specs.formats import find_format, stored_bytes
from inferometer.specs.mixers import Attention, Mixer, Mla
from inferometer.specs.model import Layer, ModelSpec

KV_FORMAT = "fp16"
"""llama.cpp's `--cache-type-k`."""

PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)
LAYER = re.compile(r"blk\.(\d{1,5})\.(.+)")

ENDS = ("token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight", "output_norm.bias")

BLOCKS = frozenset(
    f"{name}.{part}"
    for name, parts in {
        "attn_norm": "weight bias",
        "attn_q": "weight bias",
        "attn_k": "weight bias",
        "attn_v": "weight bias",
        "attn_qkv": "weight bias",
        "attn_output": "weight bias",
        "attn_q_norm": "weight",
        "attn_k_norm": "weight",
        "attn_sinks": "weight",
        "attn_q_a": "weight",
        "attn_q_a_norm": "weight",
        "attn_q_b": "weight",
        "attn_kv_a_mqa": "weight",
        "attn_kv_a_norm": "weight",
        "attn_kv_b": "weight",
        "attn_k_b": "weight",
        "attn_v_b": "weight",
        "post_attention_norm": "weight",
        "ffn_norm": "weight bias",
        "post_ffw_norm": "weight",
        "ffn_gate": "weight bias",
        "ffn_up": "weight bias",
        "ffn_down": "weight bias",
        "ffn_gate_inp": "weight bias",
        "ffn_gate_exps": "weight bias",
        "ffn_up_exps": "weight bias",
        "ffn_down_exps": "weight bias",
        "ffn_gate_shexp": "weight",
        "ffn_up_shexp": "weight",
        "ffn_down_shexp": "weight",
        "ffn_gate_inp_shexp": "weight",
        "exp_probs_b": "bias",
        "rope_freqs": "weight",
    }.items()
    for part in parts.split()
)
"""Tensors of a layer that are understood."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file's metadata, its tensors by layer, and where it is, for errors."""

    where: str
    metadata: Mapping[str, Any]
    arch: str
    layers: tuple[Mapping[str, TensorInfo], ...]
    ends: Mapping[str, TensorInfo]

    def number(self, key: str, layer: int | None = None, default: int | None = None) -> int:
        """Return `{arch}.{key}`, of a layer where it is a list; raises InferometerError where it is no size."""
        value = self.metadata.get(f"{self.arch}.{key}", default)
        if isinstance(value, list) and layer is not None and layer < len(value):
            value = value[layer]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise InferometerError(f"{self.where}: {self.arch}.{key} is {one_line(str(value))[:60]}; allowed: a size")
        return value


def load_gguf(path: Path) -> ModelSpec:
    """Return the model that a GGUF file holds, all of its parts read where it is one of several.

    Raises InferometerError, one line, for a file that is none, tensors that are not understood, and sizes that
    contradict each other.
    """
    file, stored = _read(path)
    mixers: list[Mixer | None] = []
    ffns: list[FeedForward | None] = []
    for index, tensors in enumerate(file.layers):
        mixers.append(_mixer(file, index, tensors))
        ffns.append(_ffn(file, index, tensors))
    distinct_mixers: tuple[Mixer, ...]
    distinct_ffns: tuple[FeedForward, ...]
    distinct_mixers, mixer_of = unique_blocks(mixers)
    distinct_ffns, ffn_of = unique_blocks(ffns)
    table = _end(file, "token_embd.weight")
    head = file.ends.get("output.weight")
    hidden, vocab = _matrix(file, "token_embd.weight", table)
    said = [f"{stored / 2**30:.2f} GiB of tensors in the file; norms and biases are counted in 16 bits."]
    if _windowed(file) and not _pattern(file):
        said.append("The file states a window but not which layers have it: all are counted at full length.")
    return ModelSpec(
        name=path.name.removesuffix(".gguf"),
        architecture=file.arch,
        hidden=hidden,
        vocab=vocab,
        max_context=max(file.number("context_length"), 1),
        mixers=distinct_mixers,
        ffns=distinct_ffns,
        layers=tuple(Layer(mixer=m, ffn=f) for m, f in zip(mixer_of, ffn_of, strict=True)),
        tied=head is None,
        dtype="fp16",
        head_format=None if head is None else head.format,
        embedding_format=table.format,
        kv_format=KV_FORMAT,
        source=str(path),
        assumed=tuple(said),
    )


def _read(path: Path) -> tuple[_File, int]:
    header = read_header(path)
    metadata, tensors = header.metadata, dict(header.tensors)
    for part in _others(path, metadata):
        tensors |= read_header(part).tensors
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or not re.fullmatch(r"[\w.-]{1,40}", arch):
        raise InferometerError(f"{path}: general.architecture is missing or no name")
    n = _File(str(path), metadata, arch, (), {}).number("block_count")
    if not 1 <= n <= MAX_LAYERS:
        raise InferometerError(f"{path}: {arch}.block_count is {n}; allowed: 1 to {MAX_LAYERS}")
    layers: list[dict[str, TensorInfo]] = [{} for _ in range(n)]
    ends: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        match = LAYER.fullmatch(name)
        inside = match is not None and int(match[1]) < n and match[2] in BLOCKS
        if not inside and name not in ENDS:
            raise InferometerError(f"{path}: tensor {one_line(name)[:80]} of {arch} is not understood")
        if match is not None:
            layers[int(match[1])][match[2]] = info
        else:
            ends[name] = info
    stored = sum(_stored(info) for info in tensors.values())
    return _File(str(path), metadata, arch, tuple(layers), ends), stored


def _stored(info: TensorInfo) -> int:
    cols, *rest = info.shape
    rows = 1
    for size in rest:
        rows *= size
    return int(stored_bytes(find_format(info.format), rows, cols))  # type: ignore[arg-type]  # numbers are columns of one


def _others(path: Path, metadata: Mapping[str, Any]) -> list[Path]:
    """Return the other files of a split model."""
    count = metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return []
    match = PART.fullmatch(path.name)
    if match is None or int(match[3]) != count or int(match[2]) != 1:
        raise InferometerError(f"{path}: is a part of {count}; give the first, ...-00001-of-{count:05}.gguf")
    return [path.with_name(f"{match[1]}-{i:05}-of-{count:05}{match[4]}") for i in range(2, count + 1)]


def _end(file: _File, name: str) -> TensorInfo:
    if name not in file.ends:
        raise InferometerError(f"{file.where}: has no {name}")
    return file.ends[name]


def _matrix(file: _File, name: str, info: TensorInfo) -> tuple[int, int]:
    """Return columns and rows of a matrix."""
    if len(info.shape) != 2:  # noqa: PLR2004 (a matrix)
        raise InferometerError(f"{file.where}: {name} has the shape {info.shape}; allowed: a matrix")
    return info.shape[0], info.shape[1]


def _rows(file: _File, tensors: Mapping[str, TensorInfo], name: str) -> int:
    if f"{name}.weight" not in tensors:
        raise InferometerError(f"{file.where}: a layer has no {name}.weight")
    return _matrix(file, name, tensors[f"{name}.weight"])[1]


def _per_head(file: _File, what: str, rows: int, heads: int) -> int:
    if not heads or rows % heads:
        raise InferometerError(f"{file.where}: {rows} rows of {what} are not of {heads} heads")
    return rows // heads


class _Norms(NamedTuple):
    """Norms around a block."""

    pre: bool
    post: bool
    bias: bool


def _mixer_norms(tensors: Mapping[str, TensorInfo]) -> _Norms:
    """Return the norms of a mixer; without `ffn_norm`, `post_attention_norm` is the feed-forward's own (GLM 4.5)."""
    norms = _norms(tensors, "attn_norm", "post_attention_norm")
    return norms._replace(post=norms.post and "ffn_norm.weight" in tensors)


def _ffn_norms(tensors: Mapping[str, TensorInfo]) -> _Norms:
    norms = _norms(tensors, "ffn_norm", "post_ffw_norm")
    return norms._replace(pre=norms.pre or "post_attention_norm.weight" in tensors)


def _norms(tensors: Mapping[str, TensorInfo], before: str, after: str) -> _Norms:
    return _Norms(f"{before}.weight" in tensors, f"{after}.weight" in tensors, f"{before}.bias" in tensors)


def _formats(tensors: Mapping[str, TensorInfo], names: Mapping[str, str]) -> dict[str, str]:
    """Return our tensor -> its format, of those that the layer has; `names` are ours -> the file's."""
    return {ours: tensors[f"{own}.weight"].format for ours, own in names.items() if f"{own}.weight" in tensors}


def _mixer(file: _File, index: int, tensors: Mapping[str, TensorInfo]) -> Mixer:
    heads = file.number("attention.head_count", index)
    if "attn_kv_a_mqa.weight" in tensors:
        return _mla(file, heads, tensors)
    kv_heads = file.number("attention.head_count_kv", index, default=heads)
    merged = "attn_qkv.weight" in tensors
    if merged:
        head_dim = v_dim = _per_head(file, "attn_qkv", _rows(file, tensors, "attn_qkv"), heads + 2 * kv_heads)
    else:
        head_dim = _per_head(file, "attn_q", _rows(file, tensors, "attn_q"), heads)
        v_dim = _per_head(file, "attn_v", _rows(file, tensors, "attn_v"), kv_heads)
    source = dict.fromkeys("qkv", "attn_qkv") if merged else {name: f"attn_{name}" for name in "qkv"}
    norm, norms = tensors.get("attn_q_norm.weight"), _mixer_norms(tensors)
    return Attention(
        pre_norm=norms.pre,
        post_norm=norms.post,
        norm_bias=norms.bias,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_dim=None if v_dim == head_dim else v_dim,
        qkv_bias="attn_q.bias" in tensors or "attn_qkv.bias" in tensors,
        out_bias="attn_output.bias" in tensors,
        qk_norm=norm is not None,
        qk_norm_over="all" if norm is not None and norm.shape[0] == heads * head_dim else "head",
        window=_window(file, index),
        sinks="attn_sinks.weight" in tensors,
        formats=_formats(tensors, source | {"o": "attn_output"}),
    )


def _mla(file: _File, heads: int, tensors: Mapping[str, TensorInfo]) -> Mla:
    """Return latent attention; where W_UK and W_UV are stored apart, the engine keeps the latent as it is."""
    rank = tensors["attn_kv_a_norm.weight"].shape[0] if "attn_kv_a_norm.weight" in tensors else 0
    rope = _rows(file, tensors, "attn_kv_a_mqa") - rank
    apart = "attn_k_b.weight" in tensors
    suffix = "_mla" if f"{file.arch}.attention.key_length_mla" in file.metadata else ""
    key, value = (file.number(f"attention.{side}_length{suffix}") for side in ("key", "value"))
    if min(rank, rope, key - rope, value, heads) < 1:
        raise InferometerError(
            f"{file.where}: latent of {rank} + {rope} and heads of {key}, {value} do not go together"
        )
    low, norms = "attn_q_a.weight" in tensors, _mixer_norms(tensors)
    names = {"q_a": "attn_q_a", "q_b": "attn_q_b", "q": "attn_q", "kv_a": "attn_kv_a_mqa", "o": "attn_output"}
    return Mla(
        pre_norm=norms.pre,
        post_norm=norms.post,
        norm_bias=norms.bias,
        heads=heads,
        q_rank=_rows(file, tensors, "attn_q_a") if low else None,
        kv_rank=rank,
        nope_dim=key - rope,
        rope_dim=rope,
        v_dim=value,
        split_up=apart,
        formats=_formats(tensors, names | {"kv_b": "attn_k_b" if apart else "attn_kv_b"}),
    )


def _windowed(file: _File) -> bool:
    return bool(file.metadata.get(f"{file.arch}.attention.sliding_window"))


def _pattern(file: _File) -> list[bool] | None:
    """Return which layers have the window, where the file says so."""
    value = file.metadata.get(f"{file.arch}.attention.sliding_window_pattern")
    n = len(file.layers)
    if isinstance(value, list) and len(value) >= n:
        return [bool(one) for one in value[:n]]
    if isinstance(value, int) and not isinstance(value, bool) and value > 1:
        return [(index + 1) % value != 0 for index in range(n)]
    return None


def _window(file: _File, index: int) -> int | None:
    pattern = _pattern(file) if _windowed(file) else None
    if pattern is None or not pattern[index]:
        return None
    return file.number("attention.sliding_window")


def _ffn(file: _File, index: int, tensors: Mapping[str, TensorInfo]) -> FeedForward:
    if "ffn_gate_inp.weight" in tensors:
        return _moe(file, tensors)
    width = _matrix(file, "ffn_down", tensors["ffn_down.weight"])[0] if "ffn_down.weight" in tensors else 0
    up = _rows(file, tensors, "ffn_up")
    merged = up == 2 * width
    if not width or (up != width and not merged):
        raise InferometerError(f"{file.where}: ffn_up of layer {index} has {up} rows, ffn_down {width} columns")
    names = {"gate": "ffn_up" if merged else "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    gated = merged or "ffn_gate.weight" in tensors
    formats = _formats(tensors, names if gated else {name: names[name] for name in ("up", "down")})
    norms = _ffn_norms(tensors)
    return Ffn(
        pre_norm=norms.pre,
        post_norm=norms.post,
        norm_bias=norms.bias,
        width=width,
        gated=gated,
        bias="ffn_down.bias" in tensors,
        formats=formats,
    )


def _moe(file: _File, tensors: Mapping[str, TensorInfo]) -> Moe:
    norms = _ffn_norms(tensors)
    down = tensors.get("ffn_down_exps.weight")
    if down is None or len(down.shape) != 3:  # noqa: PLR2004 (a matrix an expert)
        raise InferometerError(f"{file.where}: a layer with ffn_gate_inp has no ffn_down_exps of three dimensions")
    width, _, experts = down.shape
    shared = tensors.get("ffn_down_shexp.weight")
    names = {
        "router": "ffn_gate_inp",
        "gate": "ffn_gate_exps",
        "up": "ffn_up_exps",
        "down": "ffn_down_exps",
        "shared_gate_proj": "ffn_gate_shexp",
        "shared_up": "ffn_up_shexp",
        "shared_down": "ffn_down_shexp",
        "shared_gate": "ffn_gate_inp_shexp",
    }
    top_k = file.number("expert_used_count")
    if not 1 <= top_k <= experts:
        raise InferometerError(f"{file.where}: {file.arch}.expert_used_count is {top_k}; allowed: 1 to {experts}")
    return Moe(
        pre_norm=norms.pre,
        post_norm=norms.post,
        norm_bias=norms.bias,
        experts=experts,
        top_k=top_k,
        width=width,
        gated="ffn_gate_exps.weight" in tensors,
        bias="ffn_down_exps.bias" in tensors,
        shared_width=0 if shared is None else shared.shape[0],
        shared_gate="ffn_gate_inp_shexp.weight" in tensors,
        groups=max(file.number("expert_group_count", default=1), 1),
        top_groups=max(file.number("expert_group_used_count", default=1), 1),
        router_bias="exp_probs_b.bias" in tensors,
        router_linear_bias="ffn_gate_inp.bias" in tensors,
        formats=_formats(tensors, names),
    )
