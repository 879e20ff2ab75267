"""DeepSeek-V4's attention of every layer, from a config.

What a ratio means is the modelling class's (transformers 5.24.0): 4 overlaps its windows and has an indexer, 128 has
neither, 0 has the window alone.
"""

from inferometer.ingest.bounds import MAX_HEADS, MAX_HIDDEN, MAX_TOKENS
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.norms import norms
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.indexer import Indexer
from inferometer.specs.mixers import Compressed, Single

CHOSEN = 4
"""Ratio of entries that overlap and are chosen from."""
RATIOS = (0, CHOSEN, 128)


def compressed(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> list[Single]:
    """Return the attention of every layer; ratios beyond the last layer are those of prediction layers.

    Raises InferometerError for shapes that are missing, out of range, or do not divide.
    """
    del hidden
    ratios = reader.integers("compress_ratios", low=0, high=MAX_TOKENS) or ()
    if len(ratios) < layers:
        raise reader.error("compress_ratios", f"has {len(ratios)} entries; allowed: num_hidden_layers = {layers}")
    for ratio in ratios:
        if ratio not in RATIOS:
            raise reader.wrong("compress_ratios", ratio, ", ".join(map(str, RATIOS)))
    made: dict[int, Single] = {ratio: _one(reader, dialect, ratio) for ratio in sorted(set(ratios[:layers]))}
    return [made[ratio] for ratio in ratios[:layers]]


def _one(reader: ConfigReader, dialect: Dialect, ratio: int) -> Compressed:
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
        ratio=ratio,
        overlap=ratio == CHOSEN,
        indexer=_indexer(reader, ratio),
        **norms(reader, dialect),
    )


def _indexer(reader: ConfigReader, ratio: int) -> Indexer | None:
    names = ("index_n_heads", "index_head_dim", "index_topk")
    if ratio != CHOSEN:
        reader.skip(*names)
        return None
    heads, dim, top_k = (reader.integer(name, high=limit) for name, limit in zip(names, _LIMITS, strict=True))
    return Indexer(heads=heads, dim=dim, top_k=top_k, pool=ratio, k_norm="none", key_format=None)


_LIMITS = (MAX_HEADS, MAX_HEADS, MAX_TOKENS)
