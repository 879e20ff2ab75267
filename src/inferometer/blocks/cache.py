"""What a layer keeps of a sequence: entries that grow with its length, or a state of fixed size.

The one declaration that cache bytes, residents and diagnostics are derived from. Letters: S context, n heads, w width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from inferometer.blocks.tensors import Shards
from inferometer.graph.ops import Column
from inferometer.specs.formats import bytes_per_element, find_format

CONV = "conv"
"""Name of what a convolution keeps: the tokens before the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Entries of `heads` x `width` elements; a shard key names how many ways the heads split."""

    name: str
    """What it is, for breakdowns and diagnostics: kv, latent, index, window, compressed, state, conv, pending."""
    heads: int = 1
    width: int
    split: str = ""
    """Shard key of the heads; "" is a copy on every TP rank."""
    format: str | None = None
    """Format of the elements; None is the model's, by `holds`."""
    holds: Literal["kv", "state", "dtype"] = "kv"
    """Which of the model's formats its elements have: of its KV, of its recurrent state, of its activations."""
    packed: Mapping[str, str] = field(default_factory=dict)
    """KV format -> the format stored in its stead, where elements come with scales."""
    layouts_bytes: Mapping[str, float] = field(default_factory=dict)
    """KV format -> bytes of one entry of a head, where engines lay it out in parts of several formats."""
    tokens: int = 1
    """Tokens one entry stands for."""
    most: int | None = None
    """Entries kept at most: a window, a chunk."""
    fixed: bool = False
    """A state: one entry however long the sequence is."""
    images: bool = False
    """Its entries are of the sequence's image tokens, not of its text."""

    def entries(self, context: float, cross_tokens: int = 0) -> float:
        """Return the entries of a sequence of `context` tokens: min(S / tokens, most); of a state 1.

        >>> Cache(name="kv", width=1, most=8).entries(100.0), Cache(name="kv", width=1, tokens=4).entries(100.0)
        (8.0, 25.0)
        """
        if self.fixed:
            return 1.0
        made = (cross_tokens if self.images else context) / self.tokens
        return min(made, float(self.most)) if self.most else made

    def stored(self, kv_format: str) -> str:
        """Return the format of the elements under a KV format."""
        return self.format or self.packed.get(kv_format, kv_format)

    def head_bytes(self, kv_format: str) -> float:
        """Return the bytes of one head's part of an entry.

        >>> Cache(name="index", width=128, format="fp8-g128").head_bytes("bf16")
        132.0
        """
        if self.format is None and kv_format in self.layouts_bytes:
            return self.layouts_bytes[kv_format]
        return self.width * bytes_per_element(find_format(self.stored(kv_format)))

    def entry_bytes(self, kv_format: str) -> float:
        """Return the bytes of one entry, unsharded."""
        return self.heads * self.head_bytes(kv_format)

    def local_bytes(self, shards: Shards, dcp: Column, kv_format: str) -> Column:
        """Return the bytes of one entry a chip holds, a column: ceil(n / shards) heads, over DCP where it grows."""
        heads = np.ceil(self.heads / shards[self.split]) if self.split else np.asarray(float(self.heads))
        held: Column = heads * self.head_bytes(kv_format)
        return held if self.fixed else held / dcp
