"""Flags of a config, and the norms around its blocks."""

from collections.abc import Mapping
from typing import Any

from inferometer.ingest.dialect import Dialect, Flag
from inferometer.ingest.reader import ConfigReader

MAX_TAPS = 1_000


def flag(reader: ConfigReader, fact: Flag) -> bool:
    """Return a fact of the family, or the flag of the config that says it."""
    return fact if isinstance(fact, bool) else reader.flag(fact.name, default=fact.default)


def norms(reader: ConfigReader, dialect: Dialect) -> Mapping[str, Any]:
    """Return the fields of a block that say which norms are around it."""
    rule = dialect.norm
    return {
        "pre_norm": rule.pre,
        "post_norm": rule.post,
        "norm_weight": rule.weight,
        "norm_bias": flag(reader, rule.bias),
        "out_conv": reader.integer(dialect.conv, high=MAX_TAPS) if dialect.conv else 0,
    }
