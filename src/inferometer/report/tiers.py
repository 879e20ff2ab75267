"""Tiers of the prefix cache, as rows and as lines."""

import math
from collections.abc import Mapping
from typing import Any

from inferometer.memory.tiers import TierPlan
from inferometer.units import format_gib, format_rate

PLACES = {"host": "in host memory", "disk": "on disk"}


def tier_row(tier: TierPlan, recompute_s: Mapping[int, float]) -> dict[str, Any]:
    """Return the keys of TIER in `report.schema`, in that order; `recompute_s` is tokens of a prefix -> its prefill."""
    again = recompute_s.get(tier.prefix_tokens)
    return {
        "where": tier.rule.where,
        "through": tier.rule.through,
        "flag": tier.flag,
        "bytes_per_chip": tier.chip_bytes,
        "rank_bytes": tier.rank_bytes,
        "block_tokens": tier.block_tokens,
        "latent_copies": tier.copies,
        "kv_tokens": _whole(tier.tokens),
        "prefix_tokens": tier.prefix_tokens,
        "prefix_bytes": tier.prefix_bytes,
        "prefixes": _whole(tier.prefixes),
        "restore_bytes_per_chip": tier.restore_bytes,
        "recompute_s": again,
        "break_even_bytes_per_s": tier.restore_bytes / again if again else None,
    }


def _whole(number: float) -> float | None:
    return number if math.isfinite(number) else None


def tier_lines(tier: TierPlan, recompute_s: Mapping[int, float]) -> list[str]:
    """Return what a tier holds, what it keeps of a prefix, and what a chip is sent to have one back."""
    holds = "a prefix of any length" if math.isinf(tier.tokens) else f"{tier.tokens:,.0f} tokens a rank"
    many = f"{tier.prefixes:,.0f} prefixes of {tier.prefix_tokens:,} tokens"
    size = f"{format_gib(tier.chip_bytes)} a chip"
    copies = "" if tier.copies == 1 else f", {tier.copies} copies of what every TP rank has"
    block = f"{tier.block_tokens:,} token{'s' * (tier.block_tokens > 1)}"
    back = f"{format_gib(tier.restore_bytes)} a chip"
    again = recompute_s.get(tier.prefix_tokens)
    found = [
        f"prefixes {PLACES[tier.rule.where]}: {size} ({tier.flag}): {holds}, {many}",
        f"  in blocks of {block}{copies}; one prefix brings back {back}",
    ]
    if again:
        rate = format_rate(tier.restore_bytes / again)
        found.append(f"  recomputing it takes {again * 1e3:,.0f} ms: a link of more than {rate} a chip is faster")
    return found
