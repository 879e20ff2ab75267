"""Tiers of the prefix cache: sizes as typed, checked, and what to know about those that are asked for."""

from collections.abc import Iterator
from typing import TypedDict

from inferometer.api.workload import MAX_TOKENS
from inferometer.catalog.engine_memory import load_engine_memory
from inferometer.errors import InferometerError
from inferometer.estimate.result import Diagnostic
from inferometer.memory.division import Plan
from inferometer.memory.tiers import TierPlan, rules_of, tiers_of
from inferometer.specs.memory import EngineMemory

FLAGS = {"host": "--kv-cpu-gb", "disk": "--kv-disk-gb"}
"""Where a tier is -> the option that asks for it."""


class Tiers(TypedDict, total=False):
    """Sizes of the tiers of a question."""

    host_tier_bytes: float
    disk_tier_bytes: float


def tiers_asked(rules: EngineMemory, host_gib: float | None, disk_gib: float | None) -> Tiers:
    """Return the sizes asked for, in bytes of each chip; raises InferometerError for a tier that the engine has not."""
    found: Tiers = {}
    if size := gib_bytes(FLAGS["host"], host_gib):
        _check(rules, "host")
        found["host_tier_bytes"] = size
    if size := gib_bytes(FLAGS["disk"], disk_gib):
        _check(rules, "disk")
        found["disk_tier_bytes"] = size
    return found


def gib_bytes(flag: str, size: float | None) -> float:
    """Return the bytes of a size in GiB, 0 where none is given."""
    if size is not None and not 0 <= size < MAX_TOKENS:
        raise InferometerError(f"{flag} {size}: must be from 0 to {MAX_TOKENS:,} GiB")
    return (size or 0.0) * 2.0**30


def _check(rules: EngineMemory, where: str) -> None:
    if _has(rules, where):
        return
    known = [row.id for rows in load_engine_memory().values() for row in rows if _has(row, where)]
    first = dict(reversed([(name.partition("@")[0], name) for name in known]))
    has = ", ".join(sorted(first.values()))
    raise InferometerError(f"{FLAGS[where]}: {rules.id} keeps no prefixes there; these do: {has} on")


def _has(rules: EngineMemory, where: str) -> bool:
    return any(tier.where == where for tier in rules.tiers)


def tiers(plan: Plan) -> tuple[TierPlan, ...]:
    """Return the tiers of a plan; raises InferometerError for a model that the engine keeps none of."""
    for rule in rules_of(plan.asked):
        if rule.alike and not all(stage.pools.alike for stage in plan.stages):
            who = rule.through or plan.asked.rules.id
            kept = f"{plan.asked.model.name} keeps windows or states beside, or alone"
            raise InferometerError(f"{FLAGS[rule.where]}: {who} keeps prefixes of one kind of cache; {kept}")
    found = tuple(tiers_of(plan))
    if nothing := next((tier.rule for tier in found if not tier.chip_bytes), None):
        least = f"{nothing.counts_bytes / 2**30:.4f} GiB"
        raise InferometerError(f"{FLAGS[nothing.where]}: {plan.asked.rules.id} counts in steps of {least}; give one")
    return found


def tier_notes(plan: Plan, found: tuple[TierPlan, ...]) -> Iterator[Diagnostic]:
    """Say where a tier holds no more than the pool that it stands behind."""
    for tier in found:
        if tier.prefix_tokens and tier.prefixes <= plan.holds:
            held = f"{tier.prefixes:,.0f} prefixes of the context a rank, the pool of its chips {plan.holds:,.0f}"
            text = f"the {tier.rule.where} tier holds {held}: what the pool drops is soon dropped there"
            yield Diagnostic(name="tier-below-pool", text=f"{text}; a larger {FLAGS[tier.rule.where]}")
