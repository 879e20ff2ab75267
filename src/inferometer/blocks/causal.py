"""Which tokens the rows of a pass see: causal sums behind a cached prefix, and their mean over growing contexts.

Letters: n new tokens (rows) a sequence brings, p tokens cached before them, e = p + n at the end of the pass, W window,
C chunk. Row j = 1..n sees the p + j tokens up to itself: with a window the last W of them, in chunks those of its own.
A prefill is p = 0, a decode step n = 1.
"""

import math
from itertools import pairwise
from typing import NamedTuple

from inferometer.blocks.lowering import Lowering, Pass
from inferometer.graph.ops import CollectiveKind, Column, Node


class Seen(NamedTuple):
    """What the rows of one sequence see in one pass, and in which share of the passes."""

    pairs: float
    """Query-key pairs."""
    keys: float
    """Distinct tokens: those cached before that any row sees, and the n new ones."""
    share: float


def causal_pairs(new: float, window: float | None = None, chunk: int | None = None, prefix: float = 0.0) -> float:
    """Return the query-key pairs of `new` rows behind `prefix` tokens: the sum of min(p + j, W) for j = 1..n.

    Rows that the window does not cut, m = W - p of them, see m p + m (m + 1) / 2, the others W each. In chunks the
    rows that fill the prefix's last one see what it holds; whole chunks C (C + 1) / 2 each, and the rest follow.

    >>> causal_pairs(4), causal_pairs(4, 2), causal_pairs(5, None, 2)
    (10.0, 7.0, 7.0)
    >>> causal_pairs(3, prefix=10.0), causal_pairs(3, 12, prefix=10.0), causal_pairs(3, None, 4, prefix=10.0)
    (36.0, 35.0, 8.0)
    """
    if chunk:
        held = prefix % chunk
        first = min(new, chunk - held)
        whole, rest = divmod(new - first, chunk)
        return first * held + _triangle(first) + whole * _triangle(chunk) + _triangle(rest)
    free = new if window is None else math.floor(min(max(window - prefix, 0.0), new))
    return free * prefix + _triangle(free) + (new - free) * (window or 0)


def _triangle(rows: float) -> float:
    return rows * (rows + 1) / 2


def keys_seen(new: float, window: int | None = None, chunk: int | None = None, prefix: float = 0.0) -> float:
    """Return the distinct tokens that `new` rows behind `prefix` tokens see.

    The first row sees most of the prefix: min(p, W - 1) of it, in chunks p mod C; the new ones are all seen.

    >>> keys_seen(3, prefix=10.0), keys_seen(3, 8, prefix=10.0), keys_seen(3, None, 4, prefix=10.0)
    (13.0, 10.0, 5.0)
    """
    if chunk:
        return prefix % chunk + new
    return (prefix if window is None else min(prefix, window - 1.0)) + new


def seen(at: Pass, window: int | None = None, chunk: int | None = None) -> tuple[Seen, ...]:
    """Return what the rows of a sequence see, over the pass's quadrature of KV lengths.

    Row j reaches the window where e = W + n - j: between these kinks counts are linear, after the last constant.
    """
    rows = at.new_tokens
    if chunk and at.generates and at.contexts[-1][0] > chunk:
        return (_in_chunks(at.contexts, rows, float(chunk)),)
    kinks = () if window is None else range(window, window + rows)
    return tuple(
        Seen(causal_pairs(rows, window, chunk, end - rows), keys_seen(rows, window, chunk, end - rows), share)
        for end, share in split_at(at.contexts, *(kinks if at.generates else ()))
    )


def _in_chunks(contexts: tuple[tuple[float, float], ...], rows: int, size: float) -> Seen:
    """Return what generated rows see of their chunk on average.

    A row sees its own chunk so far. Beyond the first chunk that is a sawtooth: of a range of contexts [a, b] the exact
    mean (G(b) - G(a)) / (b - a), G(x) the integral of x mod C; of one context the mean of a chunk, C / 2, for
    sequences of a batch stand anywhere in theirs. Nothing else falls when a context grows.
    """
    low, high = contexts[0][0], contexts[-1][0]
    if low == high:
        return Seen(rows * (size / 2), size / 2 + (rows - 1), 1.0)
    each = [(_sawtooth(high - back, size) - _sawtooth(low - back, size)) / (high - low) for back in range(rows)]
    return Seen(sum(each), each[-1] + (rows - 1), 1.0)


def _sawtooth(x: float, size: float) -> float:
    """Return the integral of t mod size for t = 0..x."""
    whole, rest = divmod(x, size)
    return whole * size * size / 2 + rest * rest / 2


def split_at(
    contexts: tuple[tuple[float, float], ...], *kinks: float, flat: bool = True
) -> tuple[tuple[float, float], ...]:
    """Return the quadrature over contexts, with the range split at kinks.

    Contexts come as Simpson nodes (a, 1/6), (mid, 4/6), (b, 1/6), or as one node. Where counts are linear between
    kinks, Simpson on each piece is exact; where they are constant after the last (`flat`), one node stands for that.

    >>> [round(share, 3) for _, share in split_at(simpson(0.0, 4.0), 1.0)]
    [0.042, 0.167, 0.042, 0.75]
    >>> [round(share, 3) for _, share in split_at(simpson(0.0, 4.0), 1.0, flat=False)]
    [0.042, 0.167, 0.042, 0.125, 0.5, 0.125]
    """
    low, high = contexts[0][0], contexts[-1][0]
    inside = sorted({float(kink) for kink in kinks if low < kink < high})
    if not inside:
        return contexts
    pieces = [(a, b, (b - a) / (high - low)) for a, b in pairwise([low, *inside])]
    nodes = [node for piece in pieces for node in simpson(*piece)]
    last = 1 - sum(share for _, _, share in pieces)
    return (*nodes, (high, last)) if flat and inside[-1] == max(kinks) else (*nodes, *simpson(inside[-1], high, last))


def simpson(low: float, high: float, share: float = 1.0) -> tuple[tuple[float, float], ...]:
    """Return Simpson's nodes and weights on [low, high], weights adding up to `share`.

    >>> simpson(0.0, 6.0)
    ((0.0, 0.16666666666666666), (3.0, 0.6666666666666666), (6.0, 0.16666666666666666))
    """
    if low == high:
        return ((low, share),)
    return ((low, share / 6), ((low + high) / 2, share * 4 / 6), (high, share / 6))


def prefix_gathered(low: Lowering, entries: float, entry_bytes: Column | float) -> list[Node]:
    """Return the gather over DCP of what is cached before a prompt: `entries` of a sequence, of a rank's bytes each.

    Prompts are not split along the sequence: every rank of DCP attends to the whole prefix with its own heads.
    """
    if low.at.generates or entries == 0:
        return []
    return [low.message("gather-prefix", CollectiveKind.ALL_GATHER, "dcp", low.at.sequences * (entries * entry_bytes))]
