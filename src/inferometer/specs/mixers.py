"""What mixes a layer's tokens: one description a kind. Shapes only, no arithmetic.

Letters: H hidden, N query heads, K kv heads, D head dim.
"""

from typing import Literal

from inferometer.specs.block import Block
from inferometer.specs.indexer import Indexer
from inferometer.specs.matrix import Matrix
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv


class Attention(Block, tag="attention", frozen=True, kw_only=True):
    """Softmax attention with grouped kv heads: MHA (K = N), GQA, MQA (K = 1).

    Tensors `q k v r sink k_taps v_taps gate o`.
    """

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
    k_norm: bool = True
    """k has a norm where q has one; a layer whose k is another's may lack it (Gemma 4)."""
    gate: Literal["none", "head", "wide"] = "none"
    """A sigmoid gate on the output: none, one a head, one an element."""
    sub_norm: bool = False
    """A norm of o's input (BitNet)."""
    conv: int = 0
    """Taps of short convolutions of the channels of k and v over tokens (Inkling); 0: none."""
    relative: int = 0
    """Width of a head's relative state, which gives logits by distance in place of rotations (Inkling); 0: none."""
    relative_extent: int = 0
    """Distances that have such logits."""
    relative_norm: bool = False
    """Each head's relative state has a norm of its own weights (Inkling 2)."""
    token_sinks: bool = False
    """The sink's logit is made of the layer's input (Inkling 2)."""
    token_taps: bool = False
    """Taps of the convolutions of k and v are partly made of the layer's input, a set a kv head (Inkling 2)."""
    inputs: int = 1
    """Vectors made of the stream, each with a norm: 3 where q, k and v have one each (Inkling 2)."""
    message_rank: int = 0
    """Rank of the gates that mix what the visit before left into the inputs of q, k, v and the feed-forward
    (Inkling 2 Mini); 0: there are none."""
    indexer: Indexer | None = None
    """Picks the tokens that a query reads; None reads all."""

    def __post_init__(self) -> None:
        """Check that one rule at most limits what a query reads."""
        _check_limits(self.window, self.chunk, self.indexer)

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        own = () if self.kv_shared else ("k",) if self.v_from_k else ("k", "v")
        index = self.indexer.matrices() if self.indexer else ()
        held = (
            ("r", self.relative > 0),
            ("sink", self.token_sinks),
            ("k_taps", self.token_taps),
            ("v_taps", self.token_taps),
            ("gate", self.gate != "none"),
            ("o", True),
        )
        return ("q", *own, *(name for name, has in held if has), *index)


class CrossAttention(Block, tag="cross", frozen=True, kw_only=True):
    """Softmax attention over a sequence's images (Llama 3.2 Vision). Tensors `q k v o`.

    K and V are made of the images once and kept. A layer without images is skipped, its feed-forward too.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qk_norm: bool = False
    """A norm of every head of q and k."""
    gates: int = 0
    """Scalars that scale what its layer adds to the residual stream."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        return ("q", "k", "v", "o")


class Mla(Block, tag="mla", frozen=True, kw_only=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): K and V from one latent.

    Tensors `q_a q_b q kv_a kv_b gate o`.
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
    split_up: bool = False
    """kv_b is stored as its two halves: engines absorb it and keep the latent, whatever they do with others."""
    window: int | None = None
    """Sliding window in tokens; None attends to everything."""
    gate: Literal["none", "head", "wide"] = "none"
    """A sigmoid gate on the output: none, one a head, one an element."""
    sinks: bool = False
    """One learned logit a head in the softmax's sum."""
    head_scales: bool = False
    """A scale and a bias a head of the softmax (Mistral Large 4)."""
    rope_norm: bool = False
    """A norm of the rotated part of the keys (dots3)."""
    kv_shared: bool = False
    """The latent is that of a layer before: no kv_a and no cache of its own."""
    cut_latents: bool = False
    """TP splits q_a and kv_a and gathers the latents; engines keep them whole on every rank."""
    indexer: Indexer | None = None
    """Picks the tokens that a query reads; None reads all."""

    def __post_init__(self) -> None:
        """Check that one rule at most limits what a query reads."""
        _check_limits(self.window, None, self.indexer)

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        query = ("q",) if self.q_rank is None else ("q_a", "q_b")
        own = () if self.kv_shared else ("kv_a",)
        index = self.indexer.matrices() if self.indexer else ()
        return (*query, *own, "kv_b", *(("gate",) if self.gate != "none" else ()), "o", *index)


class Compressed(Block, tag="compressed", frozen=True, kw_only=True):
    """DeepSeek-V4's attention: one key that is its own value, a window of tokens, and entries made of several.

    Every head reads the last `window` tokens and, where `ratio` is not 0, entries that each stand for `ratio` tokens:
    those its indexer picks, or all. Tensors `q_a q_b kv out_a out_b`, of the compressor `compress_kv compress_gate`,
    of the indexer `index_q index_weights` and `index_kv index_gate`, which compress its keys, or `index_k`.
    """

    heads: int
    head_dim: int
    rope_dim: int
    """Rotated elements of a head, kept in bf16 by fp8 caches."""
    q_rank: int
    out_groups: int
    """Groups of heads that are projected apart, each to `out_rank`, before one projection of all."""
    out_rank: int
    window: int
    ratio: int = 0
    """Tokens an entry stands for; 0 has the window alone."""
    overlap: bool = False
    """An entry is made of the tokens of two windows of `ratio`, each with its own projections."""
    gated: bool = True
    """Entries are a learned softmax over their tokens; False: one token's own, as where `ratio` is 1."""
    gate_bias: bool = True
    """That softmax has a bias for each place."""
    entries_shared: bool = False
    """The entries are those of a layer before: no compressor and no cache of its own."""
    indexer: Indexer | None = None
    """Picks the entries; its keys are made like the entries. `top_k` and `pool` count entries and tokens of one."""
    index_keys: Literal["compressed", "latent", "shared"] = "compressed"
    """Index keys are compressed from the layer's input, projected from its entries, or those of a layer before."""
    sinks: bool = True

    def __post_init__(self) -> None:
        """Check that what needs entries has them."""
        if self.ratio == 0 and (self.indexer or self.entries_shared or self.overlap):
            raise ValueError("an indexer, shared entries and overlap need a ratio")
        if self.heads % self.out_groups:
            raise ValueError(f"{self.out_groups} output groups must divide {self.heads} heads")

    @property
    def compresses(self) -> bool:
        """Whether it makes entries of its own."""
        return self.ratio > 0 and not self.entries_shared

    @property
    def makes(self) -> bool:
        """Whether it makes entries or index keys of its own."""
        own = self.indexer is not None and not self.indexer.shared and self.index_keys != "shared"
        return self.compresses or own

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        own = ("compress_kv", *(("compress_gate",) if self.gated else ())) if self.compresses else ()
        return ("q_a", "q_b", "kv", "out_a", "out_b", *own, *self._index())

    def _index(self) -> tuple[str, ...]:
        if self.indexer is None or self.indexer.shared:
            return ()
        keys = {"compressed": ("index_kv", "index_gate"), "latent": ("index_k",), "shared": ()}[self.index_keys]
        return ("index_q", "index_weights", *keys)


def _check_limits(window: int | None, chunk: int | None, indexer: Indexer | None) -> None:
    if sum(limit is not None for limit in (window, chunk, indexer)) > 1:
        raise ValueError("one of window, chunk and indexer limits what a query reads")


Indexed = Attention | Mla | Compressed
"""Mixers that may have an indexer."""

Single = Attention | CrossAttention | Mla | Compressed | LinearAttention | Mamba1 | Mamba2 | ShortConv | Matrix
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
