"""How many entries the queries of a pass read, where an entry stands for several tokens or only the best are read.

Letters: n tokens of a prompt, S context, p tokens an entry stands for, k most that is read.
A query reads only entries that are complete: floor(S / p) of them. Over a growing context that staircase is taken as
S / p, less than one entry too many; prompts are summed exactly.
"""

from itertools import pairwise

from inferometer.specs.indexer import Indexer


def causal_pairs(new: float, window: int | None, chunk: int | None = None) -> float:
    """Return query-key pairs of a causal prefill of `new` tokens: sum of min(i, W) for i = 1..new.

    In chunks of C: as many whole chunks as there are, C (C + 1) / 2 each, and the rest.

    >>> causal_pairs(4, None), causal_pairs(4, 2), causal_pairs(5, None, 2)
    (10.0, 7.0, 7.0)
    """
    if chunk and new > chunk:
        whole, rest = divmod(new, chunk)
        return whole * causal_pairs(chunk, None) + causal_pairs(rest, None)
    reach = min(new, window) if window else new
    return reach * (reach + 1) / 2 + (new - reach) * reach


def limit(indexer: Indexer) -> float:
    """Return the tokens a query reads at most: top-k and, on average over where it stands, half an unfinished pool.

    Between 0 and p - 1 tokens are in no finished pool: (p - 1) / 2.
    """
    return indexer.top_k + (indexer.pool - 1) / 2


def chosen_pairs(indexer: Indexer, new: int) -> float:
    """Return query-key pairs of a prompt of `new` tokens.

    Token i reads all i tokens where floor(i / p) pools are no more than fit in top-k, else the k = p floor(top_k / p)
    tokens of the best and the i mod p of the unfinished one.

    >>> chosen_pairs(Indexer(heads=1, dim=1, top_k=2), 4), chosen_pairs(Indexer(heads=1, dim=1, top_k=4, pool=2), 7)
    (7.0, 24.0)
    """
    pool = indexer.pool
    kept = pool * (indexer.top_k // pool)
    whole = min(new, kept + pool - 1)
    return float(whole * (whole + 1) // 2 + (new - whole) * kept + _rests(new, pool) - _rests(whole, pool))


def _rests(count: int, pool: int) -> int:
    """Return the sum of i mod p for i = 1..count."""
    rounds, rest = divmod(count, pool)
    return rounds * (pool * (pool - 1) // 2) + rest * (rest + 1) // 2


def entry_pairs(new: int, tokens: int, most: int | None = None) -> float:
    """Return pairs of a prompt's queries with complete entries of `tokens` tokens: sum of min(floor(i / p), most).

    With c = min(floor(n / p), most): p (1 + .. + c - 1), then c for each of the n - c p + 1 tokens from c p on.

    >>> entry_pairs(9, 4), entry_pairs(9, 4, 1), entry_pairs(4, 1)
    (8.0, 6.0, 10.0)
    """
    reached = new // tokens
    top = reached if most is None else min(reached, most)
    return float(tokens * (top * (top - 1) // 2) + top * (new - top * tokens + 1)) if top else 0.0


def pieces(contexts: tuple[tuple[float, float], ...], kinks: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    """Return the quadrature over contexts, cut at every kink inside the range.

    Contexts come as Simpson nodes (a, 1/6), (mid, 4/6), (b, 1/6), or as one node; counts are linear between kinks.

    >>> [round(share, 3) for _, share in pieces(simpson(0.0, 4.0), (1.0,))]
    [0.042, 0.167, 0.042, 0.125, 0.5, 0.125]
    """
    low, high = contexts[0][0], contexts[-1][0]
    inside = sorted({kink for kink in kinks if low < kink < high})
    if not inside:
        return contexts
    ends = (low, *inside, high)
    return tuple(node for a, b in pairwise(ends) for node in simpson(a, b, (b - a) / (high - low)))


def split_at(contexts: tuple[tuple[float, float], ...], window: float | None) -> tuple[tuple[float, float], ...]:
    """Return the quadrature over contexts, with the range split at the window's kink.

    Contexts come as Simpson nodes (a, 1/6), (mid, 4/6), (b, 1/6), or as one node. Where the window
    lies inside (a, b), counts are linear up to it and constant after: Simpson on each piece is exact.
    """
    low, high = contexts[0][0], contexts[-1][0]
    if window is None or not low < window < high:
        return contexts
    first = (window - low) / (high - low)
    return (*simpson(low, float(window), first), (high, 1 - first))


def simpson(low: float, high: float, share: float = 1.0) -> tuple[tuple[float, float], ...]:
    """Return Simpson's nodes and weights on [low, high], weights adding up to `share`.

    >>> simpson(0.0, 6.0)
    ((0.0, 0.16666666666666666), (3.0, 0.6666666666666666), (6.0, 0.16666666666666666))
    """
    if low == high:
        return ((low, share),)
    return ((low, share / 6), ((low + high) / 2, share * 4 / 6), (high, share / 6))
