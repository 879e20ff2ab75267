"""Memory tables: rows found by hashes of a token and those before it, projected and added. Shapes only.

Letters: H hidden, w width of a row, n residual streams.
"""

from typing import Literal

from inferometer.specs.block import Block


class Lookup(Block, tag="lookup", frozen=True, kw_only=True):
    """Rows of tables, projected to H and added to the stream; a block of its own, without a norm before it.

    Tensors: `table`, [rows, w], and `project`, [outputs H, reads w].
    """

    rows: int
    """Rows of all tables together."""
    width: int
    """w: elements of a row."""
    reads: int
    """Rows that a token reads."""
    outputs: int = 1
    """Vectors of H that the rows are projected to: one that is added, or a key for each stream and a value."""
    norms: int = 0
    """Norms over all streams."""
    conv: int = 0
    """Taps of a convolution of each stream's channels over tokens; 0 where there is none."""
    place: Literal["hbm", "host"] = "hbm"
    """Where the tables are: in the chips' memory, columns split over TP; or in the host's, one for all its chips."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        return ("table", "project")
