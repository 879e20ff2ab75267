"""What mixes a layer's tokens: one description a kind. Shapes only, no arithmetic.

Letters: H hidden, N query heads, K kv heads, D head dim.
"""

from typing import Literal

from inferometer.specs.block import Block
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv


class Attention(Block, tag="attention", frozen=True, kw_only=True):
    """Softmax attention with grouped kv heads: MHA (K = N), GQA, MQA (K = 1). Tensors `q k v gate o`."""

    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int | None = None
    """Width of a head of v; None: head_dim."""
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    """A norm of q and k."""
    qk_norm_over: Literal["head", "heads", "all"] = "head"
    """head: over each head, its weights shared by the heads; heads: over each head, each with its own weights
    (Cohere); all: over all heads at once, with weights as wide as q and k (OLMo 2)."""
    qk_norm_bias: bool = False
    """The norms of q and k are LayerNorms with a bias (Phi)."""
    window: int | None = None
    """Sliding window in tokens; None attends to everything."""
    chunk: int | None = None
    """Tokens attend within consecutive chunks of so many tokens (Llama 4); None attends across."""
    sinks: bool = False
    """One learned logit a head in the softmax's sum (gpt-oss)."""
    v_from_k: bool = False
    """v is k before its norm and rotation: no v projection, but both are cached, for they differ (Gemma 4)."""
    kv_shared: bool = False
    """k and v are those of a layer before: no k and v projections and no cache of its own."""
    gate: Literal["none", "head", "wide"] = "none"
    """A sigmoid gate on the output: none, one a head, one an element."""
    sub_norm: bool = False
    """A norm of o's input (BitNet)."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        own = () if self.kv_shared else ("k",) if self.v_from_k else ("k", "v")
        return ("q", *own, *(("gate",) if self.gate != "none" else ()), "o")


class Mla(Block, tag="mla", frozen=True, kw_only=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): K and V from one latent.

    Tensors `q_a q_b q kv_a kv_b o`.
    """

    heads: int
    q_rank: int | None
    """Width of the q latent; None projects q directly."""
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    bias: bool = False
    """Biases on q_a, kv_a and o (`attention_bias`)."""
    gate: Literal["none", "head", "wide"] = "none"
    """A sigmoid gate on the output: none, one a head, one an element."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        gate = ("gate",) if self.gate != "none" else ()
        return (*(("q",) if self.q_rank is None else ("q_a", "q_b")), "kv_a", "kv_b", *gate, "o")


Single = Attention | Mla | LinearAttention | Mamba1 | Mamba2 | ShortConv
"""A mixer alone."""


class Beside(Block, tag="beside", frozen=True, kw_only=True):
    """Mixers that run beside each other on one normed input; their outputs are added (Falcon-H1)."""

    parts: tuple[Single, ...]
    """No two of one kind, without norms around them: those are the layer's."""

    def __post_init__(self) -> None:
        """Check that the parts differ in kind and leave the norms to the layer."""
        if len(self.parts) <= 1 or len({type(part) for part in self.parts}) != len(self.parts):
            raise ValueError("mixers beside each other are two or more, each of another kind")
        if any(part.pre_norm or part.post_norm for part in self.parts):
            raise ValueError("mixers beside each other have no norms of their own around them")

    def matrices(self) -> tuple[str, ...]:
        """Return no names: each part has its own."""
        return ()


Mixer = Single | Beside
