"""What a checkpoint on disk holds, from the headers of its safetensors files: names, shapes, bytes; never the weights.

A file begins with eight bytes, little endian, that say how long the JSON header after them is; the header gives each
tensor its dtype, shape and the range of its bytes (huggingface/safetensors, "Format").
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from inferometer.errors import InferometerError
from inferometer.ingest.read_json import one_line, read_json, show
from inferometer.specs.checkpoint import Checkpoint

INDEX_NAME = "model.safetensors.index.json"

PATTERN = "*.safetensors"

USUAL = "model"
"""How the files begin that transformers reads; others beside them hold the same weights another way."""

MAX_HEADER_BYTES = 100_000_000
"""Largest header, as the format's own readers take it."""

LENGTH_BYTES = 8

KINDS: tuple[tuple[str, str], ...] = (
    (r"(^|\.)(vision|visual|audio|vit|image|multi_modal|mm_)\w*\.|projector", "tower"),
    (r"indexer|(^|\.)index_", "indexer"),
    (r"norm|(^|\.)ln_|layernorm", "norm"),
    (r"lm_head|embed_out", "head"),
    (r"embed|(^|\.)wte|(^|\.)wpe", "embedding"),
    (r"per_layer", "layer-inputs"),
    (r"shared_expert", "shared-experts"),
    (r"\.experts?\.", "experts"),
    (r"router|e_score_correction|\.gate\.(weight|bias|wg)", "router"),
    (r"self_attn\.linear_attn|linear_mlp", "matrix"),
    (r"conv1d|(^|\.)conv\.conv|A_log|dt_bias|\.D$", "recurrence"),
    (r"mixer\.(up|down)_proj", "ffn"),
    (r"linear_attn|mamba|mixer\.(in|out)_proj|(^|\.)conv\.", "mixer"),
    (r"attn|attention|(^|\.)mixer\.|sinks", "attention"),
    (r"mlp|ffn|feed_forward|(^|\.)fc\d", "ffn"),
)
"""What a tensor is by its name, first match first: for a breakdown, never for a decision."""

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_MTP = re.compile(r"(?:^|\.)(?:mtp|nextn)\b")


class Stored(NamedTuple):
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


def kind_of(name: str, layers: int) -> str:
    """Return what a tensor is by its name; what lies past the model's `layers` is its token predictor's, `mtp`.

    >>> [kind_of(f"model.layers.{n}", 61) for n in ("3.mlp.experts.7.up_proj.weight", "61.mlp.gate.weight")]
    ['experts', 'mtp']
    >>> names = ("mixer.in_proj", "mixer.conv1d", "mixer.q_proj", "linear_attn.out_proj", "self_attn.linear_attn")
    >>> [kind_of(f"model.layers.0.{name}.weight", 1) for name in names]
    ['mixer', 'recurrence', 'attention', 'mixer', 'matrix']
    """
    layer = _LAYER.search(name)
    if _MTP.search(name) or (layer is not None and int(layer[1]) >= layers and not _is_tower(name)):
        return "mtp"
    return next((kind for pattern, kind in KINDS if re.search(pattern, name)), "other")


def _is_tower(name: str) -> bool:
    return re.search(KINDS[0][0], name) is not None


def read_checkpoint(folder: Path, layers: int) -> Checkpoint | None:
    """Return what the safetensors files of a directory hold, or what its index says; None where there are none.

    `layers` are the model's.

    Raises InferometerError, one line, for a file that is damaged and for an index that names a file which is missing
    beside others that are there.
    """
    index = folder / INDEX_NAME
    named: set[str] = set()
    said: Mapping[str, Any] = {}
    if index.exists():
        said = read_json(index)
        weights = said.get("weight_map")
        if not isinstance(weights, Mapping) or not all(isinstance(file, str) for file in weights.values()):
            raise InferometerError(f"{one_line(index)}: weight_map is {show(weights)}; allowed: tensor -> file")
        named = set(weights.values())
    every = {path.name for path in folder.glob(PATTERN)}
    there = {name for name in every if name.startswith(USUAL)} or every
    if not there:
        total = _total(index, said) if said else 0
        return Checkpoint(files=0, tensors=0, stored_bytes=total, bytes_by_kind={}) if said else None
    if missing := sorted(named - there):
        raise InferometerError(f"{one_line(index)} names {len(missing)} files that are missing, as {show(missing[0])}")
    files = sorted(named or there)
    tensors = [tensor for file in files for tensor in read_header(folder / file)]
    by_kind: Counter[str] = Counter()
    for tensor in tensors:
        by_kind[kind_of(tensor.name, layers)] += tensor.size_bytes
    return Checkpoint(
        files=len(files), tensors=len(tensors), stored_bytes=sum(by_kind.values()), bytes_by_kind=dict(by_kind)
    )


def _total(index: Path, said: Mapping[str, Any]) -> int:
    metadata = said.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or total < 0:
        raise InferometerError(f"{one_line(index)}: metadata.total_size is {show(total)}; allowed: a number of bytes")
    return total


def read_header(path: Path) -> list[Stored]:
    """Return the tensors of one file; only its header is read.

    Raises InferometerError, one line, for a file that is cut off or no safetensors file.
    """
    shown = one_line(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if not 0 < length <= min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
                raise InferometerError(f"{shown} is no safetensors file: a header of {length} bytes in {size}")
            text = file.read(length)
    except OSError as error:
        raise InferometerError(f"{shown} cannot be read: {error.strerror or type(error).__name__}") from None
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise InferometerError(f"{shown} is no safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise InferometerError(f"{shown} is no safetensors file: its header is {show(header)}")
    data_bytes = size - LENGTH_BYTES - length
    return [_tensor(shown, name, entry, data_bytes) for name, entry in header.items() if name != "__metadata__"]


def _tensor(shown: str, name: str, entry: object, data_bytes: int) -> Stored:
    """Return one entry of a header, checked."""
    where = f"{shown}: tensor {show(name)}"
    if not isinstance(entry, dict):
        raise InferometerError(f"{where} is {show(entry)}; allowed: an object")
    dtype, shape, span = entry.get("dtype"), _whole(entry.get("shape")), _whole(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or span is None or len(span) != len(("from", "to")):
        raise InferometerError(f"{where} lacks dtype, shape or data_offsets")
    begin, end = span
    if not begin <= end <= data_bytes:
        raise InferometerError(f"{where} lies at {begin}..{end} of {data_bytes} bytes: the file is cut off")
    bits = int(re.sub(r"^.*?(\d+).*$", r"\1", dtype)) if re.search(r"\d", dtype) else LENGTH_BYTES
    if math.prod(shape) * bits != (end - begin) * LENGTH_BYTES:
        raise InferometerError(f"{where}: {show(dtype)} {list(shape)} does not take {end - begin} bytes")
    return Stored(name, dtype, shape, end - begin)


def _whole(value: object) -> tuple[int, ...] | None:
    """Return a list of whole numbers, None for anything else."""
    if not isinstance(value, list):
        return None
    good = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)
    return tuple(value) if good else None
