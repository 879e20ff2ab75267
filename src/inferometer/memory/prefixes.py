"""What a cached prefix takes of pools of caches: whole blocks, all of them or those alone that bring it back.

Letters: S tokens of the prefix, W window.
"""

from collections.abc import Sequence
from typing import NamedTuple

from inferometer.memory.layers import Kind


class Grouped(NamedTuple):
    """Groups of layers that keep the same, in blocks of equal bytes."""

    kind: Kind
    groups: int
    block: int
    """Entries of a block."""


def prefix_blocks(kept: Sequence[Grouped], tokens: int, dcp: int, *, every: bool) -> int:
    """Return the blocks of all groups that a prefix of S tokens takes; the last tokens, short of a block, are not kept.

    `every`: floor(S / block) of each group, and a copy of the states at the end of every block. Else what brings it
    back: of a window its last ceil(W / block), and one copy of the states. Source: vllm-project/vllm
    vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py, get_sliding_window_size_in_chunks.
    """
    spans = [_span(one, dcp) for one in kept if not one.kind.fixed]
    ends = tokens // min(spans) if spans else min(tokens, 1)
    total = 0
    for one in kept:
        if one.kind.fixed:
            whole = ends if every else min(ends, 1)
        else:
            span = _span(one, dcp)
            whole = tokens // span
            if one.kind.most and not every:
                whole = min(whole, -(-one.kind.most * one.kind.tokens // span))
        total += one.groups * whole
    return total


def _span(one: Grouped, dcp: int) -> int:
    """Return the tokens of a block over the DCP ranks; a window is whole on each."""
    return one.block * one.kind.tokens * (1 if one.kind.most else dcp)


def prefix_bytes(kinds: Sequence[Kind], tokens: int, block: int, dcp: int, *, every: bool) -> float:
    """Return the bytes that a prefix takes of caches in blocks of their own: whole blocks of `block` tokens.

    Of a window min(S, W), rounded up to a block; of states one copy.
    """
    whole, total = tokens // block * block, 0.0
    for kind in kinds:
        if kind.fixed:
            total += kind.entry_bytes if whole else 0.0
            continue
        held = whole if kind.most else -(-whole // dcp)
        if kind.most and not every:
            held = min(held, -(-kind.most * kind.tokens // block) * block)
        total += kind.entry_bytes * -(-held // kind.tokens)
    return total
