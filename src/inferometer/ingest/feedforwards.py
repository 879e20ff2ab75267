"""The feed-forward of every layer, from a config read through its dialect. Letters: H hidden, F width."""

from collections.abc import Mapping
from typing import Any

from inferometer.ingest.bounds import MAX_WIDTH
from inferometer.ingest.dialect import Dialect, Key, NormRule, WidthRule
from inferometer.ingest.experts import moe_blocks, moe_layers, per_layer
from inferometer.ingest.kv_sharing import doubled
from inferometer.ingest.layer_kinds import NO_BLOCK, layer_kinds
from inferometer.ingest.norms import flag, norms
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.feedforward import FeedForward, Ffn
from inferometer.specs.matrix import Matrix


def feed_forwards(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> list[FeedForward | None]:
    """Return the feed-forward of each layer, unquantised; None where it has none.

    Raises InferometerError for shapes that are missing or out of range, or routing that cannot be.
    """
    around = {**norms(reader, dialect), "out_scale": dialect.out_scale}
    kinds = layer_kinds(reader, dialect, layers)
    follows = [kind.ffn != NO_BLOCK for kind in kinds]
    by_rule = moe_layers(reader, dialect.moe, layers)
    sparse = [kind.ffn == "moe" if kind.ffn else own for kind, own in zip(kinds, by_rule, strict=True)]
    experts: list[FeedForward | None] = [None] * layers
    if dialect.moe is not None and any(sparse):
        experts = list(moe_blocks(reader, dialect.moe, around, sparse))
    dense: list[FeedForward | None] = [None] * layers
    if any(held and not own for held, own in zip(follows, sparse, strict=True)):
        dense = list(_dense(reader, dialect, around, hidden=hidden, layers=layers))
    else:
        of_dense = (dialect.ffn_bias, dialect.kv_shared and dialect.kv_shared.doubled)
        reader.skip(dialect.dense_width, *(fact.name for fact in of_dense if isinstance(fact, Key)))
    made = [block if block is not None else dense[layer] for layer, block in enumerate(experts)]
    matrix = Matrix(width=hidden, **around)
    made = [matrix if kind.ffn == "matrix" else block for kind, block in zip(kinds, made, strict=True)]
    return [block if held else None for block, held in zip(made, follows, strict=True)]


def _dense(
    reader: ConfigReader, dialect: Dialect, around: Mapping[str, Any], *, hidden: int, layers: int
) -> list[FeedForward]:
    """Return a dense feed-forward for every layer."""
    rule = dialect.norm
    reader.skip(rule.count or "")
    parallel = flag(reader, rule.parallel)
    fields: dict[str, Any] = dict(around) | {
        "bias": flag(reader, dialect.ffn_bias),
        "gated": dialect.gated,
        "parallel": parallel,
        "pre_norm": rule.pre and (not parallel or _second_norm(reader, rule)),
        "sub_norm": rule.sub,
    }
    twice = doubled(reader, dialect, layers)
    stated = _dense_widths(reader, dialect, hidden=hidden, layers=layers)
    widths = [width * (2 if double else 1) for width, double in zip(stated, twice, strict=True)]
    made = {width: Ffn(width=width, **fields) for width in set(widths)}
    return [made[width] for width in widths]


def _second_norm(reader: ConfigReader, rule: NormRule) -> bool:
    """Return whether a feed-forward beside attention has its own input norm: the stated count of norms is 2."""
    stated = flag(reader, rule.second)
    count = reader.integer_or_none(rule.count, high=2) if rule.count else None
    return stated if count is None else count == 2  # noqa: PLR2004  # one of attention, one of the feed-forward


def _dense_widths(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> tuple[int, ...]:
    name, factor = dialect.dense_width, dialect.width_factor
    if factor is not None and (not reader.has(name) or reader.find(name)[1] is None):
        return (factor * hidden,) * layers
    stated = per_layer(reader, name, layers, high=MAX_WIDTH)
    for width in stated:
        if width % dialect.width_divisor:
            raise reader.wrong(name, width, f"a multiple of {dialect.width_divisor}")
    return tuple(_changed(reader, dialect.width, width // dialect.width_divisor) for width in stated)


def _changed(reader: ConfigReader, rule: WidthRule | None, width: int) -> int:
    """Return the width that the class makes of a stated one: 2/3 of it, times a factor, rounded up to a multiple."""
    if rule is None:
        return width
    if not flag(reader, rule.switch):
        reader.skip(rule.factor, rule.multiple_of)
        return width
    factor = reader.number(rule.factor, low=1e-3, high=1e3)
    if factor is None:
        return 2 * width // 3
    whole = reader.integer(rule.multiple_of, high=MAX_WIDTH)
    return -(-int(factor * (2 * width // 3)) // whole) * whole
