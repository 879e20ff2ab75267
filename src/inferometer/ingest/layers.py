"""The mixer and the feed-forward of every layer, from a config read through its dialect."""

from collections.abc import Mapping
from typing import Any

import msgspec

from inferometer.ingest.dialect import Dialect, Flag, Key
from inferometer.ingest.experts import MAX_EXPERTS, MAX_LAYERS, MAX_TOKENS, MAX_WIDTH, moe_blocks, moe_layers, per_layer
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.windows import limits
from inferometer.specs.model import Attention, FeedForward, Ffn, Mixer, Mla

MAX_HIDDEN = 10**7
MAX_HEADS = 10**5
"""Limits of sanity, far above any model."""

__all__ = ["MAX_EXPERTS", "MAX_HEADS", "MAX_HIDDEN", "MAX_LAYERS", "MAX_TOKENS", "MAX_WIDTH", "feed_forwards", "mixers"]


def mixers(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> list[Mixer]:
    """Return the mixer of each layer, unquantised.

    Raises InferometerError for shapes that are missing, out of range, or do not divide.
    """
    around = _norms(reader, dialect)
    if dialect.mixer == "mla":
        return [_mla(reader, around)] * layers
    windows = limits(reader, dialect.window, layers)
    limit = "chunk" if dialect.window and dialect.window.chunk else "window"
    made: dict[tuple[int | None, bool], Mixer] = {}
    shared = _kv_shared(reader, dialect, layers)
    for kind in dict.fromkeys(zip(windows, shared, strict=True)):
        block = _attention(reader, dialect, hidden=hidden, windowed=kind[0] is not None, around=around)
        made[kind] = msgspec.structs.replace(block, kv_shared=kind[1], **{limit: kind[0]})
    _skip_variants(reader, dialect)
    return [made[kind] for kind in zip(windows, shared, strict=True)]


def feed_forwards(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> list[FeedForward]:
    """Return the feed-forward of each layer, unquantised.

    Raises InferometerError for shapes that are missing or out of range, or routing that cannot be.
    """
    around = _norms(reader, dialect)
    sparse = moe_layers(reader, dialect.moe, layers)
    experts: list[FeedForward | None] = [None] * layers
    if dialect.moe is not None and any(sparse):
        experts = list(moe_blocks(reader, dialect.moe, around, sparse))
    dense: list[FeedForward] = []
    if not all(sparse):
        dense = _dense(reader, dialect, around, hidden=hidden, layers=layers)
    else:
        reader.skip(dialect.dense_width, *((dialect.ffn_bias.name,) if isinstance(dialect.ffn_bias, Key) else ()))
    return [block if block is not None else dense[layer] for layer, block in enumerate(experts)]


def flag(reader: ConfigReader, fact: Flag) -> bool:
    """Return a fact of the family, or the flag of the config that says it."""
    return fact if isinstance(fact, bool) else reader.flag(fact.name, default=fact.default)


def _norms(reader: ConfigReader, dialect: Dialect) -> Mapping[str, Any]:
    """Return the fields of a block that say which norms are around it."""
    rule = dialect.norm
    return {
        "pre_norm": rule.pre,
        "post_norm": rule.post,
        "norm_weight": rule.weight,
        "norm_bias": flag(reader, rule.bias),
    }


def _attention(
    reader: ConfigReader, dialect: Dialect, *, hidden: int, windowed: bool, around: Mapping[str, Any]
) -> Attention:
    names = dialect.windowed if windowed else dialect.unwindowed
    heads = reader.integer(names.get("num_attention_heads", "num_attention_heads"), high=MAX_HEADS)
    kv_heads = _kv_heads(reader, dialect, names, heads)
    head_dim = _stated(reader, names, "head_dim")
    if head_dim is None:
        if hidden % heads:
            raise reader.wrong("num_attention_heads", heads, f"a divisor of hidden_size = {hidden}, or a head_dim")
        head_dim = hidden // heads
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_dim=_stated(reader, names, "v_head_dim"),
        qkv_bias=flag(reader, dialect.qkv_bias),
        out_bias=flag(reader, dialect.out_bias),
        qk_norm=flag(reader, dialect.qk_norm),
        qk_norm_over=dialect.qk_norm_over,
        sinks=(windowed or not dialect.windowed) and flag(reader, dialect.sinks),
        v_from_k=not windowed and flag(reader, dialect.v_from_k),
        sub_norm=dialect.norm.sub,
        **around,
    )


def _stated(reader: ConfigReader, names: Mapping[str, str], name: str) -> int | None:
    """Return a size of a head under the name that this kind of layer has for it, else under its own."""
    if name == "v_head_dim" and not reader.has(name):
        return None
    for key in (names.get(name), name):
        value = None if key is None else reader.integer_or_none(key, high=MAX_HEADS)
        if value is not None:
            return value
    return None


def _kv_heads(reader: ConfigReader, dialect: Dialect, names: Mapping[str, str], heads: int) -> int:
    """Return the kv heads: one under multi-query attention, as many as query heads where none are stated."""
    name = "num_key_value_heads"
    unless = dialect.multi_query_unless
    if dialect.multi_query and flag(reader, dialect.multi_query) and not (unless and flag(reader, unless)):
        reader.skip(name)
        return 1
    kv_heads = _stated(reader, names, name)
    if kv_heads is None:
        if not reader.has(name):
            reader.remark(f"{name} is absent: one KV head a query head ({heads})")
        kv_heads = heads
    if heads % kv_heads:
        raise reader.wrong(name, kv_heads, f"a divisor of num_attention_heads = {heads}")
    return kv_heads


def _skip_variants(reader: ConfigReader, dialect: Dialect) -> None:
    """Mark the fields of kinds of layers that this model has none of."""
    reader.skip(*dialect.windowed.values(), *dialect.unwindowed.values())


def _kv_shared(reader: ConfigReader, dialect: Dialect, layers: int) -> list[bool]:
    """Return for each layer whether its keys and values are those of a layer before."""
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


def _mla(reader: ConfigReader, around: Mapping[str, Any]) -> Mla:
    return Mla(
        heads=reader.integer("num_attention_heads", high=MAX_HEADS),
        q_rank=reader.integer_or_none("q_lora_rank", high=MAX_HIDDEN),
        kv_rank=reader.integer("kv_lora_rank", high=MAX_HIDDEN),
        nope_dim=reader.integer("qk_nope_head_dim", high=MAX_HEADS),
        rope_dim=reader.integer("qk_rope_head_dim", high=MAX_HEADS),
        v_dim=reader.integer("v_head_dim", high=MAX_HEADS),
        bias=reader.flag("attention_bias", default=False),
        **around,
    )


def _dense(
    reader: ConfigReader, dialect: Dialect, around: Mapping[str, Any], *, hidden: int, layers: int
) -> list[FeedForward]:
    """Return a dense feed-forward for every layer."""
    rule = dialect.norm
    parallel = flag(reader, rule.parallel)
    fields: dict[str, Any] = dict(around) | {
        "bias": flag(reader, dialect.ffn_bias),
        "gated": dialect.gated,
        "parallel": parallel,
        "pre_norm": rule.pre and (not parallel or flag(reader, rule.second)),
        "sub_norm": rule.sub,
    }
    widths = _dense_widths(reader, dialect, hidden=hidden, layers=layers)
    made = {width: Ffn(width=width, **fields) for width in set(widths)}
    return [made[width] for width in widths]


def _dense_widths(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> tuple[int, ...]:
    name, factor = dialect.dense_width, dialect.width_factor
    if factor is not None and (not reader.has(name) or reader.find(name)[1] is None):
        return (factor * hidden,) * layers
    stated = per_layer(reader, name, layers, high=MAX_WIDTH)
    for width in stated:
        if width % dialect.width_divisor:
            raise reader.wrong(name, width, f"a multiple of {dialect.width_divisor}")
    return tuple(width // dialect.width_divisor for width in stated)
