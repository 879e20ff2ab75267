"""Rows and blocks: which batches are priced for which sharding, and how rows are packed."""

from collections.abc import Iterator

import numpy as np

from inferometer.estimate.candidates import Block, Index, Placements, pairs_of
from inferometer.graph.ops import Column, Mask

LEAST_BATCHES, MOST_BATCHES = 48, 512
ROWS = 3 << 14
"""Rows a search aims at: batches a sharding are as many as that leaves each one, between the two limits."""
BLOCK_CANDIDATES = 1 << 16
"""Candidates a block holds at most (unless one sharding has more): its columns stay in cache."""
BLOCK_ROWS = 1 << 13
PADDING = 1.5
"""Most candidates a block may hold for each one of its own, once it is half full."""
MAX_SEQUENCES = float(1 << 24)


def batches_each(n_shardings: int) -> int:
    """Return how many batches each sharding is priced at.

    >>> batches_each(84), batches_each(500), batches_each(2000)
    (512, 98, 48)
    """
    return min(max(ROWS // max(n_shardings, 1), LEAST_BATCHES), MOST_BATCHES)


def batch_grid(most: Column, count: int) -> Column:
    """Return `count` batches for each sharding, (m, G), from 1 to its `most` (m,): whole, in equal ratios.

    Up to `count` every batch is listed, and the last is repeated.

    >>> grid = batch_grid(np.array([5.0, 1000.0]), 64)
    >>> grid[0, :6].tolist(), grid[1, [0, 31, 63]].tolist()
    ([1.0, 2.0, 3.0, 4.0, 5.0, 5.0], [1.0, 32.0, 1000.0])
    """
    number = np.arange(1, count + 1, dtype=np.float64)
    ratio = most ** (1 / (count - 1))
    spread = np.floor(ratio[:, None] ** (number - 1) + 1e-9)
    spread[:, -1] = most
    return np.minimum(np.maximum(spread, number), most[:, None])


def blocks(most: Column, placements: Placements, order_key: Column, *, fixed: bool = False) -> Iterator[Block]:
    """Yield blocks of the shardings with `most` >= 1 sequence a rank, (m,), at batches up to it.

    Shardings of one block share `order_key` (number of stage kinds) and are alike in placements.
    `fixed` prices `most` alone.
    """
    ways = np.diff(placements.start)
    order = np.lexsort((ways, order_key))
    order = order[most[order] >= 1]
    count = 1 if fixed else batches_each(len(order))
    begin = 0
    while begin < len(order):
        ahead = order[begin : begin + max(BLOCK_ROWS // count, 1)]
        size = _block_size(ways[ahead], order_key[ahead] == order_key[ahead[0]], BLOCK_CANDIDATES // count)
        index = ahead[:size]
        held = np.minimum(most[index], MAX_SEQUENCES)
        yield Block(index, held[:, None] if fixed else batch_grid(held, count), pairs_of(index, placements))
        begin += size


def _block_size(ways: Index, same: Mask, full: int) -> int:
    """Return how many of the shardings ahead to take: no more than fit, and where padding would grow, stop."""
    padded = ways * np.arange(1, len(ways) + 1)
    own = np.cumsum(ways)
    fit = same & (padded <= full) & ((padded <= PADDING * own) | (padded <= full // 2))
    return max(int(np.argmin(fit)) if not fit.all() else len(fit), 1)
