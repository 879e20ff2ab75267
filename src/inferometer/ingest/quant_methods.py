"""One parser a quantisation method: its JSON in, `QuantRules` out."""

import dataclasses
from collections.abc import Callable, Mapping

from inferometer.errors import InferometerError, unknown_name
from inferometer.ingest.patterns import PatternSet
from inferometer.ingest.quant_rules import QuantRules, Rule
from inferometer.ingest.read_json import show
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.formats import FORMATS

_SAYS_NOTHING = (
    *("quant_method", "quant_algo", "producer", "version", "activation_scheme", "fmt", "scale_fmt", "dequantize"),
    *("backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse", "meta", "checkpoint_format"),
    *("desc_act", "sym", "damp_percent", "damp_auto_increment", "static_groups", "true_sequential", "pack_dtype"),
    *("model_name_or_path", "model_file_base_name", "model_seqlen", "use_exllama", "use_cuda_fp16", "tokenizer"),
    *("dataset", "batch_size", "block_name_to_quantize", "max_input_length", "cache_block_outputs"),
    *("module_name_preceding_first_block", "exllama_config", "disable_exllama", "quantizer", "packing_format"),
    *("quantization_status", "format", "global_compression_ratio", "registry_requires_subclass", "transform_config"),
    *("activation_scale_ub", "weight_per_tensor", "act_per_tensor", "is_checkpoint_fp8_serialized", "group_size"),
)
"""Keys on activations, calibration, packing order and tooling: none changes what is stored."""

_AWQ_ALIASES = {"bits": ("w_bit",), "group_size": ("q_group_size",), "modules_to_not_convert": ("ignored_layers",)}

_MODELOPT_FORMATS = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
    "FP8_PB_WO": "fp8-block",
    "FP8_PB_REAL": "fp8-block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "W8A16": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
}
"""ModelOpt `quant_algo` -> format; the int4 algorithms also need `group_size`."""
_MODELOPT_INT4 = ("W4A16", "W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ")
MIXED = "MIXED_PRECISION"
_KV_FORMATS = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}


def int4_format(reader: ConfigReader, key: str, group: object, *, zero_points: bool) -> str:
    """Return the int4 format of a group size, or refuse one that has none."""
    name = f"int4-g{group}{'-zp' if zero_points else ''}"
    if isinstance(group, bool) or not isinstance(group, int) or name not in FORMATS:
        sizes = sorted({int(n.split("-")[1][1:]) for n in FORMATS if n.startswith("int4-g")})
        raise reader.wrong(key, group, f"group sizes {', '.join(map(str, sizes))} for 4-bit integers")
    return name


def fp8(reader: ConfigReader) -> QuantRules:
    """Return the rules of `quant_method: fp8` (transformers fine-grained, AutoFP8).

    The head stays: engines quantise linear layers and experts only, and it is neither.
    """
    assumed: tuple[str, ...] = ()
    if not reader.has("weight_block_size"):
        assumed = ("quantization_config has no weight_block_size: one fp8 scale a tensor.",)
    block = reader.integers("weight_block_size", low=1, high=1 << 20)
    small = block == (32, 32) and reader.text("scale_fmt") == "ue8m0"
    if block not in (None, (128, 128)) and not small:
        raise reader.wrong("weight_block_size", list(block or ()), "[128, 128] or null, or [32, 32] of ue8m0 scales")
    left = reader.texts("modules_to_not_convert") + reader.texts("ignored_layers")
    return QuantRules(
        rules=(Rule(PatternSet(left, reader.where), None), *_expert_rule(reader)),
        default="fp8" if block is None else "fp8-block32-ue8m0" if small else "fp8-block",
        kv_format=_kv_scheme(reader),
        assumed=assumed,
    )


def _expert_rule(reader: ConfigReader) -> tuple[Rule, ...]:
    """Return the rule of routed experts in four bits beside fp8 (DeepSeek-V4: 32 elements share a byte of scale)."""
    form = reader.text("expert_dtype")
    if form not in (None, "fp4", "fp8"):
        raise reader.wrong("expert_dtype", form, "fp4 or fp8")
    return (Rule(PatternSet(("experts",), reader.where), "mxfp4"),) if form == "fp4" else ()


def fbgemm_fp8(reader: ConfigReader) -> QuantRules:
    """Return the rules of `quant_method: fbgemm_fp8`: one scale an output channel."""
    left = reader.texts("modules_to_not_convert")
    said = "fbgemm_fp8 scales are counted at 16 bits an output channel; the checkpoint holds 32."
    return QuantRules(rules=(Rule(PatternSet(left, reader.where), None),), default="fp8-channel", assumed=(said,))


def mxfp4(reader: ConfigReader) -> QuantRules:
    """Return the rules of `quant_method: mxfp4` (gpt-oss)."""
    left = reader.texts("modules_to_not_convert")
    return QuantRules(rules=(Rule(PatternSet(left, reader.where), None),), default="mxfp4")


def awq(reader: ConfigReader) -> QuantRules:
    """Return the rules of `quant_method: awq`: int4, zero points unless it says otherwise."""
    reader.aliases = _AWQ_ALIASES
    _four_bits(reader)
    key, group = reader.find("group_size")
    default = int4_format(reader, key, group, zero_points=reader.flag("zero_point", default=True))
    left = reader.texts("modules_to_not_convert")
    return QuantRules(rules=(Rule(PatternSet(left, reader.where), None),), default=default)


def gptq(reader: ConfigReader) -> QuantRules:
    """Return the rules of `quant_method: gptq`: int4, zero points stored even when symmetric.

    `dynamic` is GPTQModel's: a regex behind `-:` leaves modules alone; others would change bits.
    `modules_in_block_to_quantize` quantises only what it lists.
    """
    _four_bits(reader)
    key, group = reader.find("group_size")
    form = int4_format(reader, key, group, zero_points=True)
    rules = [Rule(PatternSet(reader.texts("modules_to_not_convert"), reader.where), None)]
    negative = []
    for pattern in reader.mapping("dynamic") or {}:
        if not str(pattern).startswith("-:"):
            raise reader.error("dynamic", f"has the rule {show(pattern)}; allowed: rules behind '-:' only")
        negative.append("re:" + str(pattern)[2:])
    rules.append(Rule(PatternSet(negative, reader.where), None))
    only = _listed_modules(reader)
    if only:
        rules.append(Rule(PatternSet(only, reader.where), form))
    head = reader.has("lm_head") and reader.flag("lm_head", default=False)
    return QuantRules(rules=tuple(rules), default=None if only else form, quantises_head=head)


def compressed_tensors(reader: ConfigReader) -> QuantRules:
    """Return the rules of `quant_method: compressed-tensors`: `ignore` first, then each group's targets."""
    rules = [Rule(PatternSet(reader.texts("ignore"), reader.where), None)]
    default: str | None = None
    groups = reader.mapping("config_groups")
    if not groups:
        raise reader.error("config_groups", "is missing or empty")
    for name, group in groups.items():
        inner = _nested(reader, f"config_groups.{show(name)}", group)
        form = _group_format(inner)
        targets = inner.texts("targets") or ("Linear",)
        if "Linear" in targets:
            default = default or form
        named = [target for target in targets if target != "Linear"]
        for target in named:
            if target[:1].isupper():
                raise inner.wrong("targets", target, "Linear, module names and re: patterns")
        rules.append(Rule(PatternSet(named, inner.where), form))
    sparse = reader.mapping("sparsity_config")
    said = ("sparsity_config is ignored: weights are counted as dense.",) if sparse else ()
    return QuantRules(
        rules=tuple(rules), default=default, quantises_head=True, kv_format=_kv_scheme(reader), assumed=said
    )


def modelopt(reader: ConfigReader) -> QuantRules:
    """Return the rules of NVIDIA ModelOpt: in `quantization_config`, or the sidecar's `quantization`.

    MIXED_PRECISION gives each module its own algorithm in `quantized_layers`, or in `config_groups`.
    """
    reader.aliases = {"exclude_modules": ("ignore",), "kv_cache_quant_algo": ("kv_cache_scheme",)}
    if not reader.has("quant_algo"):
        raise reader.error("quant_algo", "is missing")
    left = reader.texts("exclude_modules")
    algo = (reader.text("quant_algo") or "").upper()
    if not algo:  # the KV cache alone is quantised
        return QuantRules(kv_format=_kv_scheme(reader))
    rules = [Rule(PatternSet(left, reader.where), None)]
    layers = reader.mapping("quantized_layers")
    if algo == MIXED and layers is None:
        return dataclasses.replace(compressed_tensors(_as_groups(reader, left)), kv_format=_kv_scheme(reader))
    reader.skip("config_groups", "moe_quant_algo")
    rules += _mixed_rules(reader, layers or {})
    assumed: tuple[str, ...] = ()
    if not reader.has("exclude_modules") and algo != MIXED:
        assumed = ("no exclude_modules in the ModelOpt config: its default, head and routers left alone.",)
    return QuantRules(
        rules=tuple(rules),
        default=None if algo == MIXED else _modelopt_format(reader, algo),
        quantises_head=not assumed,
        kv_format=_kv_scheme(reader),
        assumed=assumed,
    )


METHODS: dict[str, Callable[[ConfigReader], QuantRules]] = {
    "fp8": fp8,
    "fbgemm_fp8": fbgemm_fp8,
    "mxfp4": mxfp4,
    "awq": awq,
    "gptq": gptq,
    "compressed-tensors": compressed_tensors,
    "modelopt": modelopt,
}
_SAME_METHOD = {
    "compressed_tensors": "compressed-tensors",
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "modelopt_fp4": "modelopt",
    "modelopt_mixed": "modelopt",
    "nvfp4": "modelopt",
}


def parse(values: Mapping[str, object], where: str) -> QuantRules:
    """Return the rules of one quantisation object, its unread keys in `unknown`.

    Raises UnknownNameError for a method that is not understood, InferometerError for bad values.
    """
    reader = ConfigReader(values=values, where=where)
    reader.skip(*_SAYS_NOTHING)
    method = _method(reader)
    rules = METHODS[method](reader)
    return dataclasses.replace(rules, unknown=reader.unknown(), assumed=(*rules.assumed, *reader.said("quantisation")))


def _method(reader: ConfigReader) -> str:
    """Return the method: `quant_method`, or what the keys give away."""
    if reader.has("quant_algo"):
        return "modelopt"
    method = reader.text("quant_method")
    if method is None and reader.has("config_groups"):
        return "compressed-tensors"
    if method is None:
        raise reader.error("quant_method", f"is missing; allowed: {', '.join(sorted(METHODS))}")
    method = _SAME_METHOD.get(method.lower(), method.lower())
    if method not in METHODS:
        raise unknown_name("quantization method", method[:80], METHODS)
    return method


def _four_bits(reader: ConfigReader) -> None:
    bits = reader.integer("bits", low=1, high=64)
    if bits != 4:  # noqa: PLR2004  # the formats of these methods are int4 ones
        raise reader.wrong("bits", bits, "4")


def _listed_modules(reader: ConfigReader) -> tuple[str, ...]:
    """Return `modules_in_block_to_quantize`, a list of lists of module suffixes, flat."""
    key = "modules_in_block_to_quantize"
    if not reader.has(key) or reader.find(key)[1] is None:
        return ()
    value = reader.find(key)[1]
    flat: list[str] = []
    for group in value if isinstance(value, list) else [value]:
        for item in group if isinstance(group, list) else [group]:
            if not isinstance(item, str):
                raise reader.wrong(key, item, "lists of module names")
            flat.append(item)
    return tuple(flat)


def _nested(reader: ConfigReader, key: str, value: object) -> ConfigReader:
    if not isinstance(value, Mapping):
        raise reader.wrong(key, value, "an object")
    return ConfigReader(
        values=value,
        where=f"{reader.where}: {key}",
        taken_from_class=reader.taken_from_class,
        remarks=reader.remarks,
    )


def _group_format(group: ConfigReader) -> str:
    """Return the format of one config group from its `weights` scheme."""
    weights = _nested(group, "weights", group.find("weights")[1])
    bits, kind = weights.integer("num_bits", high=64), weights.text("type")
    strategy = weights.text("strategy")
    size = weights.integer_or_none("group_size", low=-1, high=1 << 20)
    if kind == "float" and bits == 8:  # noqa: PLR2004 (the width in the scheme's name)
        return _float8_format(weights, strategy)
    if kind == "float" and bits == 4:  # noqa: PLR2004 (same)
        return _float4_format(weights, size)
    if kind == "int" and bits == 4:  # noqa: PLR2004 (same)
        symmetric = weights.flag("symmetric", default=True)
        return int4_format(weights, "group_size", size, zero_points=not symmetric)
    if kind == "int" and bits == 8 and strategy in (None, "channel", "tensor"):  # noqa: PLR2004 (same)
        return "int8"
    raise weights.error(
        "num_bits",
        f"is {bits} with type {show(kind)} and strategy {show(strategy)}; "
        "allowed: float 8, float 4, int 4 in groups, int 8 a channel",
    )


def _float8_format(weights: ConfigReader, strategy: str | None) -> str:
    if strategy == "block":
        block = weights.integers("block_structure", low=1, high=1 << 20)
        if block != (128, 128):
            raise weights.wrong("block_structure", None if block is None else list(block), "[128, 128]")
        return "fp8-block"
    if strategy not in (None, "tensor", "channel"):
        raise weights.wrong("strategy", strategy, "tensor, channel or block for 8-bit floats")
    return "fp8-channel" if strategy == "channel" else "fp8"


def _float4_format(weights: ConfigReader, size: int | None) -> str:
    formats = {16: "nvfp4", 32: "mxfp4"}
    if size not in formats:
        raise weights.wrong("group_size", size, "16 (nvfp4) or 32 (mxfp4) for 4-bit floats")
    return formats[size]


def _modelopt_format(reader: ConfigReader, algo: str) -> str:
    if algo in _MODELOPT_INT4:
        reader.defaults = {"group_size": 128}
        key, group = reader.find("group_size")
        return int4_format(reader, key, group, zero_points=False)
    if algo not in _MODELOPT_FORMATS:
        raise unknown_name("quant_algo", algo[:80], (*_MODELOPT_FORMATS, *_MODELOPT_INT4, MIXED))
    form = _MODELOPT_FORMATS[algo]
    group = reader.integer_or_none("group_size", low=-1, high=1 << 20) if form == "nvfp4" else None
    if group not in (None, FORMATS[form].block_cols):
        raise reader.wrong("group_size", group, f"{FORMATS[form].block_cols} for {algo}")
    return form


def _mixed_rules(reader: ConfigReader, layers: Mapping[str, object]) -> list[Rule]:
    """Return one rule a format from `quantized_layers`: module -> {quant_algo, group_size}."""
    by_format: dict[str, list[str]] = {}
    for module, entry in layers.items():
        inner = _nested(reader, f"quantized_layers.{show(module)}", entry)
        algo = (inner.text("quant_algo") or "").upper()
        by_format.setdefault(_modelopt_format(inner, algo), []).append(str(module))
    return [Rule(PatternSet(modules, reader.where), form) for form, modules in by_format.items()]


def _as_groups(reader: ConfigReader, left: tuple[str, ...]) -> ConfigReader:
    """Return a reader of the same groups in compressed-tensors' spelling."""
    groups = reader.mapping("config_groups")
    if not groups:
        raise reader.error("quantized_layers", f"is missing, and quant_algo is {MIXED}")
    return ConfigReader(values={"config_groups": groups, "ignore": list(left)}, where=reader.where)


def _kv_scheme(reader: ConfigReader) -> str | None:
    """Return the KV format: an algorithm's name, or compressed-tensors' {num_bits, type}."""
    name = "kv_cache_quant_algo" if reader.has("kv_cache_quant_algo") else "kv_cache_scheme"
    key, value = reader.find(name) if reader.has(name) else (name, None)
    if value is None:
        return None
    if isinstance(value, str):
        if value.upper() not in _KV_FORMATS:
            raise unknown_name("KV cache format", value[:80], _KV_FORMATS)
        return _KV_FORMATS[value.upper()]
    scheme = _nested(reader, key, value)
    bits, kind = scheme.integer("num_bits", high=64), scheme.text("type")
    try:
        return {(8, "float"): "fp8", (4, "float"): "nvfp4", (8, "int"): "int8"}[(bits, str(kind))]
    except KeyError:
        raise InferometerError(
            f"{scheme.where}: num_bits is {bits} with type {show(kind)}; allowed: float 8, float 4, int 8"
        ) from None
