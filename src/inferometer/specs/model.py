"""What a model is: per-layer lists over a few block descriptions. Shapes only, no arithmetic."""

from inferometer.specs.block import Spec
from inferometer.specs.drafter import Drafter
from inferometer.specs.feedforward import FeedForward
from inferometer.specs.mixers import Compressed, Mixer
from inferometer.specs.residual import Residual
from inferometer.specs.tower import Tower


class Layer(Spec, frozen=True, kw_only=True):
    """One decoder layer: which mixer and which feed-forward, by index into the model's lists; None is none."""

    mixer: int | None = None
    ffn: int | None = None
    visits: int = 1
    """Times a pass goes through it, each with a cache of its own (Inkling 2 Mini): its weights are held once."""
    prompt_tail: int | None = None
    """A prompt's last new tokens that go through it, the others stop before it; None: all. What it makes for layers
    after it and for later tokens (entries, index keys) it makes of all (DeepSeek-V4.1)."""


class LayerInputs(Spec, frozen=True, kw_only=True):
    """What a token brings to each layer beside its embedding (Gemma 4, E2B and E4B; L layers, w wide).

    A table [rows, L w] and a projection [L w, H] of the embedding give w features a layer. After its feed-forward each
    layer multiplies them by a gate [w, H] of the stream and adds the projection [H, w] of that, normed, to the stream.
    """

    width: int
    rows: int


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
    units: tuple[int, ...] = ()
    """How many layers in a row a stage takes together, of each unit in turn; empty: each layer alone. What runs beside
    what (LongCat), or again after what, is on one stage."""
    tied: bool
    """Input embedding and head share one table."""
    dtype: str
    """Format of every tensor that no other rule covers."""
    head_format: str | None = None
    """Format of the head, where it is not `dtype`."""
    embedding_format: str | None = None
    """Format of the input embedding, and of a head that shares it, where it is not `dtype`."""
    kv_format: str = "bf16"
    """Format of the KV cache."""
    state_format: str = "fp32"
    """Format of recurrent states; what convolutions keep is in `dtype`."""
    conv_states: bool = True
    """What convolutions keep counts in a sequence's memory; some tools count recurrent states alone."""
    positions: int = 0
    """Rows of a table of learned positions; 0 where positions are rotated or biased."""
    embedding_norm: bool = False
    """A norm of the embedding (BLOOM)."""
    norm_weight: bool = True
    """The norms at the ends have weights."""
    norm_bias: bool = False
    """The norms at the ends are LayerNorms with a bias."""
    head_bias: bool = False
    more_rows: int = 0
    """Rows of the embedding beyond the vocabulary, which the head lacks (Llama 3.2 Vision, Molmo)."""
    layer_inputs: LayerInputs | None = None
    residual: Residual | None = None
    """How blocks are added to the stream; None is a plain sum."""
    towers: tuple[Tower, ...] = ()
    drafters: tuple[Drafter, ...] = ()
    """What guesses ahead of the model, listed apart from the total."""
    source: str
    unknown_keys: tuple[str, ...] = ()
    """Config keys that were not understood; listed, never dropped in silence."""
    assumed: tuple[str, ...] = ()
    """What had to be assumed, one sentence each."""

    def __post_init__(self) -> None:
        """Check that every layer points at a block that exists."""
        if not self.layers:
            raise ValueError(f"model {self.name!r} has no layers")
        if self.units and sum(self.units) != len(self.layers):
            raise ValueError(f"the units of {self.name!r} do not add up to its layers")
        for index, layer in enumerate(self.layers):
            for used, listed in ((layer.mixer, self.mixers), (layer.ffn, self.ffns)):
                if used is not None and not 0 <= used < len(listed):
                    raise ValueError(f"layer {index} of {self.name!r} points at a block that does not exist")
        if {layer.mixer for layer in self.layers} - {None} != set(range(len(self.mixers))):
            raise ValueError(f"model {self.name!r} lists a mixer that no layer uses")
        if {layer.ffn for layer in self.layers} - {None} != set(range(len(self.ffns))):
            raise ValueError(f"model {self.name!r} lists a feed-forward that no layer uses")
        _check_tails(self.layers, self.mixers)


def _check_tails(layers: tuple[Layer, ...], mixers: tuple[Mixer, ...]) -> None:
    """Refuse layers that lack what a prompt's earlier tokens would have left: keys, or the input of entries."""
    before: int | None = None
    for index, layer in enumerate(layers):
        tail, mixer = layer.prompt_tail, None if layer.mixer is None else mixers[layer.mixer]
        if before is not None and (tail is None or tail > before):
            raise ValueError(f"layer {index} takes more of a prompt than goes through the layer before it")
        if tail is not None and mixer is not None:
            if not isinstance(mixer, Compressed) or mixer.window > tail:
                raise ValueError(f"layer {index} reads keys that a prompt's last {tail} tokens do not make")
            if before is not None and mixer.makes:
                raise ValueError(f"layer {index} makes entries of tokens that stop before it")
        before = tail
