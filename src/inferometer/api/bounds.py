"""What numbers every question takes at most: more is a slip."""

from inferometer.errors import InferometerError

MAX_SEQUENCES = 100_000_000
"""Largest batch taken."""

MAX_SLOTS = 10_000
"""Most copies of a state taken."""


def check_batch(batch: int | None) -> None:
    """Raise InferometerError for a batch that is not a number of sequences."""
    if batch is not None and not 1 <= batch <= MAX_SEQUENCES:
        raise InferometerError(f"--batch-size {batch}: must be from 1 to {MAX_SEQUENCES} sequences")
