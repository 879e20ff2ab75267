"""What the weight files of a checkpoint hold, summed up."""

from inferometer.specs.block import Spec


class Checkpoint(Spec, frozen=True, kw_only=True):
    """Sums over the headers of a checkpoint's files, or what its index says of them."""

    files: int
    """0 where only an index is at hand."""
    tensors: int
    stored_bytes: int
    bytes_by_kind: dict[str, int]
    """By kind of tensor, judged by its name; `mtp` is a token predictor's. Empty of an index."""
