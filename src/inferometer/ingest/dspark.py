"""DSPARK: stages that draft a block of tokens in one pass, from a config.

Letters: H hidden, V vocabulary, r rank. Stages are layers of the model with a window alone and no table of experts. The
first has a projection of as many states of the model as it has target layers, [H, n H], and a norm of it; the last a
norm, the streams' last step where the model has one, two tables [V, r] that weigh a token by the one before, and a
head [1, H + r] that says how sure a draft is (sgl-project/sglang 0.5.23, `deepseek_v4_dspark.py`).
"""

from collections.abc import Sequence

import msgspec

from inferometer.ingest.bounds import MAX_EXPERTS, MAX_HIDDEN, MAX_LAYERS, MAX_TOKENS
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.drafter import Drafter, DraftLayer
from inferometer.specs.feedforward import FeedForward, Moe
from inferometer.specs.mixers import Compressed, Mixer

BLOCK = "dspark_block_size"


def dspark(
    reader: ConfigReader,
    mixers: Sequence[Mixer],
    ffns: Sequence[FeedForward],
    *,
    hidden: int,
    vocab: int,
    head: dict[str, tuple[int, int, int]],
) -> Drafter:
    """Return the drafter; `mixers` and `ffns` are those of the model's layers, `head` the streams' last step.

    Raises InferometerError for sizes that are missing or out of range.
    """
    targets = reader.integers("dspark_target_layer_ids", low=0, high=MAX_LAYERS) or ()
    if not targets:
        raise reader.error("dspark_target_layer_ids", "is missing, null or empty")
    rank = reader.integer("dspark_markov_rank", high=MAX_HIDDEN)
    reader.skip("dspark_noise_token_id")
    stages, wide = len(targets), len(targets) * hidden
    mixer, ffn = _windowed(reader, mixers), _experts(reader, ffns[-1])
    return Drafter(
        kind="dspark",
        mixers=(mixer,),
        ffns=(ffn,),
        layers=(DraftLayer(mixer=0, ffn=0),) * stages,
        shapes={
            "main_proj": (hidden, wide, 1),
            "norms": (hidden, 1, 2),
            **head,
            "markov": (vocab, rank, 2),
            "confidence": (1, hidden + rank, 1),
        },
        tokens=reader.integer(BLOCK, high=MAX_TOKENS),
    )


def _windowed(reader: ConfigReader, mixers: Sequence[Mixer]) -> Mixer:
    """Return the mixer of a stage: the last layer's that has a window, by itself where it has more."""
    own = [block for block in mixers if getattr(block, "window", None) is not None]
    if not own:
        reader.remark("Stages of the drafter attend as the last layer does, for no layer has a window")
    return window_alone((own or list(mixers))[-1])


def window_alone(block: Mixer) -> Mixer:
    """Return compressed attention without its entries; any other as it is."""
    if not isinstance(block, Compressed):
        return block
    bare = msgspec.structs.replace(
        block, ratio=0, overlap=False, gated=True, entries_shared=False, indexer=None, index_keys="compressed"
    )
    held = bare.matrices()
    formats = {name: form for name, form in block.formats.items() if name in held}
    return msgspec.structs.replace(bare, formats=formats)


def _experts(reader: ConfigReader, block: FeedForward) -> FeedForward:
    """Return the experts of a stage: the model's, or as many as it has of its own."""
    names = ("dspark_n_routed_experts", "dspark_num_experts_per_tok")
    experts, top_k = (reader.integer_or_none(name, low=0, high=MAX_EXPERTS) for name in names)
    if not isinstance(block, Moe):
        return block
    own = msgspec.structs.replace(block, hash_vocab=0, experts=experts or block.experts, top_k=top_k or block.top_k)
    if own.top_k > own.experts:
        raise reader.wrong(names[1], own.top_k, f"at most {names[0]} = {own.experts}")
    return own
