"""Which layers attend within a window or a chunk, and how long it is."""

from inferometer.ingest.bounds import MAX_TOKENS
from inferometer.ingest.dialect import Dialect, WindowRule
from inferometer.ingest.reader import ConfigReader

MAX_PERIOD = 10_000

WINDOWED = ("sliding_attention", "chunked_attention", "hybrid_sliding")
LAYER_TYPES = ("full_attention", "indexed_attention", "hybrid", *WINDOWED)


def limits(reader: ConfigReader, rule: WindowRule | None, layers: int) -> list[int | None]:
    """Return the window (or chunk) of each layer in tokens, None where attention is full.

    Raises InferometerError for a pattern that does not fit the layers.
    """
    if rule is None:
        return [None] * layers
    if rule.layer_types:
        reader.skip("layer_types")
    reader.skip(*(name for name in (rule.every_key, rule.listed, rule.numbered) if name))
    if not (rule.switch is None or _switched_on(reader, rule)):
        reader.skip(rule.key, rule.switch.name if rule.switch else "", rule.first_layer or "")
        return [None] * layers
    size = reader.integer_or_none(rule.key, high=MAX_TOKENS)
    limited = _limited(reader, rule, layers)
    if rule.last_full:
        limited[-1] = False
    return [size if each else None for each in limited]


def skip_variants(reader: ConfigReader, dialect: Dialect) -> None:
    """Mark the fields of kinds of layers that this model has none of."""
    reader.skip(*dialect.windowed.values(), *dialect.unwindowed.values())


def _limited(reader: ConfigReader, rule: WindowRule, layers: int) -> list[bool]:
    """Return for each layer whether the window is on it: by list, by period, or from a first layer on."""
    first = 0 if rule.first_layer is None else reader.integer(rule.first_layer, low=0, high=MAX_TOKENS)
    kinds = reader.texts("layer_types") if rule.layer_types else ()
    if rule.drafted:
        kinds = kinds[:layers]
    if kinds:
        _check_length(reader, "layer_types", len(kinds), layers)
        for kind in kinds:
            if kind not in LAYER_TYPES:
                raise reader.wrong("layer_types", kind, " or ".join(LAYER_TYPES))
        return [kind in WINDOWED for kind in kinds]
    if rule.listed_only:
        raise reader.error("layer_types", "is missing or empty")
    if rule.numbered and reader.has(rule.numbered):
        numbers = reader.integers(rule.numbered, low=0, high=layers - 1)
        return [layer in (numbers or ()) for layer in range(layers)]
    listed = reader.integers(rule.listed, low=0, high=1) if rule.listed else None
    if listed:
        _check_length(reader, rule.listed or "", len(listed), layers)
        return [item == 1 for item in listed]
    period = _period(reader, rule)
    return [layer >= first and period[layer % len(period)] for layer in range(layers)]


def _period(reader: ConfigReader, rule: WindowRule) -> list[bool]:
    """Return which layers of a period are windowed: all but the last, or as one letter each says."""
    every = rule.every
    if rule.every_key and reader.has(rule.every_key):
        key, value = reader.find(rule.every_key)
        if isinstance(value, str):
            if not value or len(value) > MAX_PERIOD or set(value) - {"L", "G"}:
                raise reader.wrong(key, value, "a number, or a word of L and G")
            return [letter == "L" for letter in value]
        every = reader.integer_or_none(rule.every_key, high=MAX_PERIOD) or every
    return [True] if every is None else [True] * (every - 1) + [False]


def _check_length(reader: ConfigReader, name: str, found: int, layers: int) -> None:
    if found != layers:
        raise reader.error(name, f"has {found} entries; allowed: num_hidden_layers = {layers}")


def _switched_on(reader: ConfigReader, rule: WindowRule) -> bool:
    """Return the flag; where it is absent, say so only if a window is given that it would turn on."""
    if rule.switch is None:
        return True
    given = reader.has(rule.key) and reader.find(rule.key)[1] is not None
    return (reader.has(rule.switch.name) or given) and reader.flag(rule.switch.name, default=rule.switch.default)
