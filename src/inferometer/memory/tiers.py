"""Tiers of the prefix cache beside a chip's pool, in host memory or on disk: the tokens and prefixes that they hold.

Letters: S tokens of a prefix.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from inferometer.memory.asked import Asked
from inferometer.memory.division import Plan
from inferometer.memory.pools import Pools
from inferometer.memory.solve import most
from inferometer.specs.memory import Tier

MOST_BLOCKS = 1 << 40
"""Blocks of one prefix from which on nothing limits it: what it keeps is windows and states alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """One tier, of a rank: the TP x PP chips that hold the same sequences."""

    rule: Tier
    chip_bytes: float
    """Of each chip, in what the engine's option counts in."""
    rank_bytes: float
    """Of all chips of the rank."""
    block_tokens: int
    """Tokens of what is kept at once."""
    copies: int
    """Copies kept of what every TP rank has; 1 where there is none such."""
    tokens: float
    """Of the longest prefix that it holds."""
    prefix_tokens: int
    """Of the context asked for, in whole blocks."""
    prefixes: float
    """Of so many tokens that it holds."""
    prefix_bytes: float
    """What one takes of the tier, all chips of the rank together."""
    restore_bytes: float
    """What a chip of the fullest stage is sent to have one back."""

    @property
    def flag(self) -> str:
        """How the engine is told."""
        size, total = self.chip_bytes, self.rank_bytes
        words = {"gib": size / 2**30, "total_gib": total / 2**30, "gb": size / 1e9, "bytes": size}
        return self.rule.flag.format(**{name: f"{number:.15g}" for name, number in words.items()})


def tiers_of(plan: Plan) -> Iterator[TierPlan]:
    """Yield the tiers asked for; of an engine with several ways, the host's is the disk's own where there is one."""
    asked = plan.asked
    for rule in rules_of(asked):
        size = asked.host_tier_bytes if rule.where == "host" else asked.disk_tier_bytes
        yield _tier(plan, rule, size // rule.counts_bytes * rule.counts_bytes)


def rules_of(asked: Asked) -> list[Tier]:
    """Return the rules of the tiers asked for, those that the engine has."""
    tiers = asked.rules.tiers
    disk = [rule for rule in tiers if rule.where == "disk" and asked.disk_tier_bytes][:1]
    hosts = [rule for rule in tiers if rule.where == "host" and asked.host_tier_bytes]
    hosts.sort(key=lambda rule: not any(rule.through == one.through for one in disk))
    return [*hosts[:1], *disk]


def _tier(plan: Plan, rule: Tier, size: float) -> TierPlan:
    """Return what a tier of `size` bytes a chip holds.

    Blocks that fit, of whole bytes: floor(bytes / block). One pool for all chips takes a block of each chip at once, or
    one of them where it keeps one copy of latents. A stage holds what the stage with the widest blocks does.
    """
    asked, pools = plan.asked, [stage.pools for stage in plan.stages]
    sizes = asked.sizes
    world = sizes.tp * sizes.pp
    single = rule.one_copy and sizes.pp == sizes.dcp == 1 and all(one.latent for one in pools)
    rooms = _rooms(rule, pools, size, world, 1 if single else world)
    block = rule.chunk_tokens or max(one.block_size for one in pools) * (sizes.dcp if _paged(pools) else 1)

    def holds(tokens: int) -> float:
        found = (_holds(one, room, tokens, rule) for one, room in zip(pools, rooms, strict=True))
        return min(found, default=math.inf)

    blocks = most(lambda n: holds(n * block) >= 1, MOST_BLOCKS)
    kept = asked.context // block * block
    # Stages that hold the same stand once in a plan: the widest stands for every one of them.
    each = max(sum(one.prefix_bytes(kept, rule.every)) for one in pools)
    return TierPlan(
        rule=rule,
        chip_bytes=size,
        rank_bytes=size * (1 if single and not rule.shared else world),
        block_tokens=block,
        copies=sizes.tp if not single and any(one.copied for one in pools) else 1,
        tokens=math.inf if blocks == MOST_BLOCKS else float(blocks * block),
        prefix_tokens=kept,
        prefixes=holds(kept) if kept else 0.0,
        prefix_bytes=each * (1 if single else world),
        restore_bytes=max(sum(one.prefix_bytes(kept, False)) for one in pools),
    )


def _paged(pools: list[Pools]) -> bool:
    return any(one.unit_bytes for one in pools)


def _rooms(rule: Tier, pools: list[Pools], size: float, world: int, copies: int) -> list[float]:
    """Return the bytes that each stage's chip has in the tier."""
    if not rule.shared:
        return [size for _ in pools]
    unit = max(one.unit_bytes for one in pools)
    if not unit:
        return [size * world / copies for _ in pools]
    block = math.ceil(unit * copies / rule.align_bytes) * rule.align_bytes
    blocks = size * world // block
    return [blocks * one.unit_bytes for one in pools]


def _holds(pools: Pools, room: float, tokens: int, rule: Tier) -> float:
    """Return the whole prefixes that fit; pools of a chip's own tier have the shares that they have on the chip."""
    needs, room = pools.prefix_bytes(tokens, rule.every), pools.whole(room)
    pairs = [(room, sum(needs))] if rule.shared else zip(pools.split_bytes(room), needs, strict=True)
    return min((math.floor(have / need) for have, need in pairs if need > 0), default=math.inf)
