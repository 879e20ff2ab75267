"""How many entries the rows of a pass read, where an entry stands for several tokens or only the best are read.

Letters: n new tokens (rows), e tokens at the end of the pass, t tokens an entry stands for, k most that a row reads.
A row reads only entries that are complete: floor(i / t) of them at token i. Prompts are summed exactly; where tokens
are generated that staircase is taken as i / t, less than one entry too many. Rows pick apart: together they read what
there is, and no more than a pair each, whatever they pick in common.
"""

from inferometer.blocks.causal import Seen, causal_pairs, split_at
from inferometer.blocks.lowering import Pass
from inferometer.specs.indexer import Indexer


def limit(indexer: Indexer) -> float:
    """Return the tokens a query reads at most: top-k and, on average over where it stands, half an unfinished pool.

    Between 0 and t - 1 tokens are in no finished pool: (t - 1) / 2.
    """
    return indexer.top_k + (indexer.pool - 1) / 2


def chosen_pairs(indexer: Indexer, new: int) -> float:
    """Return query-key pairs of a prompt of `new` tokens.

    Token i reads all i tokens where floor(i / t) pools are no more than fit in top-k, else the k = t floor(top_k / t)
    tokens of the best and the i mod t of the unfinished one.

    >>> chosen_pairs(Indexer(heads=1, dim=1, top_k=2), 4), chosen_pairs(Indexer(heads=1, dim=1, top_k=4, pool=2), 7)
    (7.0, 24.0)
    """
    pool = indexer.pool
    kept = pool * (indexer.top_k // pool)
    whole = min(new, kept + pool - 1)
    return float(whole * (whole + 1) // 2 + (new - whole) * kept + _rests(new, pool) - _rests(whole, pool))


def _rests(count: int, pool: int) -> int:
    """Return the sum of i mod t for i = 1..count."""
    rounds, rest = divmod(count, pool)
    return rounds * (pool * (pool - 1) // 2) + rest * (rest + 1) // 2


def entry_pairs(new: int, tokens: int, most: int | None = None) -> float:
    """Return pairs of a prompt's queries with complete entries of `tokens` tokens: sum of min(floor(i / t), most).

    With c = min(floor(n / t), most): t (1 + .. + c - 1), then c for each of the n - c t + 1 tokens from c t on.

    >>> entry_pairs(9, 4), entry_pairs(9, 4, 1), entry_pairs(4, 1)
    (8.0, 6.0, 10.0)
    """
    reached = new // tokens
    top = reached if most is None else min(reached, most)
    return float(tokens * (top * (top - 1) // 2) + top * (new - top * tokens + 1)) if top else 0.0


def chosen(at: Pass, indexer: Indexer) -> tuple[Seen, ...]:
    """Return what the rows of a sequence read of its tokens where an indexer picks."""
    if at.generates:
        return _generated(at, 1, limit(indexer))
    end = int(at.contexts[0][0])
    pairs = chosen_pairs(indexer, end) - chosen_pairs(indexer, end - at.new_tokens)
    return (Seen(pairs, min(float(end), pairs), 1.0),)


def entries_seen(at: Pass, tokens: int, most: int | None = None) -> tuple[Seen, ...]:
    """Return what the rows of a sequence read of entries of `tokens` tokens, `most` of them a row."""
    if at.generates:
        return _generated(at, tokens, most)
    return (Seen(*entries_at(at, at.contexts[0][0], tokens, most), 1.0),)


def _generated(at: Pass, tokens: int, most: float | None) -> tuple[Seen, ...]:
    nodes = split_at(at.contexts, *entry_kinks(at.new_tokens, tokens, most))
    return tuple(Seen(*_staircase(at.new_tokens, end, tokens, most), share) for end, share in nodes)


def entry_kinks(rows: int, tokens: int, most: float | None) -> tuple[float, ...]:
    """Return the ends of a pass between which generated rows' counts are linear.

    Row after row reaches `most` entries; with n rows the n k entries they may read together are there last.
    """
    if most is None:
        return ()
    return (*(most * tokens + row for row in range(rows)), rows * most * tokens)


def entries_at(at: Pass, end: float, tokens: int, most: int | None) -> tuple[float, float]:
    """Return pairs with complete entries and distinct entries read, of a pass that ends at `end` tokens."""
    if at.generates:
        return _staircase(at.new_tokens, end, tokens, most)
    pairs = entry_pairs(int(end), tokens, most) - entry_pairs(int(end) - at.new_tokens, tokens, most)
    return pairs, min(float(int(end) // tokens), pairs)


def _staircase(rows: int, end: float, tokens: int, most: float | None) -> tuple[float, float]:
    """Return pairs and entries of generated rows: the sum of min(i / t, k) over the last n tokens i; min(e / t, pairs).

    >>> _staircase(1, 100.0, 4, None), _staircase(1, 100.0, 4, 20), _staircase(2, 100.0, 4, 20)
    ((25.0, 25.0), (20.0, 20.0), (40.0, 25.0))
    """
    pairs = causal_pairs(rows, None if most is None else most * tokens, prefix=end - rows) / tokens
    return pairs, min(end / tokens, pairs)
