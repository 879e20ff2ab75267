"""Prices of chips: who lets them, in which instance, of when and from where."""

from collections.abc import Sequence
from typing import Any

from inferometer.report.chip import Sources
from inferometer.report.tables import Page, table
from inferometer.specs.hardware import Price


def offer_row(price: Price) -> dict[str, Any]:
    """Return the keys of OFFER in `report.schema_money`."""
    return {
        "chip": price.chip,
        "usd_per_chip_hour": price.usd_per_chip_hour,
        "usd_per_instance_hour": price.usd_per_chip_hour * price.instance_chips,
        "provider": price.provider,
        "instance": price.instance,
        "instance_chips": price.instance_chips,
        "region": price.region,
        "tier": price.tier,
        "date": price.date,
        "marketplace": price.marketplace,
        "source": price.source,
    }


def print_offers(page: Page, prices: Sequence[Price], note: str) -> None:
    """Print a line a price, and the sources below."""
    sources = Sources()
    heads = ["|chip", "$/h\na chip", "$/h an\ninstance", "chips", "|provider", "|tier", "|date", "|source"]
    grid = table([*heads, "|region", "|instance"])
    for price in prices:
        grid.add_row(
            price.chip,
            f"{price.usd_per_chip_hour:.2f}",
            f"{price.usd_per_chip_hour * price.instance_chips:,.2f}",
            str(price.instance_chips),
            price.provider,
            price.tier,
            price.date,
            sources.mark(price.source),
            price.region or "-",
            price.instance or "-",
        )
    page.show(grid)
    page.show()
    page.show(note)
    for number, source in enumerate(sources.listed, 1):
        page.show(f"[{number}] {source}")
