"""Which module is which block kind. A new kind is a spec, a module and a row here.

A module declares `tensors`; a mixer also its `heads`, its `caches` and which tensors take its input. What a chip
holds and what a pass costs come from these declarations alone.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol, cast

from inferometer.blocks import (
    attention,
    compressed,
    cross,
    ends,
    ffn,
    linear,
    lookup,
    mamba1,
    mamba2,
    matrix,
    mla,
    moe,
    short_conv,
)
from inferometer.blocks.cache import CONV, Cache
from inferometer.blocks.lowering import Lowering, Pass
from inferometer.blocks.tensors import Heads, Tensor, group_shards, kv_shards
from inferometer.graph.ops import Column, Node
from inferometer.specs.block import Block
from inferometer.specs.feedforward import FeedForward, Ffn, Moe
from inferometer.specs.lookup import Lookup
from inferometer.specs.matrix import Matrix
from inferometer.specs.mixers import Attention, Beside, Compressed, CrossAttention, Mixer, Mla, Single
from inferometer.specs.model import ModelSpec
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv


class BlockModule(Protocol):
    """One block kind."""

    def tensors(self, block: Any, hidden: int, dtype: str) -> tuple[Tensor, ...]:
        """Return its tensors, without the norms around it."""

    def lower(self, block: Any, low: Lowering, dtype: str) -> list[Node]:
        """Return its ops, from normed input to partial output sums."""


class MixerModule(BlockModule, Protocol):
    """One kind of mixer."""

    def heads(self, block: Any) -> Heads:
        """Return the heads that TP splits."""

    def takes(self, block: Any) -> tuple[str, ...]:
        """Return the names of the tensors that fix the format of its input."""

    def caches(self, block: Any) -> tuple[Cache, ...]:
        """Return what it keeps of a sequence."""


_MIXERS: Mapping[type, ModuleType] = {
    Attention: attention,
    CrossAttention: cross,
    Mla: mla,
    Compressed: compressed,
    LinearAttention: linear,
    Mamba2: mamba2,
    Mamba1: mamba1,
    ShortConv: short_conv,
    Matrix: matrix,
}
_FFNS: Mapping[type, ModuleType] = {Ffn: ffn, Moe: moe, Matrix: matrix, Lookup: lookup}


def parts(block: Mixer) -> tuple[Single, ...]:
    """Return the mixers of a layer: those that run beside each other, or the one there is."""
    return block.parts if isinstance(block, Beside) else (block,)


def mixer_kind(block: Single) -> MixerModule:
    """Return the module of a mixer."""
    return cast("MixerModule", _MIXERS[type(block)])


def ffn_kind(block: FeedForward) -> BlockModule:
    """Return the module of a feed-forward."""
    return cast("BlockModule", _FFNS[type(block)])


def mixer_tensors(block: Mixer, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a mixer's tensors with the norms around it."""
    own = (t for part in parts(block) for t in mixer_kind(part).tensors(part, hidden, dtype))
    return (*_norms("mixer", block, hidden, dtype), *own)


def lower_mixer(block: Mixer, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of a mixer, from normed input to partial output sums.

    Mixers beside each other take one input, gathered once, and their partial outputs are added as they are written and
    reduced once.
    """
    return [node for part in parts(block) for node in mixer_kind(part).lower(part, low, dtype)]


def ffn_tensors(block: FeedForward, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a feed-forward's tensors with the norms around it."""
    return (*_norms("ffn", block, hidden, dtype), *ffn_kind(block).tensors(block, hidden, dtype))


def _norms(name: str, block: Block, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    places = ((f"{name}_norm", block.pre_norm), (f"{name}_post_norm", block.post_norm))
    found = [
        tensor
        for place, held in places
        if held
        for tensor in ends.norm(place, hidden, dtype, weight=block.norm_weight, bias=block.norm_bias)
    ]
    if block.out_conv:
        found.append(Tensor(name=f"{name}_conv", rows=hidden, count=block.out_conv, format=dtype, kind="conv"))
    if block.out_scale:
        found.append(Tensor(name=f"{name}_scale", rows=1, format=dtype, kind="norm"))
    return tuple(found)


def caches(block: Mixer) -> tuple[Cache, ...]:
    """Return what a mixer keeps of a sequence."""
    return tuple(cache for part in parts(block) for cache in mixer_kind(part).caches(part))


def out_caches(block: Block, hidden: int) -> tuple[Cache, ...]:
    """Return what the convolution of a block's output keeps of a sequence: all but one of its taps, whole on a chip."""
    if not block.out_conv:
        return ()
    return (Cache(name=CONV, width=(block.out_conv - 1) * hidden, holds="dtype", fixed=True),)


def expanded_caches(block: Mixer) -> tuple[Cache, ...]:
    """Return what a mixer keeps in an engine that does not absorb: latents as the K and V of every head."""
    found: list[Cache] = []
    for part in parts(block):
        module = mixer_kind(part)
        expanded: Callable[[Any], tuple[Cache, ...]] = getattr(module, "expanded_caches", module.caches)
        found += expanded(part)
    return tuple(found)


def heads(block: Mixer) -> tuple[Heads, ...]:
    """Return the heads that TP splits, of each of a layer's mixers."""
    return tuple(mixer_kind(part).heads(part) for part in parts(block))


def mixer_shards(block: Mixer | None, tp: Column, dcp: Column) -> dict[str, Column]:
    """Return how many ways kv heads and groups of a layer's mixers split; one where it has none."""
    held = () if block is None else heads(block)
    kv, groups = (max((one, *(getattr(h, name) for h in held))) for name, one in (("kv", 1), ("groups", 1)))
    return {"kv": kv_shards(tp, dcp, kv), "groups": group_shards(tp, groups)}


def input_format(block: Mixer, dtype: str) -> str:
    """Return the format of the weights that take a mixer's input; the wider where they differ."""
    formats = {part.formats.get(name, dtype) for part in parts(block) for name in mixer_kind(part).takes(part)}
    return formats.pop() if len(formats) == 1 else dtype


def grows(model: ModelSpec) -> bool:
    """Return whether any layer keeps entries that grow with the sequence: DCP then has something to cut."""
    return any(not cache.fixed for block in model.mixers for cache in caches(block))


def keeps_state(model: ModelSpec) -> bool:
    """Return whether any layer keeps something of fixed size: a recurrent state, what a convolution spans."""
    return any(cache.fixed for block in model.mixers for cache in caches(block))


def cuts_latents(model: ModelSpec) -> bool:
    """Return whether TP splits the projections to latents of any layer."""
    return any(getattr(part, "cut_latents", False) for block in model.mixers for part in parts(block))


def ffn_input_format(block: FeedForward, dtype: str) -> str:
    """Return the format of the weights that take a dense feed-forward's input."""
    return block.formats.get("matrix" if isinstance(block, Matrix) else "up", dtype)


def sees_images(model: ModelSpec) -> bool:
    """Return whether layers attend to images: their tokens are then no part of the prompt."""
    return any(isinstance(part, CrossAttention) for block in model.mixers for part in parts(block))


def idle(block: Mixer, at: Pass) -> bool:
    """Return whether a layer with this mixer is skipped in a pass: one that attends to images, without images."""
    return at.cross_tokens == 0 and all(isinstance(part, CrossAttention) for part in parts(block))


def keeps_of_all(block: Mixer) -> bool:
    """Return whether a mixer keeps something of the tokens of a prompt that stop before its layer."""
    return any(isinstance(part, Compressed) and part.makes for part in parts(block))


def is_moe(model: ModelSpec) -> bool:
    """Return whether any layer has routed experts: DPA, EP and ETP are then roles."""
    return any(isinstance(block, Moe) for block in model.ffns)
