"""From a checkpoint's quantisation to the formats of our tensors."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from inferometer.errors import InferometerError
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.modules import MODULES, Modules
from inferometer.ingest.quant_methods import MIXED, parse
from inferometer.ingest.quant_rules import QuantRules
from inferometer.ingest.read_json import show
from inferometer.specs.block import Block
from inferometer.specs.feedforward import FeedForward, Moe
from inferometer.specs.mixers import Beside, Mixer

Kind = TypeVar("Kind", bound=Mixer | FeedForward)

_COMPRESSORS = ("compress_kv", "compress_gate", "index_kv", "index_gate")
NOT_LINEAR = frozenset({"router", "shared_gate", "table", "index_weights", "index_pool", *_COMPRESSORS})
"""Tensors that a blanket scheme leaves in the model's dtype: what decides where a token goes or what it reads."""

UNQUANTISED = ("bf16", "fp16", "fp32")

MAX_WORK = 50_000_000
"""Most look-ups times steps; real checkpoints stay far below a tenth of it."""


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
