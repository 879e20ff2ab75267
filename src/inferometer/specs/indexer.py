"""The part of a sparse mixer that picks what its queries read. Shapes only, no arithmetic.

DeepSeek-V3.2's lightning indexer and its kin: a small attention scores every key of a cache of its own, and the real
one reads the best. Letters: H hidden, n index heads, d index head dim, p tokens a key stands for.
"""

from typing import Literal

from inferometer.specs.block import Spec


class Indexer(Spec, frozen=True, kw_only=True):
    """Scores keys and keeps the best. Tensors `index_q index_k index_weights index_pool`."""

    heads: int
    dim: int
    top_k: int
    """Tokens (of compressed attention: entries) that a query reads at most."""
    pool: int = 1
    """Tokens one key stands for; those of an unfinished pool are always read."""
    pool_gate: bool = False
    """Pools are made by a learned softmax, not by a mean."""
    block: int = 1
    """Keys chosen together, by their best score (MiniMax-M3)."""
    among: int | None = None
    """Keys scored at most: those that a layer before has chosen roughly (DeepSeek-V4.1); None scores all."""
    lists: int = 1
    """Choices made for a token: one for all heads, or one a kv head."""
    weighted: bool = True
    """A weight an index head, made of the layer's input."""
    q_norm: bool = False
    """An RMS norm of the index queries."""
    k_norm: Literal["none", "rms", "layer"] = "layer"
    input_norm: bool = False
    """A LayerNorm of what the queries are made of (Mistral Large 4)."""
    head_scales: bool = False
    """A scale and a bias an index head."""
    shared: bool = False
    """Uses the choice of a layer before: no tensors, no keys, no work."""
    key_format: str | None = "fp8-g128"
    """Format of the cached keys; None follows the KV format."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        if self.shared:
            return ()
        more = (("index_weights", self.weighted), ("index_pool", self.pool_gate))
        return ("index_q", "index_k", *(name for name, held in more if held))
