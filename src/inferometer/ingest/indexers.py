"""The indexer of every layer of sparse attention, from a config read through its dialect."""

from collections.abc import Sequence

import msgspec

from inferometer.ingest.bounds import MAX_HEADS, MAX_LAYERS, MAX_TOKENS
from inferometer.ingest.dialect import Dialect, IndexRule
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.indexer import Indexer

FULL, SHARED = "full", "shared"
LETTERS = {"F": FULL, "S": SHARED}
OFFSET = 2
"""`index_skip_topk_offset` where the key is absent (transformers)."""


def indexers(reader: ConfigReader, dialect: Dialect, windows: Sequence[int | None]) -> list[Indexer | None]:
    """Return the indexer of each layer; None where it has a window or reads everything.

    Raises InferometerError for sizes that are missing or out of range, and for lists that do not fit the layers.
    """
    rule, layers = dialect.index, len(windows)
    if rule is None or (rule.switch is not None and not reader.flag(rule.switch.name, default=rule.switch.default)):
        return [None] * layers
    sparse = [window is None and own for window, own in zip(windows, _listed(reader, rule, layers), strict=True)]
    if not any(sparse):
        reader.skip(rule.heads, rule.dim, rule.top_k, *(name for name in (rule.block, rule.pool) if name))
        return [None] * layers
    full = _indexer(reader, rule)
    kinds = {FULL: full, SHARED: msgspec.structs.replace(full, shared=True)}
    types = _types(reader, rule, layers)
    return [kinds[kind] if own else None for kind, own in zip(types, sparse, strict=True)]


def _listed(reader: ConfigReader, rule: IndexRule, layers: int) -> list[bool]:
    listed = reader.integers(rule.listed, low=0, high=1) if rule.listed else None
    if listed is None:
        return [True] * layers
    if len(listed) != layers:
        raise reader.error(rule.listed or "", f"has {len(listed)} entries; allowed: num_hidden_layers = {layers}")
    return [item == 1 for item in listed]


def _indexer(reader: ConfigReader, rule: IndexRule) -> Indexer:
    heads = reader.integer(rule.heads, high=MAX_HEADS)
    block = reader.integer(rule.block, high=MAX_TOKENS) if rule.block else 1
    pool = reader.integer(rule.pool, high=MAX_TOKENS) if rule.pool else 1
    top_k = reader.integer(rule.top_k, high=MAX_TOKENS) * block
    if top_k % pool:
        raise reader.wrong(rule.pool or "", pool, f"a divisor of {rule.top_k} = {top_k}")
    return Indexer(
        heads=heads,
        dim=reader.integer(rule.dim, high=MAX_HEADS),
        top_k=top_k,
        pool=pool,
        pool_gate=rule.pool_gate and pool > 1,
        block=block,
        lists=heads if rule.lists else 1,
        weighted=rule.weighted,
        q_norm=rule.q_norm,
        k_norm=rule.k_norm,
        input_norm=rule.input_norm,
        head_scales=rule.head_scales,
        key_format=rule.key_format,
    )


def _types(reader: ConfigReader, rule: IndexRule, layers: int) -> list[str]:
    """Return for each layer whether it makes a choice of its own: by list, by pattern, or by period."""
    if not rule.shares:
        return [FULL] * layers
    key, found = "indexer_types", list(reader.texts("indexer_types"))
    reader.skip("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
    if not found and reader.has("index_topk_pattern"):
        key = "index_topk_pattern"
        words = reader.texts(key)
        found = [LETTERS.get(word, word) for word in (words[0] if len(words) == 1 else words)]
    if not found:
        found = _periodic(reader, rule, layers)
    if len(found) != layers:
        raise reader.error(key, f"has {len(found)} entries; allowed: num_hidden_layers = {layers}")
    for word in found:
        if word not in (FULL, SHARED):
            raise reader.wrong(key, word, f"{FULL} or {SHARED}")
    if found[0] == SHARED:
        raise reader.wrong(key, SHARED, f"{FULL} in the first layer, for there is none before it")
    return found


def _periodic(reader: ConfigReader, rule: IndexRule, layers: int) -> list[str]:
    """Return a choice of its own for each layer up to the offset, and each so many from there on."""
    every = reader.integer_or_none("index_topk_freq", high=MAX_LAYERS) or rule.every
    offset = reader.integer_or_none("index_skip_topk_offset", low=0, high=MAX_LAYERS)
    start = (OFFSET if offset is None else offset) - 1
    return [SHARED if max(layer - start, 0) % every else FULL for layer in range(layers)]
