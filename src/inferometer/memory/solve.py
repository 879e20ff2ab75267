"""The most that fits: inverses of `plan(...).fits`, by bisection on it, so they cannot disagree.

Valid because a larger batch and a longer sequence never need less: a law that the tests keep.
"""

from collections.abc import Callable
from dataclasses import replace

from inferometer.memory.asked import Asked
from inferometer.memory.plan import plan

MOST_SEQUENCES = 1 << 31
"""Where nothing limits the batch."""


def most(fits: Callable[[int], bool], limit: int) -> int:
    """Return the largest n up to `limit` that fits, 0 where 1 does not.

    >>> most(lambda n: n * n <= 50, 100)
    7
    """
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def max_batch(asked: Asked) -> int:
    """Return the most sequences in flight over the deployment that fit, 0 where none does.

    Whole rounds of ranks are tried, for a rank's share decides: the last round is full.
    """
    rounds = most(lambda n: plan(replace(asked, batch=n * asked.ranks)).fits, MOST_SEQUENCES // asked.ranks)
    return rounds * asked.ranks


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
