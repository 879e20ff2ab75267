"""Whether a model fits in the devices of this machine."""

from dataclasses import dataclass
from typing import Any

from inferometer.report.memory import MemoryAnswer, memory_row
from inferometer.report.tables import GIB, Page, table
from inferometer.units import format_gib


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The answer for one device."""

    device: str
    vendor: str
    source: str
    """What said that it is there."""
    total_bytes: int
    free_bytes: int
    fits_now: bool
    """In what is free now."""
    max_batch: int
    """Sequences of the context asked for, in all of its memory."""
    max_context: int
    """Tokens of the batch asked for, same."""
    memory: MemoryAnswer


def fit_row(fit: Fit) -> dict[str, Any]:
    """Return the keys of FIT in `report.schema`."""
    return {
        "device": fit.device,
        "vendor": fit.vendor,
        "source": fit.source,
        "total_bytes": fit.total_bytes,
        "free_bytes": fit.free_bytes,
        "fits": fit.memory.fits,
        "fits_now": fit.fits_now,
        "max_batch": fit.max_batch,
        "max_context": fit.max_context,
        "memory": memory_row(fit.memory),
    }


def print_fits(page: Page, fits: tuple[Fit, ...]) -> None:
    """Print a line a device, and below what does not fit and what would."""
    asked = fits[0].memory.plan.asked
    what = f"{asked.batch:,} sequence{'s' * (asked.batch > 1)} of {asked.context:,} tokens"
    page.show(f"{asked.model.name}, {what}, engine {fits[0].memory.engine}")
    page.show()
    grid = table(
        ["<device", "total\nGiB", "free\nGiB", "weights\nGiB", "<fits", "<now", "most\nsequences", "longest\ntokens"]
    )
    for fit in fits:
        grid.add_row(
            fit.device,
            f"{fit.total_bytes / GIB:,.1f}",
            f"{fit.free_bytes / GIB:,.1f}",
            f"{fit.memory.plan.tightest.parts_bytes['weights'] / GIB:,.1f}",
            "yes" if fit.memory.fits else "no",
            "yes" if fit.fits_now else "no",
            f"{fit.max_batch:,}",
            f"{fit.max_context:,}",
        )
    page.show(grid)
    for fit in fits:
        if not fit.memory.fits:
            page.show()
            lacks = format_gib(fit.memory.plan.deficit_bytes)
            page.show(f"{fit.device} lacks {lacks}: {'; '.join(fit.memory.reasons)}")
            for near in fit.memory.nearest:
                page.show(f"  would fit: {near}")
    page.show()
    page.show("assumed: " + ", ".join(f"{name} {value}" for name, value in fits[0].memory.assumed.items()))
    for remark in asked.model.assumed:
        page.show(f"assumed: {remark}")
