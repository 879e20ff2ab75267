"""What every block of a model description shares."""

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
    out_conv: int = 0
    """Taps of a short convolution of the output's channels over tokens (Inkling); 0: none."""
    out_scale: bool = False
    """One learned scale of the output, or of the router's weights (Inkling)."""
    formats: dict[str, str] = {}
    """Format by tensor name, where it is not the model's dtype."""

    def matrices(self) -> tuple[str, ...]:
        """Return the names of its matrices, in the order of its declaration."""
        raise NotImplementedError
