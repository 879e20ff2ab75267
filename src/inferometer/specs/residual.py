"""How a model adds what its blocks give to what they took, where a plain sum does not: one description a scheme.

Letters: H hidden, n streams.
"""

from inferometer.specs.block import Spec


class HyperConnections(Spec, tag="hyper", frozen=True, kw_only=True):
    """n streams of H, weighed before and after every block (mHC, arXiv:2512.24880; DeepSeek-V4, GLM-5.3-Flash).

    fp32 tensors of a block: `fn` [m, n H], `base` [m], `scale`, where m = 2 n, and n n more that mix the streams.
    """

    streams: int
    mixes: bool = True
    """Streams are mixed with each other; independent ones are not (Hy4's iHC)."""
    head: bool = True
    """The streams are weighed once more before the final norm; else by the last block's weights (DeepSeek-V4.1)."""


class GatedStreams(Spec, tag="gated", frozen=True, kw_only=True):
    """n streams of H, gated an element through a low rank before every block (Qwen3.8-Flash-Next).

    Tensors of a block: a norm [n H], `down` [rank, n H], `up` [n H, rank], `inject` [n, n H]; the last has no inject.
    """

    streams: int
    rank: int


class AttentionResiduals(Spec, tag="attention", frozen=True, kw_only=True):
    """A block takes a softmax average of the stream and of what earlier groups of layers gave (Kimi K3, Inkling 2).

    Tensors of a block: a query [H], and a norm [H] where it has weights.
    """

    every: int
    """Layers of a group; the stream at its start is stored."""
    norm: bool = True
    """The norm of what is averaged has weights."""
    format: str | None = None
    """Format of the tensors, where it is not the model's dtype."""


Residual = HyperConnections | GatedStreams | AttentionResiduals
