"""Latent attention of every layer, from a config read through its dialect."""

from collections.abc import Mapping
from typing import NamedTuple

from inferometer.ingest.bounds import MAX_HEADS, MAX_HIDDEN, MAX_LAYERS
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.gates import gate
from inferometer.ingest.indexers import indexers
from inferometer.ingest.norms import flag, norms
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.small_rules import LatentRule
from inferometer.ingest.windows import limits, skip_variants
from inferometer.specs.indexer import Indexer
from inferometer.specs.mixers import Mla, Single


class _Kind(NamedTuple):
    """What tells layers apart."""

    window: int | None
    indexer: Indexer | None
    rotates: bool
    own: bool


def latents(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> list[Single]:
    """Return latent attention for every layer, with its window or indexer.

    Raises InferometerError for shapes that are missing or out of range, and for lists that do not fit the layers.
    """
    del hidden
    windows = limits(reader, dialect.window, layers)
    chosen = indexers(reader, dialect, windows)
    rotates = _rotates(reader, dialect.latent, layers)
    own = _own(reader, dialect.latent, layers)
    kinds = [_Kind(*kind) for kind in zip(windows, chosen, rotates, own, strict=True)]
    made: dict[_Kind, Single] = {kind: _latent(reader, dialect, kind) for kind in dict.fromkeys(kinds)}
    skip_variants(reader, dialect)
    return [made[kind] for kind in kinds]


def _latent(reader: ConfigReader, dialect: Dialect, kind: _Kind) -> Mla:
    names: Mapping[str, str] = dialect.windowed if kind.window is not None else {}
    rule = dialect.latent

    def size(name: str, *, low: int = 1, high: int = MAX_HEADS) -> int:
        stands = names.get(name)
        return reader.integer(name if stands is None else stands, low=low, high=high)

    nope, rope = size("qk_nope_head_dim"), size("qk_rope_head_dim", low=0 if rule.unrotated else 1)
    return Mla(
        heads=size("num_attention_heads"),
        q_rank=reader.integer_or_none(names.get("q_lora_rank", "q_lora_rank"), high=MAX_HIDDEN),
        kv_rank=size("kv_lora_rank", high=MAX_HIDDEN),
        nope_dim=nope if kind.rotates else nope + rope,
        rope_dim=rope if kind.rotates else 0,
        v_dim=size("v_head_dim"),
        bias=reader.flag("attention_bias", default=False),
        window=kind.window,
        gate=gate(reader, dialect),
        sinks=flag(reader, dialect.sinks),
        head_scales=rule.head_scales,
        rope_norm=rule.rope_norm,
        kv_shared=not kind.own,
        indexer=kind.indexer,
        **norms(reader, dialect),
    )


def _rotates(reader: ConfigReader, rule: LatentRule, layers: int) -> list[bool]:
    """Return for each layer whether a part of its heads is rotated."""
    listed = reader.integers(rule.no_rope, low=0, high=1) if rule.no_rope else None
    if listed is not None:
        if len(listed) != layers:
            raise reader.error(rule.no_rope or "", f"has {len(listed)} entries; allowed: num_hidden_layers = {layers}")
        return [item == 1 for item in listed]
    if rule.no_rope_every is None:
        return [True] * layers
    every = reader.integer(rule.no_rope_every, high=MAX_LAYERS)
    return [(layer + 1) % every > 0 for layer in range(layers)]


def _own(reader: ConfigReader, rule: LatentRule, layers: int) -> list[bool]:
    """Return for each layer whether the latent is its own."""
    listed = reader.integers(rule.source, low=0, high=layers - 1) if rule.source else None
    if listed is None:
        return [True] * layers
    if len(listed) != layers:
        raise reader.error(rule.source or "", f"has {len(listed)} entries; allowed: num_hidden_layers = {layers}")
    for layer, source in enumerate(listed):
        if source > layer or listed[source] != source:
            raise reader.wrong(f"{rule.source}[{layer}]", source, "a layer before it that has a latent of its own")
    return [source == layer for layer, source in enumerate(listed)]
