"""Layers that a pass visits again, and what attention makes of its input beside q, k and v, from a config."""

from typing import Any

from inferometer.ingest.bounds import MAX_HIDDEN, MAX_LAYERS
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.small_rules import TokenRule

MAX_VISITS = 1_000


def visits_a_layer(reader: ConfigReader, rule: TokenRule, layers: int) -> list[int]:
    """Return how often a pass goes through each layer.

    Raises InferometerError for a range that the layers do not have.
    """
    if rule.loop is None:
        return [1] * layers
    first, after, passes = rule.loop
    start = reader.integer(first, low=0, high=MAX_LAYERS)
    end = reader.integer(after, high=MAX_LAYERS)
    if not start < end <= layers:
        raise reader.wrong(after, end, f"a layer after {first} = {start}, at most num_hidden_layers = {layers}")
    times = reader.integer(passes, high=MAX_VISITS)
    return [times if start <= layer < end else 1 for layer in range(layers)]


def loop_units(visits: list[int]) -> tuple[int, ...]:
    """Return the layers that a stage takes together: those that are visited again, each other alone.

    >>> loop_units([1, 3, 3, 1])
    (1, 2, 1)
    """
    units: list[int] = []
    for layer, times in enumerate(visits):
        if times > 1 and layer and visits[layer - 1] > 1:
            units[-1] += 1
        else:
            units.append(1)
    return tuple(units)


def of_token(reader: ConfigReader, rule: TokenRule, *, windowed: bool, looped: bool) -> dict[str, Any]:
    """Return the fields of attention that say what it makes of its input beside q, k and v."""
    rank = reader.integer(rule.message_rank, high=MAX_HIDDEN) if rule.message_rank else 0
    return {
        "token_sinks": rule.sinks,
        "token_taps": rule.taps and not windowed,
        "inputs": 1 if windowed else rule.inputs,
        "relative_norm": rule.relative_norm,
        "message_rank": rank if looped else 0,
    }
