"""Which module is which block kind. A new kind is a spec, a module and a row here.

A module declares `tensors`; a mixer also its `heads`, its `caches` and which tensors take its input. What a chip
holds and what a pass costs come from these declarations alone.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol, cast

from inferometer.blocks import attention, ends, ffn, mla, moe
from inferometer.blocks.cache import Cache
from inferometer.blocks.lowering import Lowering
from inferometer.blocks.tensors import Heads, Tensor
from inferometer.graph.ops import Node
from inferometer.specs.block import Block
from inferometer.specs.feedforward import FeedForward, Ffn, Moe
from inferometer.specs.mixers import Attention, Mixer, Mla
from inferometer.specs.model import ModelSpec


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


_MIXERS: Mapping[type, ModuleType] = {Attention: attention, Mla: mla}
_FFNS: Mapping[type, ModuleType] = {Ffn: ffn, Moe: moe}


def mixer_kind(block: Mixer) -> MixerModule:
    """Return the module of a mixer."""
    return cast("MixerModule", _MIXERS[type(block)])


def ffn_kind(block: FeedForward) -> BlockModule:
    """Return the module of a feed-forward."""
    return cast("BlockModule", _FFNS[type(block)])


def mixer_tensors(block: Mixer, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a mixer's tensors with the norms around it."""
    return (*_norms("mixer", block, hidden, dtype), *mixer_kind(block).tensors(block, hidden, dtype))


def ffn_tensors(block: FeedForward, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return a feed-forward's tensors with the norms around it."""
    return (*_norms("ffn", block, hidden, dtype), *ffn_kind(block).tensors(block, hidden, dtype))


def _norms(name: str, block: Block, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    places = ((f"{name}_norm", block.pre_norm), (f"{name}_post_norm", block.post_norm))
    return tuple(
        tensor
        for place, held in places
        if held
        for tensor in ends.norm(place, hidden, dtype, weight=block.norm_weight, bias=block.norm_bias)
    )


def caches(block: Mixer) -> tuple[Cache, ...]:
    """Return what a mixer keeps of a sequence."""
    return mixer_kind(block).caches(block)


def heads(block: Mixer) -> Heads:
    """Return the heads of a mixer that TP splits."""
    return mixer_kind(block).heads(block)


def input_format(block: Mixer, dtype: str) -> str:
    """Return the format of the weights that take a mixer's input; the wider where they differ."""
    formats = {block.formats.get(name, dtype) for name in mixer_kind(block).takes(block)}
    return formats.pop() if len(formats) == 1 else dtype


def is_moe(model: ModelSpec) -> bool:
    """Return whether any layer has routed experts: DPA, EP and ETP are then roles."""
    return any(isinstance(block, Moe) for block in model.ffns)
