"""What guesses ahead of a model, from a config read through its dialect.

Letters: H hidden, V vocabulary. A layer of multi-token prediction has norms of the embedding and of the hidden state,
a projection of both [H, 2 H], and a norm before the model's head, which it shares (DeepSeek-V3, arXiv:2412.19437
section 2.2; vLLM's and SGLang's `*_mtp` and `*_nextn` modules have the same for the other families).
"""

from collections.abc import Sequence

from inferometer.ingest.bounds import MAX_MTP
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.dspark import BLOCK, dspark, window_alone
from inferometer.ingest.layer_kinds import draft_layers
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.small_rules import DrafterRule
from inferometer.specs.drafter import Drafter, DraftLayer
from inferometer.specs.feedforward import FeedForward, Ffn
from inferometer.specs.mixers import Attention, Mixer, Mla
from inferometer.specs.residual import HyperConnections, Residual


def drafters(
    reader: ConfigReader,
    dialect: Dialect,
    mixers: Sequence[Mixer | None],
    ffns: Sequence[FeedForward | None],
    *,
    hidden: int,
    vocab: int,
    around: Residual | None,
) -> tuple[Drafter, ...]:
    """Return what guesses ahead of the model; `mixers` and `ffns` are those of each layer, as stored.

    Where its streams are weighed once more at the end, so are the model's (`around`).
    """
    rule = dialect.drafter
    if reader.has(BLOCK) and reader.find(BLOCK)[1] is not None:
        reader.skip(rule.count, rule.pattern or "")
        stacked = ([block for block in mixers if block is not None], [block for block in ffns if block is not None])
        return (dspark(reader, *stacked, hidden=hidden, vocab=vocab, head=_head(around, hidden, 1)),)
    count = 0
    if reader.has(rule.count):
        count = reader.integer_or_none(rule.count, low=0, high=MAX_MTP) or 0
    if not count:
        reader.skip(rule.pattern or "")
        return ()
    parts = _parts(reader, dialect, mixers, ffns)
    own_mixers = [block for block, _ in parts if block is not None]
    own_ffns = [block for _, block in parts if block is not None]
    layers = []
    for mixer, ffn in parts:
        at = None if mixer is None else own_mixers.index(mixer)
        layers.append(DraftLayer(mixer=at, ffn=None if ffn is None else own_ffns.index(ffn)))
    return (
        Drafter(
            kind="mtp",
            mixers=tuple(own_mixers),
            ffns=tuple(own_ffns),
            layers=tuple(layers) * count,
            shapes={
                "eh_proj": (hidden, 2 * hidden, count),
                "norms": (hidden, 1, 3 * count),
                **_head(around, hidden, count),
            },
        ),
    )


def _head(around: Residual | None, hidden: int, count: int) -> dict[str, tuple[int, int, int]]:
    """Return what weighs the streams once more before the head: [n, n H], n, and a scale."""
    if not isinstance(around, HyperConnections) or not around.head:
        return {}
    n = around.streams
    return {"hc_head": (n, n * hidden, count), "hc_head_base": (n + 1, 1, count)}


def _parts(
    reader: ConfigReader, dialect: Dialect, mixers: Sequence[Mixer | None], ffns: Sequence[FeedForward | None]
) -> list[tuple[Mixer | None, FeedForward | None]]:
    """Return the blocks of one step of prediction: as a pattern says, or of the model's last or first layers."""
    rule = dialect.drafter
    if rule.pattern is not None and reader.has(rule.pattern):
        return [(mixers[i], ffns[i]) for i in draft_layers(reader, dialect, len(mixers))]
    held = [block for block in mixers if block is not None]
    if rule.windowed:
        held = [block for block in held if isinstance(block, Attention) and block.window] or held
    if rule.latent:
        held = [block for block in held if isinstance(block, Mla)] or held
    after = [block for block in ffns if block is not None]
    return [(window_alone(held[-1]) if held else None, _ffn(rule, after))]


def _ffn(rule: DrafterRule, ffns: Sequence[FeedForward]) -> FeedForward | None:
    if rule.dense:
        return next((block for block in ffns if isinstance(block, Ffn)), None)
    return ffns[-1] if ffns else None
