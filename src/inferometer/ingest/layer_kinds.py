"""Which kind of mixer and which feed-forward each layer has, where a config tells layers apart."""

from inferometer.ingest.bounds import MAX_LAYERS
from inferometer.ingest.dialect import NO_BLOCK, Dialect, Kinds, LayerRule
from inferometer.ingest.reader import ConfigReader

__all__ = ["NO_BLOCK", "layer_count", "layer_kinds"]


def layer_count(reader: ConfigReader, dialect: Dialect) -> int:
    """Return how many layers there are: as stated, else as many as the dialect's list has words.

    Raises InferometerError where neither says it.
    """
    rule = dialect.layers
    if rule is None or reader.has("num_hidden_layers") or not reader.has(rule.key):
        return reader.integer("num_hidden_layers", high=MAX_LAYERS)
    key, words = _words(reader, rule.key)
    if not 1 <= len(words) <= MAX_LAYERS:
        raise reader.wrong(key, f"{len(words)} layers", f"1 to {MAX_LAYERS} layers")
    return len(words)


def layer_kinds(reader: ConfigReader, dialect: Dialect, layers: int) -> list[Kinds]:
    """Return the kinds of each layer, by the dialect's rule.

    Raises InferometerError where the list is too short or long, or names a kind that is not understood.
    """
    rule = dialect.layers
    if dialect.unit:
        return list(dialect.unit) * (layers // len(dialect.unit))
    if rule is None:
        return [Kinds(ffn=dialect.ffn)] * layers
    reader.skip(*rule.lists, *(name for name in (rule.period, rule.offset) if name))
    if not _stated(reader, rule.key):
        if any(_stated(reader, name) for name in rule.lists):
            return _listed(reader, rule, layers)
        if rule.period is not None:
            return _periodic(reader, rule, rule.period, layers)
        if rule.optional:
            return [Kinds(ffn=dialect.ffn)] * layers
        if not rule.key:
            raise reader.error(next(iter(rule.lists)), "is missing or null")
    return _worded(reader, rule, layers)


def _worded(reader: ConfigReader, rule: LayerRule, layers: int) -> list[Kinds]:
    """Return the kinds by a word a layer."""
    key, words = _words(reader, rule.key)
    if len(words) != layers:
        raise reader.wrong(key, f"{len(words)} layers", f"num_hidden_layers = {layers}")
    for word in words:
        if word not in rule.words:
            raise reader.wrong(key, word, ", ".join(rule.words))
    return [rule.words[word] for word in words]


def _layers(reader: ConfigReader, name: str, layers: int) -> frozenset[int]:
    """Return a list of layers, counted from zero."""
    listed = reader.integers(name, low=0, high=layers - 1)
    if listed is None:
        raise reader.error(name, "is missing or null")
    return frozenset(listed)


def _stated(reader: ConfigReader, name: str) -> bool:
    return reader.has(name) and reader.find(name)[1] is not None


def draft_layers(reader: ConfigReader, dialect: Dialect, layers: int) -> list[int]:
    """Return the layers of the model that those of one step of a drafter are like."""
    rule, pattern = dialect.layers, dialect.drafter.pattern
    assert rule is not None  # noqa: S101 (a drafter's pattern is in the words of the rule)
    kinds = layer_kinds(reader, dialect, layers)
    key, words = _words(reader, pattern or "")
    found = []
    for word in words:
        if word not in rule.words or rule.words[word] not in kinds:
            raise reader.wrong(key, word, ", ".join(rule.words))
        found.append(layers - 1 - kinds[::-1].index(rule.words[word]))
    return found


def _words(reader: ConfigReader, name: str) -> tuple[str, tuple[str, ...]]:
    """Return the field's spelling and its entries: letters of a string, or strings and numbers of a list."""
    key, value = reader.find(name)
    if isinstance(value, str):
        return key, tuple(value)
    if not isinstance(value, list) or not all(isinstance(x, str | int) for x in value):
        raise reader.wrong(key, value, "a list with a word a layer, or a string with a letter a layer")
    return key, tuple(str(word) for word in value)


def _listed(reader: ConfigReader, rule: LayerRule, layers: int) -> list[Kinds]:
    """Return the kinds where the config lists the layers of each."""
    found: dict[int, Kinds] = {}
    for name, kinds in rule.lists.items():
        for number in reader.integers(name, low=rule.first, high=layers - 1 + rule.first) or ():
            if number - rule.first in found:
                raise reader.error(name, f"lists layer {number}, which is listed already")
            found[number - rule.first] = kinds
    missing = [layer + rule.first for layer in range(layers) if layer not in found]
    if missing and rule.between is None:
        raise reader.error(next(iter(rule.lists)), f"leaves out layer {missing[0]}, which no other list has")
    return [found.get(layer) or rule.between or Kinds() for layer in range(layers)]


def _periodic(reader: ConfigReader, rule: LayerRule, period: str, layers: int) -> list[Kinds]:
    """Return the kinds where one layer of each period is of another kind: the last, or as an offset says."""
    every = reader.integer(period, high=MAX_LAYERS)
    at = every - 1 if rule.offset is None else reader.integer(rule.offset, low=0, high=every - 1)
    return [rule.at_period if layer % every == at else rule.between or Kinds() for layer in range(layers)]
