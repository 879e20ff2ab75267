"""The mixer of every layer, from a config read through its dialect. A reader a kind.

Letters: H hidden, N query heads, K kv heads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from inferometer.ingest import recurrent
from inferometer.ingest.bounds import MAX_HEADS, MAX_TOKENS
from inferometer.ingest.compressed import compressed
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.experts import per_layer
from inferometer.ingest.gates import Gate, gate
from inferometer.ingest.indexers import indexers
from inferometer.ingest.kv_sharing import kv_shared
from inferometer.ingest.latents import latents
from inferometer.ingest.layer_kinds import NO_BLOCK, layer_kinds
from inferometer.ingest.loops import of_token, visits_a_layer
from inferometer.ingest.norms import MAX_TAPS, flag, norms
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.windows import limits, skip_variants
from inferometer.specs.indexer import Indexer
from inferometer.specs.matrix import Matrix
from inferometer.specs.mixers import Attention, Beside, CrossAttention, Mixer, Single


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


class _Layer(NamedTuple):
    """What tells the attention of one layer from another's."""

    limit: int | None
    """Its window or chunk."""
    shared: bool
    heads: int
    kv_heads: int
    indexer: Indexer | None
    looped: bool


def _attentions(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> list[Attention]:
    """Return softmax attention for every layer, with its window, its heads, and whether its K and V are its own."""
    around = norms(reader, dialect)
    windows = limits(reader, dialect.window, layers)
    shared = kv_shared(reader, dialect, layers)
    heads, kv_heads = _heads(reader, dialect, windows)
    chosen = indexers(reader, dialect, windows)
    looped = [visits > 1 for visits in visits_a_layer(reader, dialect.token, layers)]
    kinds = [_Layer(*kind) for kind in zip(windows, shared, heads, kv_heads, chosen, looped, strict=True)]
    gated = gate(reader, dialect)
    made: dict[_Layer, Attention] = {}
    for kind in dict.fromkeys(kinds):
        block = _attention(reader, dialect, kind, hidden=hidden, gated=gated, around=around)
        more = of_token(reader, dialect.token, windowed=kind.limit is not None, looped=kind.looped)
        made[kind] = msgspec.structs.replace(block, **_near(reader, dialect, kind.limit), **more)
    skip_variants(reader, dialect)
    return [made[kind] for kind in kinds]


def _near(reader: ConfigReader, dialect: Dialect, window: int | None) -> dict[str, int]:
    """Return what attention knows of nearness: taps of convolutions of k and v, logits by distance."""
    near = {"conv": reader.integer(dialect.conv, high=MAX_TAPS)} if dialect.conv else {}
    if dialect.relative is None:
        return near
    width, extent = dialect.relative
    stated = reader.integer(extent, high=MAX_TOKENS)
    return near | {"relative": reader.integer(width, high=MAX_HEADS), "relative_extent": window or stated}


def _attention(
    reader: ConfigReader,
    dialect: Dialect,
    kind: _Layer,
    *,
    hidden: int,
    gated: Gate,
    around: Mapping[str, Any],
) -> Attention:
    windowed = kind.limit is not None
    names = dialect.windowed if windowed else dialect.unwindowed
    head_dim = _stated(reader, names, "head_dim")
    if head_dim is None:
        if hidden % kind.heads:
            raise reader.wrong("num_attention_heads", kind.heads, f"a divisor of hidden_size = {hidden}, or a head_dim")
        head_dim = hidden // kind.heads
    chunked = dialect.window is not None and dialect.window.chunk
    return Attention(
        heads=kind.heads,
        kv_heads=kind.kv_heads,
        head_dim=head_dim,
        v_dim=_stated(reader, names, "v_head_dim"),
        qkv_bias=flag(reader, dialect.qkv_bias),
        out_bias=flag(reader, dialect.out_bias),
        qk_norm=flag(reader, dialect.qk_norm),
        qk_norm_over=dialect.qk_norm_over,
        qk_norm_bias=dialect.qk_norm_bias,
        k_norm=_k_norm(dialect, kind),
        window=None if chunked else kind.limit,
        chunk=kind.limit if chunked else None,
        sinks=(windowed or not dialect.windowed) and flag(reader, dialect.sinks),
        v_from_k=not windowed and flag(reader, dialect.v_from_k),
        kv_shared=kind.shared,
        gate=gated,
        indexer=kind.indexer,
        sub_norm=dialect.norm.sub,
        **around,
    )


def _k_norm(dialect: Dialect, kind: _Layer) -> bool:
    """Return whether k has a norm where q has one."""
    if dialect.token.q_norm_alone:
        return False
    return not kind.shared or dialect.kv_shared is None or dialect.kv_shared.k_norm


def _heads(reader: ConfigReader, dialect: Dialect, windows: list[int | None]) -> tuple[list[int], list[int]]:
    """Return N and K of every layer; each may be one number or one a layer."""
    layers = len(windows)
    found: dict[tuple[bool, bool], tuple[int, ...]] = {}
    for windowed in dict.fromkeys(window is not None for window in windows):
        names = dialect.windowed if windowed else dialect.unwindowed
        if not windowed and dialect.v_from_k and not flag(reader, dialect.v_from_k):
            # without it, full layers have the kv heads of the others
            names = {key: name for key, name in names.items() if key != "num_key_value_heads"}
        name = names.get("num_attention_heads", "num_attention_heads")
        query = per_layer(reader, name, layers, high=MAX_HEADS)
        found[windowed, True] = query
        found[windowed, False] = _kv_heads(reader, dialect, names, query)
    pairs = [
        (found[window is not None, True][layer], found[window is not None, False][layer])
        for layer, window in enumerate(windows)
    ]
    return [heads for heads, _ in pairs], [kv_heads for _, kv_heads in pairs]


def _stated(reader: ConfigReader, names: Mapping[str, str], name: str) -> int | None:
    """Return a size of a head under the name that this kind of layer has for it, else under its own."""
    if name == "v_head_dim" and not reader.has(name):
        return None
    for key in (names.get(name), name):
        value = None if key is None else reader.integer_or_none(key, high=MAX_HEADS)
        if value is not None:
            return value
    return None


def _kv_heads(
    reader: ConfigReader, dialect: Dialect, names: Mapping[str, str], heads: tuple[int, ...]
) -> tuple[int, ...]:
    """Return K of every layer: one under multi-query attention, as many as query heads where none are stated."""
    name, layers = "num_key_value_heads", len(heads)
    unless = dialect.multi_query_unless
    if dialect.multi_query and flag(reader, dialect.multi_query) and not (unless and flag(reader, unless)):
        reader.skip(name)
        return (1,) * layers
    if not reader.has(name) and name not in reader.defaults and name not in names:
        reader.remark(f"{name} is absent: one KV head a query head ({heads[0]})")
    given = next((key for key in (names.get(name), name) if key and _has(reader, key)), None)
    kv_heads = heads if given is None else per_layer(reader, given, layers, high=MAX_HEADS)
    for query, kv in zip(heads, kv_heads, strict=True):
        if query % kv:
            raise reader.wrong(given or name, kv, f"a divisor of num_attention_heads = {query}")
    return kv_heads


def _has(reader: ConfigReader, name: str) -> bool:
    """Return whether a field is given, or has a class default, that is not null."""
    return (reader.has(name) or name in reader.defaults) and reader.find(name)[1] is not None


def _crosses(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> list[Single]:
    """Return cross-attention for every layer, of the heads that the others have."""
    return [
        CrossAttention(
            heads=block.heads,
            kv_heads=block.kv_heads,
            head_dim=block.head_dim,
            qk_norm=True,
            gates=dialect.cross_gates,
            **norms(reader, dialect),
        )
        for block in _attentions(reader, dialect, hidden, layers)
    ]


def _matrices(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> list[Single]:
    """Return one matrix for every layer, with the bias that attention's output has."""
    block = Matrix(width=hidden, bias=flag(reader, dialect.out_bias), **norms(reader, dialect))
    return [block] * layers


Reader = Callable[[ConfigReader, Dialect, int, int], Sequence[Single]]

READERS: Mapping[str, Reader] = {
    "attention": _attentions,
    "cross": _crosses,
    "mla": latents,
    "compressed": compressed,
    "matrix": _matrices,
    **recurrent.READERS,
}
"""Kind of mixer -> what reads one for every layer, of (reader, dialect, H, layers)."""
