"""Rows and blocks: which batches are priced for which sharding, and how rows are packed."""

from collections.abc import Iterator

import numpy as np

from inferometer.estimate.candidates import Block, Index, Placements
from inferometer.graph.ops import Column

POINTS_PER_OCTAVE = 8
BLOCK_CANDIDATES = 1 << 16
"""Candidates a block holds at most (unless one row has more): its columns stay in cache."""
BLOCK_ROWS = 8192
MAX_SEQUENCES = float(1 << 24)


def batch_grid(limit: int) -> Column:
    """Return batches 1..limit: all up to 16, then 8 an octave, and the limit itself.

    >>> batch_grid(21).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 18.0, 20.0, 21.0]
    """
    points: list[int] = []
    point = 1
    while point < limit:
        points.append(point)
        point += max(1, (1 << (point.bit_length() - 1)) // POINTS_PER_OCTAVE)
    return np.array([*points, limit], dtype=np.float64)


def grid_rows(fits: Column) -> tuple[Index, Column]:
    """Return (sharding, B) rows: for each sharding the grid up to what fits, and that most itself.

    `fits` is the most sequences of a rank, (m,); shardings below 1 have no row. Rows of a sharding are
    contiguous, B ascending.
    """
    most = np.minimum(fits, MAX_SEQUENCES)
    grid = batch_grid(int(max(most.max(initial=0.0), 1.0)))
    below = np.searchsorted(grid, most, side="left")
    counts = np.where(most >= 1, below + 1, 0)
    sharding = np.repeat(np.arange(len(most)), counts)
    starts = np.cumsum(counts) - counts
    position = np.arange(len(sharding)) - starts[sharding]
    last = position == counts[sharding] - 1
    return sharding, np.where(last, most[sharding], grid[position])


def blocks(sharding: Index, sequences: Column, placements: Placements, order_key: Column) -> Iterator[tuple[Index, Block]]:
    """Yield (row index, block), rows grouped by `order_key` (stage kinds) and number of placements.

    A sharding's rows stay together and in order.
    """
    counts = np.diff(placements.start)[sharding]
    order = np.lexsort((np.arange(len(sharding)), sharding, counts, order_key[sharding]))
    counts, key = counts[order], order_key[sharding][order]
    begin = 0
    while begin < len(order):
        most = counts[begin : begin + BLOCK_ROWS]
        same = key[begin : begin + BLOCK_ROWS] == key[begin]
        rows = np.arange(1, len(most) + 1)
        fits = int(np.count_nonzero(same & (np.maximum.accumulate(most) * rows <= BLOCK_CANDIDATES)))
        end = begin + max(fits, 1)
        index = order[begin:end]
        yield index, Block(sharding[index], sequences[index], pairs_of(sharding[index], placements))
        begin = end


def pairs_of(sharding: Index, placements: Placements) -> Index:
    """Return (P, n) pairs of each row's sharding; past a row's own count its first is repeated."""
    start = placements.start[sharding]
    counts = placements.start[sharding + 1] - start
    offset = np.arange(int(counts.max()))[:, None]
    return start + np.where(offset < counts, offset, 0)
