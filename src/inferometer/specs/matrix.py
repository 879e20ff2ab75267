"""A matrix in place of a mixer or of a feed-forward."""

from inferometer.specs.block import Block


class Matrix(Block, tag="matrix", frozen=True, kw_only=True):
    """One square matrix where a search for cheaper layers put it (Puzzle, arXiv:2411.19146). Tensor `matrix`."""

    width: int
    """H: features it takes and gives."""
    bias: bool = False

    def matrices(self) -> tuple[str, ...]:
        """Return the name of its matrix."""
        return ("matrix",)
