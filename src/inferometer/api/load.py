"""From a name to a spec: presets, files, directories and the hub for models; the catalogue and files for machines."""

import re
import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from inferometer.blocks.cache import CONV
from inferometer.blocks.model import unit_count
from inferometer.catalog.loader import build_machine, preset_config, preset_ids
from inferometer.catalog.names import close_names, resolve
from inferometer.catalog.presets import Preset, check_described, preset_index
from inferometer.catalog.quant_schemes import find_scheme
from inferometer.errors import InferometerError, UnknownNameError, unknown_name
from inferometer.ingest.config import CONFIG_NAME, SIDECAR_NAME, load_model_path, model_from_config
from inferometer.ingest.gguf import load_gguf
from inferometer.ingest.read_json import one_line, read_json
from inferometer.ingest.safetensors import read_checkpoint
from inferometer.ingest.schemes import apply_scheme
from inferometer.memory.weights import layer_caches
from inferometer.specs.checkpoint import Checkpoint
from inferometer.specs.formats import find_format
from inferometer.specs.hardware import Machine
from inferometer.specs.mixers import Mixer, Mla
from inferometer.specs.model import ModelSpec
from inferometer.specs.recurrent import LinearAttention

KV_FORMATS = ("bf16", "fp16", "fp32", "fp8", "int8", "q8_0", "q4_0")
"""Formats a KV cache may have: one number a slot, no block scales."""

GGUF = ".gguf"

STATE_FORMATS = ("fp32", "bf16", "fp16")
"""Formats a recurrent state may have."""

HUB_TIMEOUT_S = 10.0

_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_HUB_URL = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)(?:/tree/.*)?", re.ASCII)
_KV_ALIASES = {"fp8_e5m2": "fp8", "e4m3": "fp8", "e5m2": "fp8"}


def load_model(
    name: str, quant: str | None = None, kv_cache_dtype: str | None = None, state_dtype: str | None = None
) -> ModelSpec:
    """Return the model `name`: a preset, an alias, a directory, a `config.json`, a `.gguf`, or `org/name[@revision]`.

    Parameters
    ----------
    name
        Presets are tried before the hub; the hub is the only one that is not local.
    quant
        A scheme for every linear weight, such as `fp8` or `nvfp4`; None keeps the checkpoint's.
    kv_cache_dtype
        Format of the KV cache; None or `auto` keeps the checkpoint's.
    state_dtype
        Format of recurrent states; None or `auto` keeps what the config says, else fp32.

    Raises InferometerError, one line, for a name, a file or a format that is not understood.

    >>> load_model("deepseek-v3").kv_format, load_model("deepseek-v3", kv_cache_dtype="fp8").kv_format
    ('bf16', 'fp8')
    """
    return in_formats(_named(name), quant, kv_cache_dtype, state_dtype)


def in_formats(
    model: ModelSpec,
    quant: str | None,
    kv_cache_dtype: str | None,
    state_dtype: str | None = None,
    *,
    conv_state: bool | None = None,
    cut_latents: bool | None = None,
) -> ModelSpec:
    """Return `model` with linear weights, KV cache and recurrent states in other formats; None keeps what it has.

    `conv_state` False counts no memory for what convolutions keep; `cut_latents` has TP split projections to latents.
    Raises InferometerError where the model has neither.
    """
    if conv_state is False:
        model = without_conv_states(model)
    if cut_latents:
        model = with_cut_latents(model)
    if quant is not None:
        model = apply_scheme(model, find_scheme(quant))
    kv = _format("KV cache format", kv_cache_dtype, KV_FORMATS) or model.kv_format
    state = _format("format of a recurrent state", state_dtype, STATE_FORMATS) or model.state_format
    return msgspec.structs.replace(model, kv_format=kv, state_format=state)


def without_conv_states(model: ModelSpec) -> ModelSpec:
    """Return `model` with no memory for what convolutions keep; raises InferometerError where they keep nothing."""
    if not any(cache.name == CONV for layer in model.layers for cache in layer_caches(model, layer)):
        raise InferometerError(f"--no-conv-state: no convolution of {model.name} keeps anything of a sequence")
    return msgspec.structs.replace(model, conv_states=False)


def with_cut_latents(model: ModelSpec) -> ModelSpec:
    """Return `model` with projections to latents that TP splits; raises InferometerError where it has none."""
    mixers = tuple(_cut(mixer) for mixer in model.mixers)
    if mixers == model.mixers:
        raise InferometerError(f"--cut-latents: {model.name} projects to no latents")
    return msgspec.structs.replace(model, mixers=mixers)


def _cut(mixer: Mixer) -> Mixer:
    ranks = {Mla: ("q_rank", "kv_rank"), LinearAttention: ("decay_rank", "gate_rank")}.get(type(mixer), ())
    if not any(getattr(mixer, rank) for rank in ranks):
        return mixer
    return msgspec.structs.replace(mixer, cut_latents=True)


def _format(what: str, name: str | None, allowed: Sequence[str]) -> str | None:
    """Return the format called `name`, None where it keeps what there is; raises UnknownNameError for any other."""
    if name is None or name == "auto":
        return None
    try:
        wanted = find_format(_KV_ALIASES.get(name.lower(), name)).name
    except UnknownNameError:
        wanted = ""
    if wanted not in allowed:
        raise unknown_name(what, name[:40], (*allowed, *(alias for alias, of in _KV_ALIASES.items() if of in allowed)))
    return wanted


def load_machine(chip: str, machine: str | None = None, n_chips: int | None = None) -> Machine:
    """Return the machine `chip` and `machine` say: `("h200", "8x2")`, `("tpu-v7", "4x4x4")`, `("p5.48xlarge",)`.

    `chip` is a chip, a machine, a cloud instance, or a file of either. Without `machine` it is as few nodes as hold
    `n_chips` (1 unless told). Raises InferometerError for an unknown name or a size that the machine does not hold.

    >>> load_machine("h200", "8x2").fabric.n_chips
    16
    """
    return build_machine(chip, machine, n_chips)


def _named(name: str) -> ModelSpec:
    text = name.strip()
    if not text:
        raise InferometerError("MODEL is empty; give a preset (inferometer models), a config.json or org/name")
    if text.lower().endswith(GGUF):
        return load_gguf(_path(text))
    if _is_path(text):
        return load_model_path(_path(text))
    if resolve("model", text, preset_index()) is not None:
        return _preset(preset_config(text))
    check_described(text)
    hub = _HUB_ID.fullmatch(text)
    if hub is not None:
        return _from_hub(hub[1], hub[2])
    raise unknown_name("model", text[:80], [*preset_ids(), *close_names(text, preset_index())])


def checkpoint_of(name: str, model: ModelSpec) -> Checkpoint | None:
    """Return what the safetensors files beside a config on disk hold; None without any, and for other models.

    `name` is what `model` was loaded by.
    """
    text = name.strip()
    if not text or not _is_path(text) or text.lower().endswith(GGUF):
        return None
    path = _path(text)
    return read_checkpoint(path if path.is_dir() else path.parent, unit_count(model))


def _path(text: str) -> Path:
    """Return a path with its `~` written out."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InferometerError(f"{one_line(text)}: nobody is called so here; write the path out") from None


def _preset(preset: Preset) -> ModelSpec:
    """Return the model of a preset, with what its config rests on."""
    model = model_from_config(preset.config, name=preset.id, source=preset.source, sidecar=preset.quant_sidecar)
    return msgspec.structs.replace(model, assumed=(*preset.assumed, *model.assumed)) if preset.assumed else model


def _is_path(text: str) -> bool:
    """Return whether `text` is a file or directory: it looks like one, or it exists and is no preset."""
    if text.startswith((".", "/", "~", "\\")) or text.lower().endswith((".json", "/")):
        return True
    try:
        return Path(text).exists() and resolve("model", text, preset_index()) is None
    except (OSError, ValueError):
        return False


def _from_hub(repo: str, revision: str | None) -> ModelSpec:
    """Return a model of the hub from its two small files; the library caches them."""
    try:
        hub = import_module("huggingface_hub")
    except ImportError:
        raise InferometerError(
            f"{repo} is no preset, and reading it from the hub needs `pip install huggingface_hub`"
        ) from None
    config = _fetch(hub, repo, CONFIG_NAME, revision)
    try:
        sidecar = read_json(_fetch(hub, repo, SIDECAR_NAME, revision))
    except InferometerError:
        sidecar = None  # most repositories have none
    source = f"https://huggingface.co/{repo}" + (f"/tree/{revision}" if revision else "")
    return model_from_config(read_json(config), name=repo.partition("/")[2], source=source, sidecar=sidecar)


def _fetch(hub: Any, repo: str, file: str, revision: str | None) -> str:
    try:
        return str(hub.hf_hub_download(repo, file, revision=revision, etag_timeout=HUB_TIMEOUT_S))
    except Exception as error:  # noqa: BLE001 (a foreign library, and every failure is one line)
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InferometerError(f"{repo}: {file} cannot be read from the hub: {reason}") from None


PLACEHOLDER = "MODEL"
"""What an engine is told to serve where nobody named a checkpoint that is stored so."""


class Served(NamedTuple):
    """What an engine is told to serve."""

    name: str
    """Hub id, directory, or PLACEHOLDER."""
    kv_format: str
    """Format of the KV cache that the checkpoint asks for."""


def served(model: ModelSpec, plain: ModelSpec) -> Served:
    """Return the checkpoint that holds `model`: a preset's hub id, the directory of a file, else a placeholder.

    `plain` is the model before it was put into other formats.
    """
    source = plain.source
    try:
        if model.name in preset_ids() and preset_config(model.name).source == source:
            preset = preset_config(model.name)
            stored = _preset(preset)
            name = preset.hub
        elif (hub := _HUB_URL.fullmatch(source)) is not None:
            same = _cached_as(plain, model) == model
            return Served(hub[1] if same else PLACEHOLDER, plain.kv_format)
        else:
            stored, path = load_model_path(Path(source)), Path(source)
            name = str(path if path.is_dir() else path.parent if path.name == CONFIG_NAME else PLACEHOLDER)
    except (InferometerError, OSError, ValueError):
        return Served(PLACEHOLDER, plain.kv_format)
    same = _cached_as(stored, model) == model
    return Served(shlex.quote(name) if same else PLACEHOLDER, stored.kv_format)


def _cached_as(stored: ModelSpec, model: ModelSpec) -> ModelSpec:
    """Return a checkpoint's model with the caches of another: an engine is told their formats apart."""
    kept = {name: getattr(model, name) for name in ("kv_format", "state_format", "conv_states")}
    return msgspec.structs.replace(stored, **kept)
