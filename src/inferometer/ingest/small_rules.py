"""Rules of a dialect that stand on no other: what latent attention and drafters of a family have. Data only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatentRule:
    """What a family's latent attention has beside DeepSeek-V2's."""

    rope_norm: bool = False
    head_scales: bool = False
    unrotated: bool = False
    """`qk_rope_head_dim` may be 0."""
    no_rope: str | None = None
    """Field with a list, 0 where a layer rotates nothing: its heads are as wide, all of it unrotated."""
    no_rope_every: str | None = None
    """Field with a period, read where there is no list: such a layer, counted from one, rotates nothing."""
    source: str | None = None
    """Field with the layer whose latent each layer uses."""


@dataclass(frozen=True, slots=True)
class TokenRule:
    """What attention makes of its input beside q, k and v, and layers that are visited again (Inkling 2)."""

    sinks: bool = False
    taps: bool = False
    """Of layers without a window."""
    inputs: int = 1
    """Of layers without a window."""
    q_norm_alone: bool = False
    """k has no norm where q has one."""
    relative_norm: bool = False
    loop: tuple[str, str, str] | None = None
    """Fields with the first layer that is visited again, the first after them, and how often each is visited."""
    message_rank: str | None = None
    """Field with the rank of the gates of those layers."""


@dataclass(frozen=True, slots=True)
class DrafterRule:
    """The layers of multi-token prediction: like the model's last layer, unless told."""

    count: str = "num_nextn_predict_layers"
    """Field with how many there are."""
    pattern: str | None = None
    """Field with the layers of one step, in the words of `Dialect.layers`: each is like the last layer of its word."""
    windowed: bool = False
    """Attention is that of windowed layers."""
    latent: bool = False
    """Attention is that of layers with a latent."""
    dense: bool = False
    """The feed-forward is the model's dense one."""


@dataclass(frozen=True, slots=True)
class CompressRule:
    """What the ratios of compressed attention mean to a family."""

    ratios: tuple[int, ...] = (0, 4, 128)
    """Those that are understood; 0 has the window alone."""
    chosen: tuple[int, ...] = (4,)
    """Those whose entries are chosen from."""
    overlap: tuple[int, ...] = (4,)
    """Those whose entries are made of two windows."""
    bias: bool = True
    """What weighs an entry's tokens has a bias for each place."""
    sources: str | None = None
    """Field with the layers that make entries and index keys; the others use those of the last such layer. Keys are
    then projected from entries, not compressed from the input."""
    choosers: str | None = None
    """Field with the layers that choose; the others use the last choice."""
    candidates: tuple[str, str, str] | None = None
    """Fields with the layer that chooses roughly, the blocks it keeps and their entries: layers after it score no
    others."""
    key_format: str | None = None
    """Format of index keys; None follows the KV format."""
    tail: str | None = None
    """Field with how many of a prompt's last tokens go through the layers from the last source on; None: all do."""
