"""Which layers use the keys and values of a layer before."""

from inferometer.ingest.bounds import MAX_LAYERS
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.norms import flag
from inferometer.ingest.reader import ConfigReader


def kv_shared(reader: ConfigReader, dialect: Dialect, layers: int) -> list[bool]:
    """Return for each layer whether its keys and values are those of a layer before.

    Raises InferometerError where no layer would be left to have its own.
    """
    rule = dialect.kv_shared
    if rule is None or (rule.switch is not None and not flag(reader, rule.switch)):
        if rule is not None:
            reader.skip(rule.factor or "", rule.last or "")
        return [False] * layers
    factor = reader.integer(rule.factor, high=MAX_LAYERS) if rule.factor else 1
    last = (reader.integer_or_none(rule.last, low=0, high=MAX_LAYERS) or 0) if rule.last else 0
    if last >= layers:
        raise reader.wrong(rule.last or "", last, f"less than num_hidden_layers = {layers}")
    return [layer % factor > 0 or layer >= layers - last for layer in range(layers)]


def doubled(reader: ConfigReader, dialect: Dialect, layers: int) -> list[bool]:
    """Return for each layer whether its dense feed-forward is twice as wide as stated."""
    rule = dialect.kv_shared
    if rule is None or rule.doubled is None or not flag(reader, rule.doubled):
        return [False] * layers
    return kv_shared(reader, dialect, layers)
