"""Short text of the numbers and names that tables and headers share."""

import math
from collections.abc import Callable, Mapping

from inferometer.estimate.step import Problem
from inferometer.report.answer import Answer, Change
from inferometer.report.row import placement_table
from inferometer.specs.deployment import ROLES, Sizes, Workload
from inferometer.units import format_flops, format_gib, format_rate, format_seconds

SHOWN = {
    "isl": "ISL",
    "osl": "OSL",
    "image_size": "image size",
    "image_limits": "image limits",
    "kv_cache_dtype": "KV",
    "order": "order by",
}
"""Setting -> its name on a page, where that is another."""


FORMS: dict[str, Callable[[float], str]] = {
    "memory_bytes": format_gib,
    "memory_bytes_per_s": format_rate,
    "tdp_w": "{:,.0f} W".format,
    "peak": format_flops,
    "link": format_rate,
    "latency": format_seconds,
    "multicast": lambda value: "yes" if value else "no",
    "reduces": lambda value: "yes" if value else "no",
}
"""Field of a what-if, up to its point -> how its values are shown."""


def count(value: float) -> str:
    """Return a number with three digits, or all of its whole part.

    >>> count(3571.2), count(27.36), count(0.4914), count(float("inf"))
    ('3,571', '27.4', '0.491', 'no limit')
    """
    if not math.isfinite(value):
        return "no limit" if value > 0 else "-"
    whole = int(math.log10(abs(value))) if abs(value) >= 1 else 0
    return f"{value:,.{min(max(0, 2 - whole), 3)}f}" if abs(value) >= 1 else f"{value:.3f}"


def sizes_text(sizes: Sizes) -> str:
    """Return role sizes above 1 as read in a table; a single chip has none.

    >>> sizes_text(Sizes(dpa=8, tp=2, ep=16, dcp=2))
    'DPA8 TP2 EP16 DCP2'
    """
    return " ".join(f"{role.upper()}{getattr(sizes, role)}" for role in ROLES if getattr(sizes, role) > 1) or "1 chip"


def sizes_flag(sizes: Sizes) -> str:
    """Return role sizes as --sizes takes them; all are said that the rule would not fill in.

    >>> sizes_flag(Sizes(dpa=8, tp=2, ep=8, etp=2, dcp=2))
    'DPA=8,TP=2,EP=8,ETP=2,DCP=2'
    """
    return ",".join(f"{role.upper()}={getattr(sizes, role)}" for role in ROLES if getattr(sizes, role) > 1) or "TP=1"


def placement_flag(answer: Answer) -> str:
    """Return the placement as --placement takes it; empty where every role has size 1."""
    return spans_text(placement_table(answer))


def spans_text(table: Mapping[str, Mapping[str, int]]) -> str:
    """Return role -> axis -> factor as --placement takes it.

    >>> spans_text({"tp": {"nvlink": 2}, "ep": {"nvlink": 8, "network": 2}})
    'TP=nvlink:2,EP=nvlink:8+network:2'
    """
    return ",".join(
        f"{role.upper()}=" + "+".join(f"{axis}:{factor}" for axis, factor in spans.items())
        for role, spans in table.items()
        if spans
    )


def assumed_text(answer: Answer, **more: str) -> str:
    """Return the settings nobody chose, on one line.

    `more` are those of the question rather than the deployment, such as the order.
    """
    parts = [f"{SHOWN.get(name, name)} {value}" for name, value in (dict(answer.assumed) | more).items()]
    return ", ".join(parts)


def changes_text(answer: Answer) -> str:
    """Return what the what-ifs changed, on one line; empty where nothing is."""
    return ", ".join(_change_text(change) for change in answer.changes)


def _change_text(change: Change) -> str:
    show = FORMS[change.field.partition(".")[0]]
    shown = f"{change.field} {show(change.before)} -> {show(change.after)}"
    share = change.after / change.before - 1 if change.before and change.after else 0.0
    return f"{shown} ({share:+.0%})" if share else shown


def phase_text(work: Workload) -> str:
    """Return what a pass is.

    >>> phase_text(Workload()), phase_text(Workload(phase="verify", draft_tokens=3))
    ('decode', 'verify of 3 drafted tokens and one more')
    """
    if work.phase == "extend":
        return f"extend by {work.isl:,} tokens behind {work.context:,} cached"
    if work.phase == "verify":
        return f"verify of {work.draft_tokens} drafted tokens and one more"
    return work.phase


def machine_text(problem: Problem) -> str:
    """Return chip, machine (its product where that is not the chip's usual one) and chips."""
    n = problem.machine.fabric.n_chips
    return f"{problem.machine.chip.id} {problem.machine.name} ({n} chip{'s' if n > 1 else ''})"


def price_text(answer: Answer) -> str:
    """Return the price of a chip and where it comes from."""
    if answer.usd_per_chip_hour is None:
        return f"{answer.price_note or 'no price known'}; give --usd-per-chip-hour"
    source = "; ".join(part for part in (answer.price_source, answer.price_note) if part)
    return f"${answer.usd_per_chip_hour:,.2f} a chip-hour ({source})"
