"""DeepSeek-V4's attention of every layer, from a config.

What a ratio means is the family's (`CompressRule`). Of V4 the modelling class's (transformers 5.24.0): 4 overlaps its
windows and has an indexer, 128 has neither, 0 has the window alone. Of V4.1 SGLang 0.5.23's (`dsv41_sparse.py`).
"""

from typing import Literal, NamedTuple

from inferometer.ingest.bounds import MAX_HEADS, MAX_HIDDEN, MAX_LAYERS, MAX_TOKENS
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.norms import norms
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.small_rules import CompressRule
from inferometer.specs.indexer import Indexer
from inferometer.specs.mixers import Compressed, Single


class _Kind(NamedTuple):
    """What tells layers apart."""

    ratio: int
    source: bool
    """Makes its own entries and index keys."""
    chooses: bool
    among: int | None
    """Entries it scores at most."""


def compressed(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> list[Single]:
    """Return the attention of every layer; ratios beyond the last layer are those of prediction layers.

    Raises InferometerError for shapes that are missing, out of range, or do not divide.
    """
    del hidden
    rule = dialect.compress
    ratios = reader.integers("compress_ratios", low=0, high=MAX_TOKENS) or ()
    if len(ratios) < layers:
        raise reader.error("compress_ratios", f"has {len(ratios)} entries; allowed: num_hidden_layers = {layers}")
    for ratio in ratios:
        if ratio not in rule.ratios:
            raise reader.wrong("compress_ratios", ratio, ", ".join(map(str, rule.ratios)))
    kinds = _kinds(reader, rule, ratios[:layers])
    made: dict[_Kind, Single] = {kind: _one(reader, dialect, kind) for kind in dict.fromkeys(kinds)}
    return [made[kind] for kind in kinds]


def _kinds(reader: ConfigReader, rule: CompressRule, ratios: tuple[int, ...]) -> list[_Kind]:
    """Return the kind of each layer."""
    layers = len(ratios)
    sources = _layers(reader, rule.sources, layers)
    choosers = _layers(reader, rule.choosers, layers)
    rough, most = _candidates(reader, rule)
    found = []
    for layer, ratio in enumerate(ratios):
        chosen = ratio in rule.chosen
        source = ratio > 0 and (sources is None or layer in sources)
        chooses = chosen and (choosers is None or layer in choosers)
        among = most if chooses and rough is not None and layer > rough else None
        found.append(_Kind(ratio, source, chooses, among))
    _check_first(reader, rule, found)
    return found


def prompt_tails(reader: ConfigReader, rule: CompressRule, layers: int) -> list[int | None]:
    """Return how many of a prompt's last tokens go through each layer, None where all do: those before the last source.

    Layers behind it keep windows alone, which the last tokens fill; entries and keys are made of what goes into it.
    """
    sources = _layers(reader, rule.sources, layers)
    if rule.tail is None or not sources:
        return [None] * layers
    tail = reader.integer(rule.tail, high=MAX_TOKENS)
    return [tail if layer >= max(sources) else None for layer in range(layers)]


def _layers(reader: ConfigReader, name: str | None, layers: int) -> frozenset[int] | None:
    if name is None:
        return None
    listed = reader.integers(name, low=0, high=layers - 1)
    if listed is None:
        raise reader.error(name, "is missing or null")
    return frozenset(listed)


def _candidates(reader: ConfigReader, rule: CompressRule) -> tuple[int | None, int | None]:
    """Return the layer that chooses roughly, and the entries that those after it score."""
    if rule.candidates is None or not reader.has(rule.candidates[0]):
        return None, None
    layer, blocks, size = rule.candidates
    kept = reader.integer(blocks, high=MAX_TOKENS) * reader.integer(size, high=MAX_TOKENS)
    return reader.integer(layer, low=0, high=MAX_LAYERS), kept


def _check_first(reader: ConfigReader, rule: CompressRule, kinds: list[_Kind]) -> None:
    """Refuse layers that use what no layer before them has made."""
    first = next((kind for kind in kinds if kind.ratio), None)
    if first is not None and not first.source:
        raise reader.error(rule.sources or "", "leaves out the first layer that has entries")
    first = next((kind for kind in kinds if kind.ratio in rule.chosen), None)
    if first is not None and not first.chooses:
        raise reader.error(rule.choosers or "", "leaves out the first layer whose entries are chosen")


def _one(reader: ConfigReader, dialect: Dialect, kind: _Kind) -> Compressed:
    rule = dialect.compress
    heads = reader.integer("num_attention_heads", high=MAX_HEADS)
    groups = reader.integer("o_groups", high=MAX_HEADS)
    head_dim, rope_dim = reader.integer("head_dim", high=MAX_HEADS), reader.integer("qk_rope_head_dim", high=MAX_HEADS)
    if heads % groups:
        raise reader.wrong("o_groups", groups, f"a divisor of num_attention_heads = {heads}")
    if rope_dim > head_dim:
        raise reader.wrong("qk_rope_head_dim", rope_dim, f"at most head_dim = {head_dim}")
    return Compressed(
        heads=heads,
        head_dim=head_dim,
        rope_dim=rope_dim,
        q_rank=reader.integer("q_lora_rank", high=MAX_HIDDEN),
        out_groups=groups,
        out_rank=reader.integer("o_lora_rank", high=MAX_HIDDEN),
        window=reader.integer("sliding_window", high=MAX_TOKENS),
        ratio=kind.ratio,
        overlap=kind.ratio in rule.overlap,
        gated=kind.ratio != 1,
        gate_bias=rule.bias,
        entries_shared=kind.ratio > 0 and not kind.source,
        indexer=_indexer(reader, rule, kind),
        index_keys=_index_keys(rule, kind),
        **norms(reader, dialect),
    )


def _index_keys(rule: CompressRule, kind: _Kind) -> Literal["compressed", "latent", "shared"]:
    if rule.sources is None or kind.ratio not in rule.chosen:
        return "compressed"
    return "latent" if kind.source else "shared"


def _indexer(reader: ConfigReader, rule: CompressRule, kind: _Kind) -> Indexer | None:
    names = ("index_n_heads", "index_head_dim", "index_topk")
    if kind.ratio not in rule.chosen:
        reader.skip(*names)
        return None
    heads, dim, top_k = (reader.integer(name, high=limit) for name, limit in zip(names, _LIMITS, strict=True))
    return Indexer(
        heads=heads,
        dim=dim,
        top_k=top_k,
        pool=kind.ratio,
        among=kind.among,
        k_norm="none" if rule.sources is None or not kind.source else "rms",
        shared=not kind.chooses,
        key_format=rule.key_format,
    )


_LIMITS = (MAX_HEADS, MAX_HEADS, MAX_TOKENS)
