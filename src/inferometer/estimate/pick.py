"""Reads the values of one candidate out of columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferometer.estimate.candidates import Index
from inferometer.graph.ops import Column

PLACED = 3
"""Dimensions of a column over slots or placements; one over rows alone has two, a constant none."""


def pick(column: Column, row: int, along: int = 0) -> float:
    """Return a value of a column of shape (), (m, 1) or (S, m, 1): of one row, at `along` of the first axis."""
    if column.ndim == 0:
        return float(column)
    at_row = row if column.shape[-2] > 1 else 0
    if column.ndim < PLACED:
        return float(column[at_row, 0])
    return float(column[along if len(column) > 1 else 0, at_row, 0])


class Rows:
    """Some rows of a block, each at one placement: reads a column at all of them at once, and once."""

    def __init__(self, rows: Index, placements: Index) -> None:
        self.rows = rows
        self.placements = placements
        self._read: dict[int, tuple[Column, list[float]]] = {}

    def values(self, column: Column, along: Index | int = 0) -> list[float]:
        """Return a column's value at every row, `along` its first axis where it has three."""
        known = self._read.get(id(column))
        if known is None:
            known = self._read[id(column)] = (column, self._values(column, along))
        return known[1]

    def _values(self, column: Column, along: Index | int) -> list[float]:
        if column.ndim == 0:
            return [float(column)] * len(self.rows)
        at_row = self.rows if column.shape[-2] > 1 else 0
        placed = column.ndim == PLACED
        found = column[along if len(column) > 1 else 0, at_row, 0] if placed else column[at_row, 0]
        listed: list[float] = found.reshape(-1).tolist()
        return listed if len(listed) == len(self.rows) else listed * len(self.rows)


@dataclass(frozen=True, slots=True)
class Shape:
    """Shapes of an op, in -> out; written with the sizes of a row when somebody reads them, as few are read.

    >>> str(Shape("16 x 128"))
    '16 x 128'
    """

    text: str
    """A name in braces stands for one of `sizes`."""
    sizes: Mapping[str, Column] = field(default_factory=dict)
    row: int = 0

    def __str__(self) -> str:
        """Return the text: whole sizes as such, means with a digit."""
        sizes = {name: pick(column, self.row) for name, column in self.sizes.items()}
        shown = {name: f"{size:.0f}" if size == round(size) else f"{size:.1f}" for name, size in sizes.items()}
        return self.text.format(**shown)

    def __eq__(self, other: object) -> bool:
        """Return whether the same is read."""
        return isinstance(other, Shape) and str(self) == str(other)

    def __hash__(self) -> int:
        """Hash what is read."""
        return hash(str(self))
