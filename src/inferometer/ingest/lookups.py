"""Memory tables of a config: before which layer, and what. A reader a kind.

Letters: H hidden, V vocabulary.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from inferometer.ingest.bounds import MAX_EXPERTS, MAX_HIDDEN, MAX_LAYERS, MAX_TOKENS, MAX_VOCAB
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.lookup import Lookup

MAX_NGRAM = 16
_TRIAL = 10**6
"""Tables are sized by primes below the square of this."""


class Placed(NamedTuple):
    """A table, and the layer it stands before, from zero."""

    layer: int
    block: Lookup


def lookups(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> list[Placed]:
    """Return the memory tables of a model, in order of their layers."""
    if dialect.lookups is None:
        return []
    found = READERS[dialect.lookups](reader, hidden)
    for each in found:
        if each.layer >= layers:
            raise reader.error("num_hidden_layers", f"is {layers}, but a memory table stands before layer {each.layer}")
    return found


def _ngram(reader: ConfigReader, hidden: int) -> list[Placed]:
    """Return the tables beside the input embedding: of n - 1 lengths and k splits, table i of m V + 2 i + 1 rows.

    Each gives H / (k (n - 1)) elements, projected to H (LongCat-Flash-Lite; SGLang 0.5.23, n_gram_embedding.py).
    """
    if not reader.has("ngram_vocab_size_ratio"):
        return []
    ratio = reader.integer("ngram_vocab_size_ratio", high=MAX_VOCAB)
    count = (reader.integer("emb_neighbor_num", low=2, high=MAX_NGRAM) - 1) * reader.integer(
        "emb_split_num", high=MAX_EXPERTS
    )
    if hidden % count:
        raise reader.wrong("hidden_size", hidden, f"a multiple of the {count} n-gram tables")
    rows = sum(ratio * reader.integer("vocab_size", high=MAX_VOCAB) + 2 * i + 1 for i in range(count))
    reader.remark("n-gram tables are in the chips' memory, their columns over TP")
    return [Placed(0, Lookup(pre_norm=False, rows=rows, width=hidden // count, reads=count))]


def _engram(reader: ConfigReader, hidden: int) -> list[Placed]:
    """Return Engram's tables: of every length from 2 to n and each head, a row a token (SGLang 0.5.23, engram.py)."""
    del hidden
    layers = reader.integers("engram_layer_ids", low=0, high=MAX_LAYERS) or ()
    rows = reader.integers("engram_num_embeddings", low=1, high=MAX_TOKENS) or ()
    if len(rows) != len(layers):
        raise reader.wrong("engram_num_embeddings", list(rows), f"one for each of {len(layers)} layers")
    reads = (reader.integer("engram_max_ngram_size", low=2, high=MAX_NGRAM) - 1) * reader.integer(
        "engram_n_heads", high=MAX_EXPERTS
    )
    streams = reader.integer("hc_mult", high=MAX_NGRAM)
    width = reader.integer("engram_head_dim", high=MAX_HIDDEN)
    reader.skip("engram_vocab_size", "engram_compressed_vocab_size", "engram_pad_token_id")
    reader.remark("Engram tables are in the hosts' memory, fetched ahead at no cost")
    return [
        Placed(
            layer,
            Lookup(
                pre_norm=False,
                rows=count,
                width=width,
                reads=reads,
                outputs=streams + 1,
                place="host",
                formats={"table": "mxfp8", "project": "fp8-block32-ue8m0"},
            ),
        )
        for layer, count in zip(layers, rows, strict=True)
    ]


def _ple(reader: ConfigReader, hidden: int) -> list[Placed]:
    """Return hashed n-gram features for every stream, of a table sized by consecutive primes (Qwen3.8-Flash-Next).

    Layers are counted from one; transformers' `modeling_qwen4_exp.py`.
    """
    del hidden
    layers = reader.integers("ple_layer_ids", low=1, high=MAX_LAYERS) or ()
    streams = reader.integer("hc_count", high=MAX_NGRAM)
    per_length = reader.integer("heads_per_ngram", high=MAX_EXPERTS)
    reads = per_length * (reader.integer("ngram_size", low=2, high=MAX_NGRAM) - 1)
    wide = reader.integer("ple_embed_dim", high=MAX_HIDDEN)
    if wide % reads:
        raise reader.wrong("ple_embed_dim", wide, f"a multiple of the {reads} rows a token reads")
    base = reader.integer("ngram_vocab_size_base", high=MAX_TOKENS)
    multiple = reader.integer("make_ngram_vocab_size_divisible_by", high=MAX_TOKENS)
    taps = reader.integer("ple_conv_kernel_size", high=MAX_NGRAM)
    reader.skip("split_ngram_parts")
    reader.remark("the n-gram table is in the hosts' memory, fetched ahead at no cost")
    primes = _primes(base, reads * len(layers))
    placed = []
    for index, layer in enumerate(layers):
        rows = sum(primes[index * reads : (index + 1) * reads])
        block = Lookup(
            pre_norm=False,
            rows=-(-rows // multiple) * multiple,
            width=wide // reads,
            reads=reads,
            outputs=streams + 1,
            norms=3,
            conv=taps,
            place="host",
        )
        placed.append(Placed(layer - 1, block))
    return placed


def _primes(low: int, count: int) -> list[int]:
    """Return `count` primes from `low` on.

    >>> _primes(8, 3)
    [11, 13, 17]
    """
    found: list[int] = []
    candidate = max(low, 2)
    while len(found) < count:
        if all(candidate % d for d in range(2, min(int(candidate**0.5), _TRIAL) + 1)):
            found.append(candidate)
        candidate += 1
    return found


READERS: Mapping[str, Callable[[ConfigReader, int], list[Placed]]] = {"ngram": _ngram, "engram": _engram, "ple": _ple}
