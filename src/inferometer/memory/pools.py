"""How caches are allocated: what a sequence needs of each pool of a stage, and what the pools hold.

Four shapes. exact: entries as they are. grouped: one pool of equal pages shared by groups of layers. pools: one for
what grows, for windows and for states. dense: cells of every slot at once.
Letters: S context, W window, B sequences.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple, TypedDict

from inferometer.memory.asked import Asked
from inferometer.memory.layers import Kind, kept_tokens
from inferometer.memory.prefixes import Grouped, prefix_blocks, prefix_bytes

PrefixBytes = Callable[[int, bool], tuple[float, ...]]
"""Tokens of a cached prefix, and whether all its blocks are kept or those alone that bring it back -> bytes of each
pool."""


def _no_prefix(_tokens: int, _every: bool) -> tuple[float, ...]:
    return (0.0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Pools of one stage."""

    block_size: int
    """Tokens of a block of the caches that grow."""
    unit_bytes: float
    """A block over all layers that share it; room is given in whole ones. 0: to the byte."""
    null_bytes: float
    """Of the room, what no sequence gets."""
    split_bytes: Callable[[float], tuple[float, ...]]
    """Room of the stage -> room of each pool."""
    needs_bytes: Callable[[int], tuple[float, ...]]
    """Tokens of a sequence -> bytes it needs of each pool."""
    state_bytes: float
    """Part of the needs of a sequence that is state, padding included."""
    bytes_per_token: float
    """Of one more token of a long sequence, windows full."""
    blocks: Callable[[int], int]
    """Tokens of a sequence -> blocks of all groups."""
    groups: int = 1
    prefix_bytes: PrefixBytes = _no_prefix
    alike: bool = True
    """All caches keep the same tokens, and none is a state."""
    latent: bool = False
    """There is one kind of cache, which every TP rank has a copy of."""
    copied: bool = False
    """There is some such cache."""

    def beside(self, size: float) -> "Pools":
        """Return the pools where each sequence keeps `size` bytes more in the first, in whole blocks.

        They remember what they were asked.
        """
        if not size:
            return replace(self, needs_bytes=cache(self.needs_bytes))
        more, needs = math.ceil(size / self.unit_bytes) * self.unit_bytes if self.unit_bytes else size, self.needs_bytes

        def both(length: int) -> tuple[float, ...]:
            first, *others = needs(length)
            return (first + more, *others)

        return replace(self, needs_bytes=cache(both))

    def whole(self, room: float) -> float:
        """Return the room in whole blocks."""
        return max(math.floor(room / self.unit_bytes) * self.unit_bytes if self.unit_bytes else room, 0.0)

    def sequences(self, room: float, length: int) -> float:
        """Return how many sequences of `length` the room holds, as a fraction: the tightest pool's.

        Blocks that no sequence gets are counted, as engines print it.
        """
        pairs = zip(self.split_bytes(self.whole(room)), self.needs_bytes(length), strict=True)
        return min((have / need for have, need in pairs if need > 0), default=math.inf)

    def hold(self, room: float, length: int) -> float:
        """Return how many whole sequences of `length` run at once."""
        usable = self.whole(room) - self.null_bytes
        pairs = zip(self.split_bytes(max(usable, 0.0)), self.needs_bytes(length), strict=True)
        return min((math.floor(have / need) for have, need in pairs if need > 0), default=math.inf)

    def room_for(self, count: int, length: int) -> float:
        """Return the least room, over all pools, in which `count` sequences run."""
        needs = [count * need for need in self.needs_bytes(length)]
        total = sum(needs)
        shares = self.split_bytes(1.0)
        tightest = max((need / share for need, share in zip(needs, shares, strict=True) if need > 0), default=0.0)
        return max(total, tightest) + self.null_bytes


def pools_by(asked: Asked, layers: Sequence[Sequence[Kind]]) -> Callable[[range], Pools]:
    """Return what gives the pools of a stage; `layers` are all of the model, for groups are made over the whole."""
    if asked.rules.caches == "grouped":
        return partial(_grouped, asked, _groups(asked, layers))
    return partial(_SHAPES[asked.rules.caches], asked, layers)


def pools_of(asked: Asked, layers: Sequence[Sequence[Kind]], stage: range) -> Pools:
    """Return the pools of one stage."""
    return pools_by(asked, layers)(stage)


def _kinds(layers: Sequence[Sequence[Kind]], stage: range) -> list[Kind]:
    return [kind for index in stage for kind in layers[index]]


def _growing(asked: Asked, kinds: Sequence[Kind]) -> float:
    """Return the bytes of one more token of caches that keep every token; DCP splits tokens."""
    kept = (kind.entry_bytes / kind.tokens for kind in kinds if not kind.fixed and kind.most is None)
    return sum(kept) / asked.sizes.dcp


def _exact(asked: Asked, layers: Sequence[Sequence[Kind]], stage: range) -> Pools:
    kinds = _kinds(layers, stage)
    state = asked.slots * sum(kind.entry_bytes for kind in kinds if kind.fixed)

    def needs(length: int) -> tuple[float, ...]:
        grown = 0.0
        for kind in kinds:
            entries = length / kind.tokens
            grown += 0.0 if kind.fixed else kind.entry_bytes * (min(entries, kind.most) if kind.most else entries)
        return (grown / asked.sizes.dcp + state,)

    return Pools(
        block_size=1,
        unit_bytes=0.0,
        null_bytes=0.0,
        split_bytes=lambda room: (room,),
        needs_bytes=needs,
        state_bytes=state,
        bytes_per_token=_growing(asked, kinds),
        blocks=lambda length: length,
    )


class _Group(NamedTuple):
    """Layers that share block tables."""

    kind: Kind
    layers: tuple[int, ...]
    """A layer with two such caches stands twice."""
    block: int
    """Entries of a block."""


def _grouped(asked: Asked, groups: list[_Group], stage: range) -> Pools:
    page, made = max((_page_bytes(group) for group in groups), default=0.0), groups
    if _alike([group.kind for group in groups]):
        unit = sum(_page_bytes(group) * sum(index in stage for index in group.layers) for group in groups)
        groups = groups[:1]
    else:
        unit = page * max((sum(index in stage for index in group.layers) for group in groups), default=0)
    counts = {kind: sum(1 for group in groups if group.kind == kind) for kind in {group.kind for group in groups}}
    blocks_of = {group.kind: group.block for group in groups}

    def blocks(length: int) -> int:
        return sum(n * _blocks(asked, kind, blocks_of[kind], length) for kind, n in counts.items())

    kept = [Grouped(kind, n, blocks_of[kind]) for kind, n in counts.items()]

    def prefix(tokens: int, every: bool) -> tuple[float, ...]:
        return (unit * prefix_blocks(kept, tokens, asked.sizes.dcp, every=every),)

    full = [group for group in groups if not group.kind.fixed and group.kind.most is None]
    each = sum(unit / (group.block * group.kind.tokens) for group in full) / asked.sizes.dcp
    states = sum(n * _blocks(asked, kind, 1, 1) for kind, n in counts.items() if kind.fixed)
    return Pools(
        block_size=min((group.block * group.kind.tokens for group in groups if not group.kind.fixed), default=1),
        unit_bytes=unit,
        null_bytes=asked.rules.null_blocks * unit,
        split_bytes=lambda room: (room,),
        needs_bytes=lambda length: (unit * blocks(length),),
        state_bytes=unit * states,
        bytes_per_token=each,
        blocks=blocks,
        groups=max(len(groups), 1),
        prefix_bytes=prefix,
        **_said_of([group.kind for group in made]),
    )


class _Said(TypedDict):
    alike: bool
    latent: bool
    copied: bool


def _said_of(kinds: Sequence[Kind]) -> _Said:
    """Return whether the caches are alike, and whether they are one kind, or some are, that every TP rank has."""
    alike = _alike(kinds) and not any(kind.fixed for kind in kinds)
    copied = any(kind.latent and not kind.fixed for kind in kinds)
    return {"alike": alike, "latent": alike and copied and len(set(kinds)) == 1, "copied": copied}


def _page_bytes(group: _Group) -> float:
    return group.kind.entry_bytes * (1 if group.kind.fixed else group.block)


def _alike(kinds: Sequence[Kind]) -> bool:
    """Return whether all caches keep the same tokens, and so share one block table."""
    return len({(kind.tokens, kind.most, kind.fixed) for kind in kinds}) <= 1


def _groups(asked: Asked, layers: Sequence[Sequence[Kind]]) -> list[_Group]:
    """Return the groups: a block for each kind so that all pages are equal, then equal numbers of layers.

    The attention block grows in steps until its page holds a state; smaller pages take more tokens. A kind that is
    not a multiple is padded. Groups have the size of the kind with fewest layers, or of the largest where it is less
    than `group_ratio` times that; layer i of a kind goes to group i mod n.
    """
    members: dict[Kind, list[int]] = {}
    for index, kinds in enumerate(layers):
        for kind in kinds:
            members.setdefault(kind, []).append(index)
    rules = asked.rules
    blocks = {kind: _own_block(asked, kind) for kind in members}
    if _alike(list(members)):
        return [_Group(kind, tuple(own), blocks[kind]) for kind, own in members.items()]
    state = max((kind.entry_bytes for kind in members if kind.fixed), default=0.0)
    grown = [kind for kind in members if not kind.fixed]
    if state and grown and rules.state_multiple:
        widest = max(grown, key=lambda kind: kind.entry_bytes)
        step = max(rules.state_multiple, blocks[widest])
        least = math.ceil(state / widest.entry_bytes / step) * step
        blocks |= {kind: max(blocks[kind], least) for kind in grown}
    page = max(kind.entry_bytes * (1 if kind.fixed else blocks[kind]) for kind in members)
    for kind in grown:
        blocks[kind] *= max(math.floor(page / (kind.entry_bytes * blocks[kind])), 1)
    size = _group_size([len(own) for own in members.values()], rules.group_ratio)
    found = []
    for kind, own in members.items():
        n = -(-len(own) // size)
        found += [_Group(kind, tuple(own[i::n]), blocks[kind]) for i in range(n)]
    return found


def _own_block(asked: Asked, kind: Kind) -> int:
    rules = asked.rules
    return rules.latent_block_size if kind.latent and rules.latent_block_size else rules.block_size


def _group_size(counts: Sequence[int], ratio: float) -> int:
    """Return the layers of a group.

    >>> _group_size((10, 50), 1.5), _group_size((12, 13), 1.5), _group_size((12, 17), 1.25)
    (10, 13, 12)
    """
    least, most = min(counts), max(counts)
    return most if most < least * ratio else least


def _blocks(asked: Asked, kind: Kind, block: int, length: int) -> int:
    """Return the blocks of one group that a sequence needs; a window may begin inside a block."""
    if kind.fixed:
        return asked.slots
    entries = -(-kept_tokens(kind, asked, length) // kind.tokens)
    return -(-entries // block) + (1 if kind.most else 0)


def _pools(asked: Asked, layers: Sequence[Sequence[Kind]], stage: range) -> Pools:
    kinds, rules = _kinds(layers, stage), asked.rules
    state = asked.slots * sum(kind.entry_bytes for kind in kinds if kind.fixed)

    def blocks(kind: Kind, length: int) -> int:
        entries = -(-kept_tokens(kind, asked, length) // kind.tokens)
        return -(-entries // rules.block_size) * rules.block_size

    def need(length: int, *, window: bool) -> float:
        kept = [kind for kind in kinds if not kind.fixed and (kind.most is not None) == window]
        return sum(kind.entry_bytes * blocks(kind, length) for kind in kept)

    full_bytes, window_bytes = (
        sum(kind.entry_bytes / kind.tokens for kind in kinds if not kind.fixed and (kind.most is not None) == window)
        for window in (False, True)
    )

    def split(room: float) -> tuple[float, ...]:
        states = room * rules.state_ratio / (1 + rules.state_ratio) if state and full_bytes + window_bytes else 0.0
        rest = room - states
        windows = window_bytes * rules.window_ratio
        share = 1.0 if not full_bytes else 0.0 if not window_bytes else windows / (full_bytes + windows)
        return (rest * (1 - share), rest * share, states or (room if state else 0.0))

    def needs(length: int) -> tuple[float, ...]:
        return (need(length, window=False), need(length, window=True), state)

    def prefix(tokens: int, every: bool) -> tuple[float, ...]:
        sorts = [
            [kind for kind in kinds if kind.fixed == fixed and (kind.most is not None) == window]
            for fixed, window in ((False, False), (False, True), (True, False))
        ]
        return tuple(prefix_bytes(sort, tokens, rules.block_size, asked.sizes.dcp, every=every) for sort in sorts)

    together = not rules.window_ratio
    return Pools(
        block_size=rules.block_size,
        unit_bytes=0.0,
        null_bytes=0.0,
        split_bytes=(lambda room: (room,)) if together else split,
        needs_bytes=(lambda length: (sum(needs(length)),)) if together else needs,
        state_bytes=state,
        bytes_per_token=_growing(asked, kinds),
        blocks=lambda length: -(-length // rules.block_size),
        prefix_bytes=(lambda tokens, every: (sum(prefix(tokens, every)),)) if together else prefix,
        **_said_of(kinds),
    )


def _dense(asked: Asked, layers: Sequence[Sequence[Kind]], stage: range) -> Pools:
    """Return cells for every slot: padded contexts, and windows with a pass of tokens beside them."""
    kinds, rules = _kinds(layers, stage), asked.rules
    state = asked.slots * sum(kind.entry_bytes for kind in kinds if kind.fixed)

    def padded(tokens: int) -> int:
        return -(-tokens // rules.block_size) * rules.block_size

    def needs(length: int) -> tuple[float, ...]:
        total = state
        for kind in kinds:
            if not kind.fixed:
                cells = padded(length)
                kept = min(cells, padded(kind.most * kind.tokens + asked.pass_tokens)) if kind.most else cells
                total += kind.entry_bytes * -(-kept // kind.tokens)
        return (total,)

    return Pools(
        block_size=rules.block_size,
        unit_bytes=0.0,
        null_bytes=0.0,
        split_bytes=lambda room: (room,),
        needs_bytes=needs,
        state_bytes=state,
        bytes_per_token=_growing(asked, kinds),
        blocks=lambda length: padded(length) // rules.block_size,
    )


_SHAPES = {"exact": _exact, "pools": _pools, "dense": _dense}
