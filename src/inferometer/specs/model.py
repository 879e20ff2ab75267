"""What a model is: per-layer lists over a few block descriptions. Shapes only, no arithmetic.

Letters: H hidden, N query heads, K kv heads, D head dim, F ffn width, E experts, k experts a token.
"""

from typing import Literal

import msgspec


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every spec: frozen, keyword-only, unknown fields refused."""


class Block(Spec, frozen=True, kw_only=True):
    """What every mixer and feed-forward has: the norms around it."""

    pre_norm: bool = True
    """A norm of the input."""
    post_norm: bool = False
    """A norm of the output, before it is added to the residual stream (Gemma 2, OLMo 2)."""
    norm_weight: bool = True
    """The norms have weights; OLMo 1's have none."""
    norm_bias: bool = False
    """The norms are LayerNorms with a bias."""
    formats: dict[str, str] = {}
    """Format by tensor name, where it is not the model's dtype."""


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


class Ffn(Block, tag="ffn", frozen=True, kw_only=True):
    """Dense feed-forward: gated (gate, up, down) or plain (up, down). Tensors `gate up down`."""

    width: int
    gated: bool = True
    bias: bool = False
    parallel: bool = False
    """Runs beside the layer's mixer and is added to it; without `pre_norm` it takes the mixer's normed input."""
    sub_norm: bool = False
    """A norm of down's input (BitNet)."""


class Moe(Block, tag="moe", frozen=True, kw_only=True):
    """Routed experts, with an optional shared expert (or dense branch) beside them.

    Tensors `router gate up down shared_gate_proj shared_up shared_down shared_gate`.
    """

    experts: int
    top_k: int
    width: int
    gated: bool = True
    bias: bool = False
    """Biases of every routed expert (gpt-oss)."""
    shared_width: int = 0
    """Total width of what every token takes beside its experts; 0 where there is nothing."""
    shared_gate: bool = False
    """A 1-wide sigmoid gate on the shared expert."""
    groups: int = 1
    """Expert groups of group-limited routing (`n_group`)."""
    top_groups: int = 1
    """Groups a token may choose from (`topk_group`)."""
    router_bias: bool = False
    """One score-correction bias an expert (`e_score_correction_bias`)."""
    router_linear_bias: bool = False
    """A bias of the router's projection (gpt-oss)."""
    router_scales: bool = False
    """A scale an input channel and one an expert (Gemma 4)."""
    branch_norms: int = 0
    """Norms at the ends of the routed and the dense branch (Gemma 4: 3)."""


Mixer = Attention | Mla
FeedForward = Ffn | Moe


class Layer(Spec, frozen=True, kw_only=True):
    """One decoder layer: which mixer and which feed-forward, by index into the model's lists."""

    mixer: int
    ffn: int


class Tower(Spec, frozen=True, kw_only=True):
    """What stands before the language model (vision, audio, with its projector): counted, not lowered."""

    name: str
    shapes: dict[str, tuple[int, int, int]]
    """Tensor -> (rows, columns, times it occurs)."""


class ModelSpec(Spec, frozen=True, kw_only=True):
    """A decoder-only language model. Shapes are of the checkpoint, unsharded."""

    name: str
    architecture: str
    """The config's `model_type`."""
    hidden: int
    vocab: int
    max_context: int
    """Longest context the config states, in tokens."""
    mixers: tuple[Mixer, ...]
    ffns: tuple[FeedForward, ...]
    layers: tuple[Layer, ...]
    tied: bool
    """Input embedding and head share one table."""
    dtype: str
    """Format of every tensor that no other rule covers."""
    head_format: str | None = None
    """Format of the head, where it is not `dtype`."""
    kv_format: str = "bf16"
    """Format of the KV cache."""
    positions: int = 0
    """Rows of a table of learned positions; 0 where positions are rotated or biased."""
    embedding_norm: bool = False
    """A norm of the embedding (BLOOM)."""
    norm_weight: bool = True
    """The norms at the ends have weights."""
    norm_bias: bool = False
    """The norms at the ends are LayerNorms with a bias."""
    head_bias: bool = False
    towers: tuple[Tower, ...] = ()
    mtp_layers: int = 0
    """Multi-token-prediction layers, listed apart from the total."""
    source: str
    unknown_keys: tuple[str, ...] = ()
    """Config keys that were not understood; listed, never dropped in silence."""
    assumed: tuple[str, ...] = ()
    """What had to be assumed, one sentence each."""

    def __post_init__(self) -> None:
        """Check that every layer points at a block that exists."""
        if not self.layers:
            raise ValueError(f"model {self.name!r} has no layers")
        for index, layer in enumerate(self.layers):
            if not 0 <= layer.mixer < len(self.mixers) or not 0 <= layer.ffn < len(self.ffns):
                raise ValueError(f"layer {index} of {self.name!r} points at a block that does not exist")
        if {layer.mixer for layer in self.layers} != set(range(len(self.mixers))):
            raise ValueError(f"model {self.name!r} lists a mixer that no layer uses")
        if {layer.ffn for layer in self.layers} != set(range(len(self.ffns))):
            raise ValueError(f"model {self.name!r} lists a feed-forward that no layer uses")
