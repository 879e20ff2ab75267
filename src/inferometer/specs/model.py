"""What a model is: per-layer lists over a few block descriptions. Shapes only, no arithmetic.

Letters: H hidden, N query heads, K kv heads, D head dim, F ffn width, E experts, k experts a token.
"""

import msgspec


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every spec: frozen, keyword-only, unknown fields refused."""


class Attention(Spec, tag="attention", frozen=True, kw_only=True):
    """Softmax attention with grouped kv heads: MHA (K = N), GQA, MQA (K = 1)."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    """RMS norm over each head of q and k (weights of head_dim, shared by the heads)."""
    window: int | None = None
    """Sliding window in tokens; None attends to everything."""
    formats: dict[str, str] = {}
    """Format by tensor name (`q k v o`), where it is not the model's dtype."""


class Mla(Spec, tag="mla", frozen=True, kw_only=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): K and V from one latent."""

    heads: int
    q_rank: int | None
    """Width of the q latent; None projects q directly."""
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    bias: bool = False
    """Biases on q_a, kv_a and o (`attention_bias`)."""
    formats: dict[str, str] = {}
    """Format by tensor name (`q_a q_b q kv_a kv_b o`)."""


class Ffn(Spec, tag="ffn", frozen=True, kw_only=True):
    """Dense feed-forward: gated (gate, up, down) or plain (up, down)."""

    width: int
    gated: bool = True
    bias: bool = False
    formats: dict[str, str] = {}
    """Format by tensor name (`gate up down`)."""


class Moe(Spec, tag="moe", frozen=True, kw_only=True):
    """Routed experts, with an optional shared expert beside them."""

    experts: int
    top_k: int
    width: int
    gated: bool = True
    shared_width: int = 0
    """Total width of the shared experts; 0 where there are none."""
    shared_gate: bool = False
    """A 1-wide sigmoid gate on the shared expert."""
    groups: int = 1
    """Expert groups of group-limited routing (`n_group`)."""
    top_groups: int = 1
    """Groups a token may choose from (`topk_group`)."""
    router_bias: bool = False
    """One score-correction bias an expert (`e_score_correction_bias`)."""
    formats: dict[str, str] = {}
    """Format by tensor name (`router gate up down shared_gate_proj shared_up shared_down`)."""


Mixer = Attention | Mla
FeedForward = Ffn | Moe


class Layer(Spec, frozen=True, kw_only=True):
    """One decoder layer: which mixer and which feed-forward, by index into the model's lists."""

    mixer: int
    ffn: int


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
