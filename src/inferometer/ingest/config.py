"""From a Hugging Face `config.json` to a ModelSpec, through the dialect table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from inferometer.errors import InferometerError
from inferometer.ingest.block_lists import unfolded
from inferometer.ingest.bounds import MAX_HIDDEN, MAX_TOKENS, MAX_VOCAB
from inferometer.ingest.compressed import prompt_tails
from inferometer.ingest.dialect import FROM_CODE_ALONE, Dialect
from inferometer.ingest.dialects import ALIASES, DIALECTS
from inferometer.ingest.drafters import drafters
from inferometer.ingest.feedforwards import feed_forwards
from inferometer.ingest.known_keys import check_model_type, check_not_native, is_irrelevant
from inferometer.ingest.layer_kinds import layer_count
from inferometer.ingest.lookups import Placed, lookups
from inferometer.ingest.loops import loop_units, visits_a_layer
from inferometer.ingest.mixers import mixers
from inferometer.ingest.norms import flag
from inferometer.ingest.quant_rules import QuantRules
from inferometer.ingest.quantization import UNQUANTISED, formats_per_layer, of_layers, read_quantization, unique_blocks
from inferometer.ingest.read_json import one_line, read_json, show
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.resaved import as_released
from inferometer.ingest.residuals import residual
from inferometer.ingest.wrappers import TEXT, WRAPPERS, Beside, beside, text_config
from inferometer.specs.feedforward import FeedForward
from inferometer.specs.formats import DTYPE_ALIASES
from inferometer.specs.mixers import Beside as SideBySide
from inferometer.specs.mixers import Mixer
from inferometer.specs.model import Layer, LayerInputs, ModelSpec
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2

CONFIG_NAME = "config.json"
SIDECAR_NAME = "hf_quant_config.json"
_MAX_STRETCH = 1e6


def load_model_path(path: str | Path) -> ModelSpec:
    """Return the model of a `config.json`, or of the directory that holds one.

    An `hf_quant_config.json` beside it is read too. The name is the directory's, or the file's stem
    where the file is not called `config.json`.
    Raises InferometerError, one line, for anything that cannot be read or understood.
    """
    file = Path(path)
    try:
        inside = file.is_dir()
        if inside and not (file / CONFIG_NAME).exists():
            raise InferometerError(f"{one_line(path)} is a directory without a {CONFIG_NAME}")
        file = file / CONFIG_NAME if inside else file
        sidecar_file = file.with_name(SIDECAR_NAME) if file.name else file
        sidecar = read_json(sidecar_file) if file.exists() and sidecar_file.exists() else None
    except OSError as error:
        raise InferometerError(f"{one_line(path)} cannot be read: {error.strerror or type(error).__name__}") from None
    except ValueError as error:
        if isinstance(error, InferometerError):
            raise
        raise InferometerError(f"{one_line(path)} is not a path: {error}") from None
    name = file.absolute().parent.name if file.name == CONFIG_NAME else file.stem
    return model_from_config(read_json(file), name=name or str(path), source=str(path), sidecar=sidecar)


def model_from_config(
    config: Mapping[str, object], *, name: str, source: str, sidecar: Mapping[str, object] | None = None
) -> ModelSpec:
    """Return the model that a raw Hugging Face config describes.

    `sidecar` is the object of an `hf_quant_config.json`. Keys that are not understood are listed in
    `unknown_keys`, class defaults and other assumptions in `assumed`.
    Raises UnknownNameError for an unknown `model_type` and InferometerError, one line, for a missing,
    mistyped or absurd value; nothing else whatever the config holds.
    """
    where = one_line(name)
    for what, value in (("the config", config), ("hf_quant_config", {} if sidecar is None else sidecar)):
        if not isinstance(value, Mapping):
            raise InferometerError(f"{where}: {what} is {show(value)}; allowed: an object")
    architectures = ConfigReader(values=config, where=where).texts("architectures")
    model_type = check_model_type(config.get("model_type"), architectures, where, (*DIALECTS, *WRAPPERS))
    check_not_native(config, where)
    wrapper = WRAPPERS.get(model_type)
    inner, family = (config, model_type) if wrapper is None else text_config(config, wrapper, where)
    inside = where if wrapper is None or TEXT not in config else f"{where}: {TEXT}"
    dialect = DIALECTS[family]
    if dialect.without is not None and dialect.without[0] not in inner:
        dialect = DIALECTS[dialect.without[1]]
    reader = ConfigReader(
        values=_flat(as_released(inner, family, inside), dialect, inside),
        where=inside,
        aliases={**ALIASES, **dialect.aliases},
        defaults=dialect.defaults,
    )
    _refuse_others(reader, dialect)
    reader.skip(*dialect.inert, *dialect.quant_keys, "quantization_config")
    for sentence in (*dialect.says, *((FROM_CODE_ALONE,) if dialect.from_code_alone else ())):
        reader.remark(sentence)
    rules = read_quantization(inner, sidecar, dialect=dialect, where=where)
    model = _assemble(reader, dialect, rules, name=name, model_type=model_type, source=source)
    if dialect.nested:
        placed = tuple(_placed(key, inner, dialect) for key in model.unknown_keys)
        model = msgspec.structs.replace(model, unknown_keys=placed)
    if wrapper is None:
        return model
    around = beside(config, wrapper, hidden=model.hidden, where=where)
    return _wrapped(model, around, prefix=f"{TEXT}." if TEXT in config else "")


def _wrapped(model: ModelSpec, around: Beside, *, prefix: str) -> ModelSpec:
    """Return the language model with what its wrapper holds beside it; `prefix` is where its own fields stand."""
    own = [key if key.startswith("quantization_config.") else f"{prefix}{key}" for key in model.unknown_keys]
    return msgspec.structs.replace(
        model,
        towers=around.towers,
        unknown_keys=(*around.unknown, *own),
        assumed=(*model.assumed, *around.assumed),
    )


def _flat(config: Mapping[str, object], dialect: Dialect, where: str) -> Mapping[str, object]:
    """Return the config with all it says as fields of its own, under the names that the readers know."""
    values = _unnested(config, dialect, where)
    for name, other in dialect.instead.items():
        if values.get(other) is not None:
            values = {key: value for key, value in values.items() if key != other} | {name: values[other]}
        else:
            values = {key: value for key, value in values.items() if key != other}
    return values if dialect.blocks is None else unfolded(values, dialect.blocks, where)


def _unnested(config: Mapping[str, object], dialect: Dialect, where: str) -> Mapping[str, object]:
    """Return the config with the fields of its nested objects beside its own, which win, or under dotted names."""
    outer = ConfigReader(values=config, where=where)
    for name in dialect.dotted:
        inside = {f"{name}.{key}": value for key, value in (outer.mapping(name) or {}).items()}
        config = {key: value for key, value in config.items() if key != name} | inside
    inner = [outer.mapping(name) or {} for name in dialect.nested]
    flat = {str(key): value for nested in inner for key, value in nested.items()}
    return flat | {key: value for key, value in config.items() if key not in dialect.nested} if inner else config


def _placed(key: str, config: Mapping[str, object], dialect: Dialect) -> str:
    """Return an unknown key behind the nested object it stands in."""
    for name in dialect.nested:
        nested = config.get(name)
        if key not in config and isinstance(nested, Mapping) and key in nested:
            return f"{name}.{key}"
    return key


def _refuse_others(reader: ConfigReader, dialect: Dialect) -> None:
    """Refuse a config whose fields have values that change the model in ways not understood."""
    for name, understood in dialect.only.items():
        if reader.has(name) or name in reader.defaults:
            key, value = reader.find(name)
            if value is not None and value != understood:
                raise reader.wrong(key, value, show(understood))


def _assemble(
    reader: ConfigReader, dialect: Dialect, rules: QuantRules, *, name: str, model_type: str, source: str
) -> ModelSpec:
    hidden = reader.integer("hidden_size", high=MAX_HIDDEN)
    stated = layer_count(reader, dialect)
    each = max(len(dialect.unit), 1)
    stored_mixers: tuple[Mixer, ...]
    stored_ffns: tuple[FeedForward, ...]
    plain_mixers = mixers(reader, dialect, hidden=hidden, layers=stated * each)
    plain_ffns = feed_forwards(reader, dialect, hidden=hidden, layers=stated * each)
    stored_mixers, mixer_of = formats_per_layer(plain_mixers, rules, dialect, reader.where)
    stored_ffns, ffn_of = formats_per_layer(plain_ffns, rules, dialect, reader.where)
    tied = reader.flag("tie_word_embeddings", default=dialect.tied)
    dtype = _dtype(reader)
    vocab, more = _rows(reader, dialect)
    positions = reader.integer(dialect.positions, high=MAX_TOKENS) if dialect.positions else 0
    norm, own = dialect.norm, (of_layers(stored_mixers, mixer_of), of_layers(stored_ffns, ffn_of))
    placed = lookups(reader, dialect, hidden=hidden, layers=stated)
    layers = _layers(reader, dialect, mixer_of, ffn_of)
    around = residual(reader, dialect)
    return ModelSpec(
        name=name,
        architecture=model_type,
        hidden=hidden,
        vocab=vocab,
        max_context=_max_context(reader, dialect),
        mixers=stored_mixers,
        **_arranged(stored_ffns, layers, placed, each=each),
        residual=around,
        tied=tied,
        dtype=dtype,
        head_format=None if tied else rules.head_format(),
        kv_format=rules.kv_format or dialect.kv_format or dtype,
        positions=positions,
        embedding_norm=norm.embedding,
        norm_weight=norm.weight,
        norm_bias=flag(reader, norm.bias),
        head_bias=flag(reader, dialect.head_bias),
        drafters=drafters(reader, dialect, *own, hidden=hidden, vocab=vocab, around=around),
        state_format=_state_format(reader, stored_mixers),
        more_rows=more,
        layer_inputs=_layer_inputs(reader, dialect, rules),
        source=source,
        unknown_keys=(
            *(key for key in reader.unknown() if not is_irrelevant(key)),
            *(f"quantization_config.{key}" for key in rules.unknown),
        ),
        assumed=(*reader.said("config"), *rules.assumed),
    )


def _layers(
    reader: ConfigReader, dialect: Dialect, mixer_of: Sequence[int | None], ffn_of: Sequence[int | None]
) -> list[Layer]:
    """Return the layers, with how often each is visited and what of a prompt goes through it."""
    visits = visits_a_layer(reader, dialect.token, len(mixer_of))
    tails = prompt_tails(reader, dialect.compress, len(mixer_of))
    columns = zip(mixer_of, ffn_of, visits, tails, strict=True)
    return [Layer(mixer=mixer, ffn=ffn, visits=n, prompt_tail=tail) for mixer, ffn, n, tail in columns]


def _layer_inputs(reader: ConfigReader, dialect: Dialect, rules: QuantRules) -> LayerInputs | None:
    """Return what a token brings to each layer, None where it brings nothing."""
    rule = dialect.layer_inputs
    if rule is None:
        return None
    width = reader.integer_or_none(rule.width, low=0, high=MAX_HIDDEN)
    if not width:
        reader.skip(rule.rows)
        return None
    if rules.rules or rules.default:
        reader.remark("what a token brings to each layer is taken to be unquantised")
    return LayerInputs(width=width, rows=reader.integer(rule.rows, high=MAX_VOCAB))


def _arranged(ffns: tuple[FeedForward, ...], layers: list[Layer], placed: list[Placed], *, each: int) -> dict[str, Any]:
    """Return the feed-forwards and layers with memory tables among them, and which layers go together."""
    tables, table_of = unique_blocks([table.block for table in placed])
    units = [each] * (len(layers) // each)
    for table, index in reversed(list(zip(placed, table_of, strict=True))):
        at = table.layer * each
        layers.insert(at, Layer(ffn=len(ffns) + (index or 0), prompt_tail=layers[at - 1].prompt_tail if at else None))
        units[table.layer] += 1
    return {
        "ffns": (*ffns, *tables),
        "layers": tuple(layers),
        "units": tuple(units) if placed or each > 1 else _loop_units(layers),
    }


def _loop_units(layers: list[Layer]) -> tuple[int, ...]:
    visits = [layer.visits for layer in layers]
    return loop_units(visits) if max(visits) > 1 else ()


def _rows(reader: ConfigReader, dialect: Dialect) -> tuple[int, int]:
    """Return (rows of the head, rows of the embedding beyond them): as the class has it, or those of padding."""
    rows = reader.integer("vocab_size", high=MAX_VOCAB)
    if isinstance(dialect.more_rows, int):
        return rows, dialect.more_rows
    head = reader.integer_or_none(dialect.more_rows, high=rows) or rows
    return head, rows - head


def _dtype(reader: ConfigReader) -> str:
    """Return the format of every tensor that no rule covers; bf16 is assumed where none is stated."""
    text = reader.text("torch_dtype")
    if text is None:
        reader.remarks.append("torch_dtype is absent or null: bf16")
        return "bf16"
    form = text.removeprefix("torch.").lower()
    form = DTYPE_ALIASES.get(form, form)
    if form not in UNQUANTISED:
        raise reader.wrong("torch_dtype", text, "bfloat16, float16 or float32")
    return form


def _state_format(reader: ConfigReader, held: tuple[Mixer, ...]) -> str:
    """Return the format of recurrent states: as stated, else fp32; what convolutions keep has the model's."""
    parts = [part for block in held for part in (block.parts if isinstance(block, SideBySide) else (block,))]
    recurrent = any(isinstance(part, LinearAttention | Mamba1 | Mamba2) for part in parts)
    text = reader.text("state_dtype")
    if text is None:
        if recurrent:
            reader.remark("The format of recurrent states is not stated: fp32")
        return "fp32"
    form = DTYPE_ALIASES.get(text.removeprefix("torch.").lower(), text.lower())
    if form not in UNQUANTISED:
        raise reader.wrong(reader.find("state_dtype")[0], text, "float32, bfloat16 or float16")
    return form


def _max_context(reader: ConfigReader, dialect: Dialect) -> int:
    """Return the longest context the config states, in tokens.

    YaRN stretches `original_max_position_embeddings` by `factor` (arXiv:2309.00071); most configs
    already state the product as `max_position_embeddings`, some state the unstretched length.
    """
    if dialect.unbounded and not reader.has("max_position_embeddings"):
        reader.remark("No longest context is stated, and a recurrent state needs none")
        return MAX_TOKENS
    stated = reader.integer("max_position_embeddings", high=MAX_TOKENS)
    scaling = reader.mapping("rope_scaling")
    if scaling is None or "yarn" not in (scaling.get("rope_type"), scaling.get("type")):
        return stated
    inner = ConfigReader(values=scaling, where=f"{reader.where}: rope_scaling")
    factor = inner.number("factor", low=1e-6, high=_MAX_STRETCH)
    original = inner.integer_or_none("original_max_position_embeddings", high=MAX_TOKENS)
    if factor is None or original is None or round(original * factor) <= stated:
        return stated
    stretched = round(original * factor)
    reader.remarks.append(f"max_position_embeddings is {stated}, stretched by YaRN to {stretched} tokens")
    return min(stretched, MAX_TOKENS)
