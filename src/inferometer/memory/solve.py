"""The most that fits: inverses of `plan(...).fits`, by bisection on it, so they cannot disagree.

Valid because a larger batch and a longer sequence never need less: a law that the tests keep.
"""

from collections.abc import Callable
from dataclasses import replace

from inferometer.memory.asked import Asked
from inferometer.memory.division import Plan
from inferometer.memory.plan import Divider, Sharding, plan

MOST_SEQUENCES = 1 << 31
"""Where nothing limits the batch."""


def most(fits: Callable[[int], bool], limit: int, known: int = 0) -> int:
    """Return the largest n up to `limit` that fits, 0 where 1 does not; `known` is one that does.

    >>> most(lambda n: n * n <= 50, 100), most(lambda n: n * n <= 50, 100, 5), most(lambda n: n * n <= 50, 6, 5)
    (7, 7, 6)
    """
    if not known and not fits(1):
        return 0
    low = max(known, 1)
    step = 1
    while (high := low + step) <= limit and fits(high):
        low, step = high, 2 * step
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def max_batch(asked: Asked) -> int:
    """Return the most sequences in flight over the deployment that fit, 0 where none does.

    Whole rounds of ranks are tried, for a rank's share decides: the last round is full.
    """
    return max_rounds(Divider(asked, (Sharding(asked.sizes, asked.splits),)), 0) * asked.ranks


def max_rounds(divider: Divider, index: int) -> int:
    """Return the most sequences that a rank of a sharding holds, 0 where it holds none.

    What a batch leaves room for falls as it grows. So no more fit than there is room for beside one sequence: all of
    them where the engine is started alike for one. If that many do not, at least as many fit as they leave room for.
    """
    sizes = divider.shardings[index].sizes
    ranks = sizes.r * sizes.dpa

    def at(rounds: int) -> Plan:
        return divider.plan(index, rounds * ranks)

    first = at(1)
    if not first.fits:
        return 0
    limit = MOST_SEQUENCES // ranks
    limit = int(min(limit, max(first.holds, 1.0), divider.asked.max_num_seqs or limit))
    many = replace(first.asked, batch=limit * ranks)
    if (many.seqs, many.pass_tokens) == (first.asked.seqs, first.asked.pass_tokens):
        return limit
    last = at(limit)
    if last.fits:
        return limit
    low, high = max(int(last.holds), 1), limit - 1
    kept = at(low)
    return most(lambda n: at(n).fits, int(min(high, kept.holds)), low) if kept.fits else most(lambda n: at(n).fits, low)


def max_context(asked: Asked, *, serve: bool) -> int:
    """Return the longest sequences that fit with the batch asked for, 0 where one token does not.

    `serve`: the engine is started for that length too; else `max_model_len` bounds it. At most what the model states.
    """
    longest = asked.model.max_context if serve else min(asked.max_model_len, asked.model.max_context)

    def fits(length: int) -> bool:
        return plan(with_context(asked, length, serve=serve)).fits

    return most(fits, longest)


def with_context(asked: Asked, length: int, *, serve: bool) -> Asked:
    """Return the question with sequences of `length`; `serve`: the engine is started for that length too."""
    return replace(asked, context=length, max_model_len=length if serve else asked.max_model_len)
