"""What a layer keeps of a sequence: entries that grow with its length, or a state of fixed size.

The one declaration that cache bytes, residents and diagnostics are derived from. Letters: S context, n heads, w width.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from inferometer.blocks.tensors import Shards
from inferometer.graph.ops import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Entries of `heads` x `width` elements; a shard key names how many ways the heads split."""

    name: str
    """What it is, for breakdowns and diagnostics: kv, latent, index, state, conv."""
    heads: int = 1
    width: int
    split: str = ""
    """Shard key of the heads; "" is a copy on every TP rank."""
    format: str | None = None
    """Format of the elements; None is what `stored` says."""
    stored: Literal["kv", "state", "dtype"] = "kv"
    """Which of the model's formats its elements have: of its KV, of its recurrent state, of its activations."""
    tokens: int = 1
    """Tokens one entry stands for."""
    most: int | None = None
    """Entries kept at most: a window, a chunk."""
    fixed: bool = False
    """A state: one entry however long the sequence is."""

    def entries(self, context: float) -> float:
        """Return the entries of a sequence of `context` tokens: min(S / tokens, most); of a state 1.

        >>> Cache(name="kv", width=1, most=8).entries(100.0), Cache(name="kv", width=1, tokens=4).entries(100.0)
        (8.0, 25.0)
        """
        if self.fixed:
            return 1.0
        made = context / self.tokens
        return min(made, float(self.most)) if self.most else made

    def local_elements(self, shards: Shards, dcp: Column) -> Column:
        """Return the elements of one entry that a chip holds, a column: ceil(n / shards) w, over DCP where it grows."""
        heads = np.ceil(self.heads / shards[self.split]) if self.split else np.asarray(float(self.heads))
        elements: Column = heads * self.width
        return elements if self.fixed else elements / dcp
