"""From a checkpoint's quantisation to the formats of our tensors, and named schemes over a model."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from inferometer.errors import InferometerError, unknown_name
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.modules import MODULES, Modules
from inferometer.ingest.quant_methods import MIXED, parse
from inferometer.ingest.quant_rules import QuantRules
from inferometer.ingest.read_json import show
from inferometer.specs.block import Block
from inferometer.specs.feedforward import FeedForward, Moe
from inferometer.specs.formats import DTYPE_ALIASES, FORMATS
from inferometer.specs.mixers import Beside, Mixer
from inferometer.specs.model import ModelSpec

Kind = TypeVar("Kind", bound=Mixer | FeedForward)

_COMPRESSORS = ("compress_kv", "compress_gate", "index_kv", "index_gate")
NOT_LINEAR = frozenset({"router", "shared_gate", "table", "index_weights", "index_pool", *_COMPRESSORS})
"""Tensors that a blanket scheme leaves in the model's dtype: what decides where a token goes or what it reads."""

MAX_WORK = 50_000_000
"""Most look-ups times steps; real checkpoints stay far below a tenth of it."""

UNQUANTISED = ("bf16", "fp16", "fp32")

PRESET_SCHEMES = ("fp8", "fp8-block", "int4-g128", "mxfp4", "nvfp4", "bf16")
"""Schemes that help texts name; `quant_scheme` takes any format."""


def read_quantization(
    config: Mapping[str, object], sidecar: Mapping[str, object] | None, *, dialect: Dialect, where: str
) -> QuantRules:
    """Return the rules of `quantization_config`, or of the `hf_quant_config.json` object beside it.

    The sidecar wins where both exist: ModelOpt writes it, and `config.json` holds a copy at best. Where ModelOpt
    quantised an fp8 checkpoint again, what it leaves alone stays fp8.
    Raises InferometerError, or UnknownNameError for a method that is not understood.
    """
    inside = config.get("quantization_config")
    if inside is not None and not isinstance(inside, Mapping):
        raise InferometerError(f"{where}: quantization_config is {show(inside)}; allowed: an object or null")
    beside = None if sidecar is None else sidecar.get("quantization", sidecar)
    if beside is not None and not isinstance(beside, Mapping):
        raise InferometerError(f"{where}: hf_quant_config quantization is {show(beside)}; allowed: an object")
    if inside:
        inside = {**{key: config[key] for key in dialect.quant_keys if key in config}, **inside}
    rules = _rules(inside or {}, beside or {}, where)
    return rules.renamed(dialect.formats)


_FP8_KEYS = ("quant_method", "weight_block_size", "activation_scheme", "fmt", "scale_fmt", "expert_dtype")
"""What `quant_method: fp8` says, where ModelOpt's own keys stand beside it."""


def _rules(inside: Mapping[str, object], beside: Mapping[str, object], where: str) -> QuantRules:
    """Return the rules of either object, or of both."""
    if not inside and not beside:
        return QuantRules()
    again = inside.get("quant_method") == "fp8" and MIXED in (inside.get("quant_algo"), beside.get("quant_algo"))
    base = {key: inside[key] for key in _FP8_KEYS if key in inside} if again else {}
    own = {key: value for key, value in inside.items() if key not in base or key in ("fmt", "activation_scheme")}
    rules = parse(beside, f"{where}: hf_quant_config") if beside else parse(own, f"{where}: quantization_config")
    if base:
        rules = rules.over(parse(base, f"{where}: quantization_config"))
    if beside and inside:
        said = "hf_quant_config.json and quantization_config both exist: the former is taken."
        rules = dataclasses.replace(rules, assumed=(*rules.assumed, said))
    return rules


def formats_per_layer(
    blocks: Sequence[Kind | None], rules: QuantRules, dialect: Dialect, where: str
) -> tuple[tuple[Kind, ...], tuple[int | None, ...]]:
    """Return the distinct blocks as stored, and each layer's index into them; `blocks` has one a layer, or None.

    Raises InferometerError where the experts of one layer differ in format, or where the rules are so
    many that only a hostile file would hold them.
    """
    experts = max((block.experts for block in blocks if isinstance(block, Moe)), default=1)
    each = max(len(dialect.unit), 1)
    work = len(blocks) * len(rules.expert_probes(experts)) * rules.cost()
    if work > MAX_WORK:
        raise InferometerError(f"{where}: quantisation rules take {work} steps to apply; allowed: {MAX_WORK}")
    return unique_blocks(
        [
            block if block is None else with_formats(block, i // each, rules, dialect, where)
            for i, block in enumerate(blocks)
        ]
    )


def with_formats(block: Kind, layer: int, rules: QuantRules, dialect: Dialect, where: str) -> Kind:
    """Return `block` as layer number `layer` stores it: the format of each tensor by its module's name.

    Raises InferometerError where the experts of one layer differ in format.
    """
    if isinstance(block, Beside):
        beside = tuple(with_formats(part, layer, rules, dialect, where) for part in block.parts)
        return msgspec.structs.replace(block, parts=beside)
    formats: dict[str, str] = {}
    modules = _modules_of(block, dialect)
    probes = rules.expert_probes(block.experts) if isinstance(block, Moe) else (0,)
    for tensor in block.matrices():
        names = [f"model.layers.{layer}.{module}" for module in modules[tensor]]
        linear = tensor not in NOT_LINEAR and tensor not in dialect.plain
        if any("{e}" in module for module in names):
            found = {
                rules.format_of(tuple(module.replace("{e}", str(expert)) for module in names)) for expert in probes
            }
        else:
            found = {rules.format_of(tuple(names), linear=linear)}
        if len(found) > 1:
            listed = ", ".join(sorted(f or "unquantised" for f in found))
            raise InferometerError(
                f"{where}: experts of layer {layer} differ in format ({listed}); allowed: one format"
            )
        form = found.pop()
        if form is not None:
            formats[tensor] = form
    return msgspec.structs.replace(block, formats=formats) if formats else block


def _modules_of(block: Block, dialect: Dialect) -> Modules:
    return {**MODULES, **dialect.modules}[type(block)]


def unique_blocks(per_layer: Sequence[Kind | None]) -> tuple[tuple[Kind, ...], tuple[int | None, ...]]:
    """Return the distinct blocks in order of first use, and each layer's index into them; None where it has none."""
    seen: dict[bytes, int] = {}
    blocks: list[Kind] = []
    indices: list[int | None] = []
    for block in per_layer:
        if block is None:
            indices.append(None)
            continue
        key = msgspec.json.encode(block, order="deterministic")
        if key not in seen:
            seen[key] = len(blocks)
            blocks.append(block)
        indices.append(seen[key])
    return tuple(blocks), tuple(indices)


def of_layers(blocks: Sequence[Kind], index: Sequence[int | None]) -> list[Kind | None]:
    """Return the block of each layer, by its index."""
    return [None if i is None else blocks[i] for i in index]


def quant_scheme(model: ModelSpec, name: str) -> ModelSpec:
    """Return `model` with every linear weight of its mixers and feed-forwards in the format `name`.

    Router, shared gate, head, embedding, norms and KV cache are left as they are. `bf16`, `fp16` and
    `fp32` undo any quantisation, the head's too, and set the model's dtype.
    Raises UnknownNameError for a scheme that is not known.
    """
    form = DTYPE_ALIASES.get(name.lower(), name.lower())
    schemes = [known for known, each in FORMATS.items() if each.compute]
    if form not in schemes:
        raise unknown_name("quantisation scheme", name, schemes)
    plain = form in UNQUANTISED
    mixers = [_in_format(block, None if plain else form) for block in model.mixers]
    ffns = [_in_format(block, None if plain else form) for block in model.ffns]
    distinct_mixers, mixer_of = unique_blocks(mixers)
    distinct_ffns, ffn_of = unique_blocks(ffns)
    return msgspec.structs.replace(
        model,
        mixers=distinct_mixers,
        ffns=distinct_ffns,
        layers=tuple(
            msgspec.structs.replace(layer, mixer=_at(mixer_of, layer.mixer), ffn=_at(ffn_of, layer.ffn))
            for layer in model.layers
        ),
        dtype=form if plain else model.dtype,
        head_format=None if plain else model.head_format,
    )


def _at(indices: tuple[int | None, ...], index: int | None) -> int | None:
    return None if index is None else indices[index]


def _in_format(block: Kind, form: str | None) -> Kind:
    """Return `block` with its linear tensors in `form`; None takes every format away."""
    if isinstance(block, Beside):
        return msgspec.structs.replace(block, parts=tuple(_in_format(part, form) for part in block.parts))
    if form is None:
        return msgspec.structs.replace(block, formats={})
    kept = {tensor: f for tensor, f in block.formats.items() if tensor in NOT_LINEAR}
    return msgspec.structs.replace(
        block, formats=kept | {tensor: form for tensor in block.matrices() if tensor not in NOT_LINEAR}
    )
