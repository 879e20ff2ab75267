"""The table of prices, or those of the day."""

from typing import NamedTuple

from inferometer.catalog.loader import load_chips, load_prices, subject
from inferometer.catalog.machines import load_instances, load_machines
from inferometer.catalog.prices import narrowed
from inferometer.ingest.live_prices import live_prices
from inferometer.specs.hardware import Price


class Listed(NamedTuple):
    """Prices, cheapest chip-hour first within a chip, and what to know about them."""

    prices: tuple[Price, ...]
    note: str


def prices(
    chip: str | None = None,
    *,
    provider: str | None = None,
    region: str | None = None,
    tier: str | None = None,
    live: bool = False,
) -> Listed:
    """Return the prices of a chip, or of all, that provider, region and tier leave; `live`: those of the day.

    Raises UnknownNameError for a name that no price has, InferometerError where live prices cannot be had.

    >>> {price.chip for price in prices("h100").prices}
    {'h100-sxm'}
    """
    ident = None if chip is None else subject(chip)[0].id
    note = "a dated snapshot: prices move, and --live asks for those of the day"
    rows = load_prices()
    if live:
        machines = load_machines()
        known = {one.name.lower(): machines[one.machine].chip for one in load_instances().values()}
        offers = live_prices(known)
        rows = tuple(price for price in offers.prices if price.chip in load_chips())
        unclear = f"; {offers.unclear:,} offers left out, whose chip their names do not tell" if offers.unclear else ""
        note = f"live through gpuhunt, {offers.note}{unclear}"
    found = [price for price in narrowed(rows, provider, region, tier) if ident in (None, price.chip)]
    return Listed(tuple(sorted(found, key=lambda price: (price.chip, price.usd_per_chip_hour))), note)
