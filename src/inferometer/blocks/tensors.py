"""Tensors of a block: shape, format, and over which role each dimension is sharded.

The one declaration that parameter counts, weight bytes and GEMMs are all derived from.
Letters: r rows (output features), c columns (reduction dimension), n copies (experts).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inferometer.graph.ops import Column
from inferometer.specs.formats import find_format, stored_bytes

INDEX = "index"
"""Kind of a tensor that holds numbers of things, not parameters: its bytes count, its entries do not."""

RESIDUAL = "residual"
"""Kind of what a residual scheme holds: applied at the arithmetic of the attention core, whatever it is stored in."""

TABLE = "memory-table"
"""Kind of a table whose rows are found by hashes of a token and those before it."""

LOOKED_UP = frozenset({INDEX, TABLE})
"""Kinds whose rows are looked up and never multiplied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A [rows, cols] tensor, `count` times (experts). A shard key names how many ways it splits."""

    name: str
    rows: int
    cols: int = 1
    count: int = 1
    format: str
    kind: str
    """What it is, for breakdowns: attention, mixer (projections of a recurrent one), recurrence (its rest),
    ffn, experts, shared-experts, router, norm, embedding, head."""
    split_rows: str = ""
    split_cols: str = ""
    split_count: str = ""
    host: bool = False
    """Held in the host's memory, not in the chip's."""

    @property
    def multiplies(self) -> bool:
        """Whether tokens are multiplied by it: a matrix that is no table."""
        return self.cols > 1 and self.kind not in LOOKED_UP

    @property
    def params(self) -> int:
        """Parameters of all copies, unsharded."""
        return self.rows * self.cols * self.count


Shards = Mapping[str, Column]
"""Shard key -> number of distinct shards, a column."""


STATE_HEADS = "heads of a recurrent state"


class Heads(NamedTuple):
    """Heads of a mixer that TP splits; 0 where it has none."""

    query: int
    """Of queries, or of the output and the state."""
    kv: int = 0
    """Of K and V that are cached along the sequence: TP / DCP splits them."""
    groups: int = 0
    """Of what heads of a state share: TP splits them, and copies them where it exceeds them."""
    what: str = "attention heads"
    """What the first count is of."""


def kv_shards(tp: Column, dcp: Column, kv_heads: int) -> Column:
    """Return how many ways K kv heads split: min(max(TP / DCP, 1), K)."""
    return np.minimum(np.maximum(tp / dcp, 1.0), float(kv_heads))


def group_shards(tp: Column, groups: int) -> Column:
    """Return how many ways G groups of a recurrent mixer split: min(TP, G); DCP has no part in it."""
    return np.minimum(tp, float(groups))


def local_rows(tensor: Tensor, shards: Shards) -> Column:
    """Return the rows a chip holds, a column: ceil(r / shards)."""
    return _split(tensor.rows, tensor.split_rows, shards)


def local_cols(tensor: Tensor, shards: Shards) -> Column:
    """Return the columns a chip holds, a column: ceil(c / shards)."""
    return _split(tensor.cols, tensor.split_cols, shards)


def local_count(tensor: Tensor, shards: Shards) -> Column:
    """Return the copies a chip holds, a column: ceil(n / shards)."""
    return _split(tensor.count, tensor.split_count, shards)


def _split(size: int, key: str, shards: Shards) -> Column:
    return np.ceil(size / shards[key]) if key else np.asarray(float(size))


def one_copy_bytes(tensor: Tensor, shards: Shards) -> Column:
    """Return the bytes of one copy's shard on a chip, scales included."""
    return stored_bytes(find_format(tensor.format), local_rows(tensor, shards), local_cols(tensor, shards))


def held_on_chip(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the tensors that are in a chip's memory."""
    return tuple(tensor for tensor in tensors if not tensor.host)


def chip_bytes(tensors: tuple[Tensor, ...], shards: Shards) -> Column:
    """Return the weight bytes a chip holds of `tensors`, a column."""
    total = np.asarray(0.0)
    for tensor in tensors:
        total = total + one_copy_bytes(tensor, shards) * local_count(tensor, shards)
    return total
