"""What follows the mixer of a layer: one description a kind. Shapes only, no arithmetic.

Letters: H hidden, Hl latent width, F ffn width, E experts, Z zero experts, k experts a token.
"""

from inferometer.specs.block import Block
from inferometer.specs.lookup import Lookup
from inferometer.specs.matrix import Matrix


class Ffn(Block, tag="ffn", frozen=True, kw_only=True):
    """Dense feed-forward: gated (gate, up, down) or plain (up, down). Tensors `gate up down`."""

    width: int
    gated: bool = True
    bias: bool = False
    parallel: bool = False
    """Runs beside the layer's mixer and is added to it; without `pre_norm` it takes the mixer's normed input."""
    sub_norm: bool = False
    """A norm of down's input (BitNet)."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        return (*(("gate",) if self.gated else ()), "up", "down")


class Moe(Block, tag="moe", frozen=True, kw_only=True):
    """Routed experts, with an optional shared expert (or dense branch) beside them.

    Tensors `router latent_down gate up down latent_up shared_gate_proj shared_up shared_down shared_gate`.
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
    latent_width: int = 0
    """Hl: routed experts take and give vectors of this width, behind projections [Hl, H] and [H, Hl] (Kimi K3,
    Nemotron 3 Super); 0: they work on H."""
    latent_norm: bool = False
    """A norm of the experts' sum, before it is projected back to H (Kimi K3)."""
    zero_experts: int = 0
    """Z: experts that return their input (LongCat): the router may choose them, nothing is sent or computed."""
    hash_vocab: int = 0
    """Rows of a table that gives a token's experts by its id, in place of the best scores (DeepSeek-V4's first
    layers); 0: the router chooses. The router still weighs them."""
    routed_shared: int = 0
    """Shared experts with a row of the router, which weighs them (Inkling)."""
    redundant: int = 0
    """N: copies of experts beside the E, of those that are wanted most; a deployment's, never a checkpoint's."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices."""
        gate = ("gate",) if self.gated else ()
        shared: tuple[str, ...] = ()
        if self.shared_width:
            shared = (*(("shared_gate_proj",) if self.gated else ()), "shared_up", "shared_down")
        ends = ("latent_down", "latent_up") if self.latent_width else ()
        return ("router", *gate, "up", "down", *ends, *shared, *(("shared_gate",) if self.shared_gate else ()))


FeedForward = Ffn | Moe | Matrix | Lookup
