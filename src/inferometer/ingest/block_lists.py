"""Configs that list the blocks of each layer, an object a layer, as one word and two sizes a layer.

Letters: H hidden, N query heads.
"""

from collections.abc import Mapping

from inferometer.ingest.bounds import MAX_HEADS, MAX_HIDDEN, MAX_LAYERS, MAX_WIDTH
from inferometer.ingest.dialect import NO_BLOCK, BlockRule
from inferometer.ingest.reader import ConfigReader

_MAX_MULTIPLE = 1e6


def unfolded(config: Mapping[str, object], rule: BlockRule, where: str) -> Mapping[str, object]:
    """Return the config with words, kv heads and widths a layer in place of the list of blocks.

    Fields of a block that are not understood stand in it by their place, so that they are listed.
    Raises InferometerError for a list that is missing or too long, or a block whose sizes are missing or cannot be.
    """
    outer = ConfigReader(values=config, where=where)
    key, listed = outer.find(rule.key)
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_LAYERS:
        raise outer.wrong(key, listed, "a list with an object a layer")
    heads, hidden = outer.integer("num_attention_heads", high=MAX_HEADS), outer.integer("hidden_size", high=MAX_HIDDEN)
    words: list[str] = []
    kv_heads: list[int] = []
    widths: list[int] = []
    unknown: dict[str, object] = {}
    for index, entry in enumerate(listed):
        here = f"{key}[{index}]"
        if not isinstance(entry, Mapping):
            raise outer.wrong(here, entry, "an object")
        block = ConfigReader(values=entry, where=f"{where}: {here}")
        mixer, ffn = (
            ConfigReader(values=block.mapping(name) or {}, where=f"{where}: {here}.{name}")
            for name in (rule.mixer, rule.ffn)
        )
        kinds = (_kind(mixer, rule, "attention"), _kind(ffn, rule, "dense"))
        words.append("/".join(kinds))
        kv_heads.append(_kv_heads(mixer, rule, heads) if kinds[0] == "attention" else heads)
        widths.append(_width(ffn, rule, hidden) if kinds[1] == "dense" else rule.round_to)
        unknown |= {f"{rule.key}.{name}": None for name in block.unknown()}
        for name, inner in ((rule.mixer, mixer), (rule.ffn, ffn)):
            inner.skip(rule.group, rule.multiple)
            unknown |= {f"{rule.key}.{name}.{left}": None for left in inner.unknown()}
    sizes = {rule.key: words, "num_key_value_heads": kv_heads, "intermediate_size": widths}
    return {**config, **sizes, **unknown}


def _kind(inner: ConfigReader, rule: BlockRule, plain: str) -> str:
    """Return what a block is: nothing, one matrix, or `plain`."""
    for name in rule.never:
        if inner.has(name) and inner.find(name)[1] not in (None, False):
            raise inner.wrong(name, inner.find(name)[1], "null")
    inner.skip(*rule.inert)
    flags = [inner.has(name) and inner.flag(name, default=False) for name in (rule.none, rule.matrix)]
    return NO_BLOCK if flags[0] else "matrix" if flags[1] else plain


def _kv_heads(inner: ConfigReader, rule: BlockRule, heads: int) -> int:
    group = inner.integer(rule.group, high=MAX_HEADS)
    if heads % group:
        raise inner.wrong(rule.group, group, f"a divisor of num_attention_heads = {heads}")
    return heads // group


def _width(inner: ConfigReader, rule: BlockRule, hidden: int) -> int:
    """Return the width of a dense block: 2/3 m H without its fraction, up to a multiple.

    Floating point as the modelling code has it: the config's m is a double.
    """
    multiple = inner.number(rule.multiple, low=1e-6, high=_MAX_MULTIPLE)
    if multiple is None:
        raise inner.error(rule.multiple, "is missing or null")
    width = -(-int(2 * multiple * hidden / 3) // rule.round_to) * rule.round_to
    if width > MAX_WIDTH:
        raise inner.wrong(rule.multiple, multiple, f"a width of at most {MAX_WIDTH}")
    return width
