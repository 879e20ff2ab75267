"""Mixers that keep a state of fixed size: one description a kind. Shapes only, no arithmetic.

Letters: H hidden, N heads of the state, G groups (heads of q and k, or of B and C), D key dim, E value dim, C chunk.
"""

from typing import Literal

from inferometer.specs.block import Block


class LinearAttention(Block, tag="linear", frozen=True, kw_only=True):
    """Attention without a softmax: a state of D x E a head that decays and takes up k v^T with every token.

    Gated delta net (one decay a head, delta rule), KDA (one decay a key channel, delta rule), lightning attention
    (fixed decay, no delta rule). Tensors `q k v beta decay decay_a decay_b gate gate_a gate_b o`.
    """

    heads: int
    """N: heads of v, of the state and of the output."""
    key_heads: int
    """G: heads of q and k, each used by N / G heads of v."""
    key_dim: int
    value_dim: int
    decay: Literal["fixed", "head", "channel"]
    """fixed: a constant a head; head: from the token, one a head; channel: from the token, one a key channel."""
    delta: bool = True
    """The delta rule: what the state holds for k is taken away first, by a learned share `beta` a head."""
    decay_rank: int | None = None
    """Width between `decay_a` and `decay_b`; None: one matrix `decay`."""
    gate: Literal["none", "head", "wide"] = "wide"
    """A gate on the output: none, one a head, one an element."""
    gate_rank: int | None = None
    """Width between `gate_a` and `gate_b`; None: one matrix `gate`."""
    cut_latents: bool = False
    """TP splits `decay_a` and `gate_a` and gathers what they give; engines keep them whole on every rank."""
    conv: int = 0
    """Tokens that the convolution of q, k and v spans; 0: none."""
    qk_norm: bool = False
    """A norm with weights of each head of q and k (where it has none, it is not listed)."""
    out_norm_groups: int | None = None
    """Groups that the norm of the output runs over, its weights N E; None: over each head, its weights E."""
    chunk: int = 64
    """C: tokens a prefill takes at once."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        beta = ("beta",) if self.delta else ()
        decay = ("decay",) if self.decay_rank is None else ("decay_a", "decay_b")
        gate = ("gate",) if self.gate_rank is None else ("gate_a", "gate_b")
        return (
            *("q", "k", "v"),
            *beta,
            *(decay if self.decay != "fixed" else ()),
            *(gate if self.gate != "none" else ()),
            "o",
        )


class Mamba2(Block, tag="mamba2", frozen=True, kw_only=True):
    """State-space duality (arXiv:2405.21060): a state of P x S a head, B and C shared by the heads of a group.

    Tensors `z x b c dt o`.
    """

    heads: int
    head_dim: int
    """P: channels of a head; the inner width is N P."""
    groups: int
    state: int
    """S: width of B and C, of a group."""
    conv: int
    """Tokens that the convolution of x, B and C spans."""
    conv_bias: bool = True
    in_bias: bool = False
    out_bias: bool = False
    gated_norm: bool = True
    """A norm of the gated output, over each group."""
    chunk: int = 128
    """C: tokens a prefill takes at once."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        return ("z", "x", "b", "c", "dt", "o")


class Mamba1(Block, tag="mamba1", frozen=True, kw_only=True):
    """Selective state space (arXiv:2312.00752): a state of S a channel, B, C and the time step from x itself.

    Tensors `z x select dt o`.
    """

    inner: int
    """Channels."""
    state: int
    """S."""
    dt_rank: int
    """Width of the time step's latent."""
    conv: int
    """Tokens that the convolution of x spans."""
    conv_bias: bool = True
    bias: bool = False
    """Biases of the projections in and out."""
    inner_norms: bool = False
    """Norms of the time step's latent, B and C (Jamba)."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        return ("z", "x", "select", "dt", "o")


class ShortConv(Block, tag="short-conv", frozen=True, kw_only=True):
    """A gated short convolution, C * conv(B * x) (LFM2). Tensors `in o`."""

    width: int
    conv: int
    """Tokens that the convolution spans."""
    bias: bool = False

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        return ("in", "o")
