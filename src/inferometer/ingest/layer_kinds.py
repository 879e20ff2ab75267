"""Which kind of mixer and which feed-forward each layer has, where a config tells layers apart."""

from inferometer.ingest.dialect import NO_BLOCK, Dialect, Kinds
from inferometer.ingest.reader import ConfigReader

__all__ = ["NO_BLOCK", "layer_kinds"]


def layer_kinds(reader: ConfigReader, dialect: Dialect, layers: int) -> list[Kinds]:
    """Return the kinds of each layer, by the dialect's rule.

    Raises InferometerError where the list is too short or long, or names a kind that is not understood.
    """
    rule = dialect.layers
    if rule is None:
        return [Kinds()] * layers
    if not reader.has(rule.key) and rule.period is not None:
        return _periodic(reader, dialect, layers)
    key, words = _words(reader, rule.key)
    if len(words) != layers:
        raise reader.wrong(key, f"{len(words)} layers", f"num_hidden_layers = {layers}")
    for word in words:
        if word not in rule.words:
            raise reader.wrong(key, word, ", ".join(rule.words))
    return [rule.words[word] for word in words]


def _words(reader: ConfigReader, name: str) -> tuple[str, tuple[str, ...]]:
    """Return the field's spelling and its entries: letters of a string, or strings and numbers of a list."""
    key, value = reader.find(name)
    if isinstance(value, str):
        return key, tuple(value)
    if not isinstance(value, list) or not all(isinstance(x, str | int) for x in value):
        raise reader.wrong(key, value, "a list with a word a layer, or a string with a letter a layer")
    return key, tuple(str(word) for word in value)


def _periodic(reader: ConfigReader, dialect: Dialect, layers: int) -> list[Kinds]:
    """Return the kinds where each n-th layer, counted from one, is of another kind."""
    rule = dialect.layers
    assert rule is not None  # noqa: S101 (the caller has checked it)
    assert rule.period is not None  # noqa: S101 (the caller has checked it)
    every = reader.integer(rule.period, high=layers)
    return [rule.at_period if (layer + 1) % every == 0 else rule.between for layer in range(layers)]
