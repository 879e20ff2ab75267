"""The mixer of every layer, from a config read through its dialect. A reader a kind.

Letters: H hidden, N query heads, K kv heads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from inferometer.ingest import recurrent
from inferometer.ingest.bounds import MAX_HEADS, MAX_LAYERS
from inferometer.ingest.compressed import compressed
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.indexers import indexers
from inferometer.ingest.latents import latents
from inferometer.ingest.layer_kinds import NO_BLOCK, layer_kinds
from inferometer.ingest.norms import flag, norms
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.windows import limits, skip_variants
from inferometer.specs.indexer import Indexer
from inferometer.specs.mixers import Attention, Beside, Mixer, Single


def mixers(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> list[Mixer | None]:
    """Return the mixer of each layer, unquantised; None where it has none.

    Raises InferometerError for shapes that are missing, out of range, or do not divide.
    """
    kinds = [kind.mixer or dialect.mixer for kind in layer_kinds(reader, dialect, layers)]
    made = {name: _made(name, reader, dialect, hidden, layers) for name in dict.fromkeys(kinds) if name != NO_BLOCK}
    return [None if name == NO_BLOCK else made[name][layer] for layer, name in enumerate(kinds)]


def _made(name: str, reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> Sequence[Mixer]:
    """Return one kind of mixer for every layer, or several beside each other, whose norms are the layer's."""
    kinds = [READERS[kind](reader, dialect, hidden, layers) for kind in name.split("+")]
    if len(kinds) == 1:
        return kinds[0]
    return [_beside(parts) for parts in zip(*kinds, strict=True)]


def _beside(parts: tuple[Single, ...]) -> Beside:
    norm = {name: getattr(parts[0], name) for name in ("pre_norm", "post_norm", "norm_weight", "norm_bias")}
    bare = tuple(msgspec.structs.replace(part, pre_norm=False, post_norm=False) for part in parts)
    return Beside(parts=bare, **norm)


def _attentions(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> list[Single]:
    """Return softmax attention for every layer, with its window and whether its K and V are a layer's before."""
    around = norms(reader, dialect)
    windows = limits(reader, dialect.window, layers)
    limit = "chunk" if dialect.window and dialect.window.chunk else "window"
    made: dict[tuple[int | None, bool, Indexer | None], Single] = {}
    kinds = list(zip(windows, _kv_shared(reader, dialect, layers), indexers(reader, dialect, windows), strict=True))
    for kind in dict.fromkeys(kinds):
        block = _attention(reader, dialect, hidden=hidden, windowed=kind[0] is not None, around=around)
        made[kind] = msgspec.structs.replace(block, kv_shared=kind[1], indexer=kind[2], **{limit: kind[0]})
    skip_variants(reader, dialect)
    return [made[kind] for kind in kinds]


def _attention(
    reader: ConfigReader, dialect: Dialect, *, hidden: int, windowed: bool, around: Mapping[str, Any]
) -> Attention:
    names = dialect.windowed if windowed else dialect.unwindowed
    v_from_k = not windowed and flag(reader, dialect.v_from_k)
    if dialect.v_from_k and not v_from_k:  # without it, full layers have the kv heads of the others
        names = {key: name for key, name in names.items() if key != "num_key_value_heads"}
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
        qk_norm_bias=dialect.qk_norm_bias,
        sinks=(windowed or not dialect.windowed) and flag(reader, dialect.sinks),
        v_from_k=v_from_k,
        gate=dialect.gate,
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


Reader = Callable[[ConfigReader, Dialect, int, int], Sequence[Single]]

READERS: Mapping[str, Reader] = {
    "attention": _attentions,
    "mla": latents,
    "compressed": compressed,
    **recurrent.READERS,
}
"""Kind of mixer -> what reads one for every layer, of (reader, dialect, H, layers)."""
