"""The gate on the output of attention, from a config read through its dialect."""

from typing import Literal

from inferometer.ingest.dialect import Dialect
from inferometer.ingest.read_json import show
from inferometer.ingest.reader import ConfigReader

Gate = Literal["none", "head", "wide"]


def gate(reader: ConfigReader, dialect: Dialect) -> Gate:
    """Return what the dialect says the gate is, or the one that the config names.

    Raises InferometerError where the config names none that is understood.
    """
    rule = dialect.gate
    if isinstance(rule, str):
        return rule
    key, value = reader.find(rule.key)
    if not isinstance(value, bool | str) or value not in rule.kinds:
        raise reader.wrong(key, value, " or ".join(show(kind) for kind in rule.kinds))
    return rule.kinds[value]
