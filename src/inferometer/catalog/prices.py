"""Prices: dated rows a chip, and which one is taken when nobody says."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from inferometer.catalog.machines import load_instances
from inferometer.catalog.tables import Row, read_table, yes
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.hardware import Machine, Price
from inferometer.units import parse_quantity

ON_DEMAND = "on-demand"
ANY_REGION = "any"
"""Region of a price that is the same everywhere."""

_COLUMNS = ("chip", "price", "unit", "provider", "tier", "region", "chips", "date", "source", "marketplace")
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


class Need(NamedTuple):
    """Chips to rent."""

    chips: int
    together: int
    """Of them, those that share the innermost level of the fabric: one instance has to hold them."""


@lru_cache(maxsize=1)
def load_prices() -> tuple[Price, ...]:
    """Return every price of the catalogue, $ per chip and hour; read once, at the first call."""
    return prices_from_rows(read_table("prices.csv", _COLUMNS))


def prices_from_rows(rows: Iterable[Row]) -> tuple[Price, ...]:
    """Return prices from checked rows; raises InferometerError for a date that is not YYYY[-MM[-DD]]."""
    out = []
    for r in rows:
        if not _DATE.fullmatch(r["date"]):
            raise InferometerError(f"prices.csv: {r['chip']} of {r['provider']}: {r['date']!r} is no date")
        out.append(
            Price(
                chip=r["chip"],
                usd_per_chip_hour=parse_quantity(f"{r['price']} {r['unit']}", "usd_per_hour"),
                provider=r["provider"],
                tier=r["tier"],
                region=r["region"],
                instance=r.get("instance", ""),
                instance_chips=_chips(r),
                date=r["date"],
                source=r["source"],
                marketplace=yes("prices.csv", r["marketplace"]),
            )
        )
    return tuple(out)


def _chips(row: Row) -> int:
    """Return the chips of an instance, which is let whole."""
    if not (row["chips"].isdecimal() and int(row["chips"])):
        raise InferometerError(f"prices.csv: {row['chip']} of {row['provider']}: {row['chips']!r} chips")
    return int(row["chips"])


def prices_for(chip_id: str) -> tuple[Price, ...]:
    """Return the prices of the chip with that id, cheapest first; empty where none is known."""
    return tuple(sorted((p for p in load_prices() if p.chip == chip_id), key=lambda p: p.usd_per_chip_hour))


def default_price(
    chip_id: str, provider: str | None = None, region: str | None = None, tier: str | None = None
) -> Price | None:
    """Return the price to take for a chip; None where the catalogue has none.

    The cheapest on-demand row of a provider that is no marketplace, else the cheapest row of all; `provider`,
    `region` and `tier` narrow the choice first, and a marketplace named as provider counts as one.
    None too where the chip has prices but none that matches. Raises UnknownNameError for a provider, region or tier
    that no price has.

    >>> price = default_price("h100-sxm")
    >>> price.provider, price.tier, price.usd_per_chip_hour
    ('Nebius', 'on-demand', 2.95)
    """
    return choose_price(load_prices(), chip_id, provider, region, tier)


def narrowed(rows: Iterable[Price], provider: str | None, region: str | None, tier: str | None) -> tuple[Price, ...]:
    """Return the rows of a provider, a region, a tier; raises UnknownNameError for one that no price has.

    Names are held against the rows given and the catalogue's.
    """
    listed = tuple(rows)
    _check_asked((*listed, *load_prices()), provider, region, tier)
    return tuple(p for p in listed if _matches(p, provider, region, tier))


def choose_price(
    prices: tuple[Price, ...], chip_id: str, provider: str | None, region: str | None, tier: str | None
) -> Price | None:
    """As `default_price`, among `prices`."""
    _check_asked(prices, provider, region, tier)
    return _cheapest(prices, chip_id, provider, region, tier)


def _cheapest(
    prices: Iterable[Price],
    chip_id: str,
    provider: str | None,
    region: str | None,
    tier: str | None,
    *,
    need: Need | None = None,
) -> Price | None:
    """Return the cheapest usual row, else the cheapest of all: by the chip, or by the bill of `need`."""
    rows = [p for p in prices if p.chip == chip_id and _matches(p, provider, region, tier)]
    usual = [p for p in rows if p.tier == ON_DEMAND and (provider or not p.marketplace)] or rows
    if need is None:
        return min(usual, key=lambda p: p.usd_per_chip_hour, default=None)
    return min(large_enough(usual, need), key=lambda p: (bill_of(p, need.chips), p.usd_per_chip_hour), default=None)


def need_of(machine: Machine) -> Need:
    """Return the chips that a machine is made of."""
    return Need(machine.fabric.n_chips, machine.fabric.axes[0].size)


def large_enough(rows: Iterable[Price], need: Need) -> list[Price]:
    """Return the rows whose instance holds the chips that belong together; the largest where none does (a rack)."""
    listed = list(rows)
    least = min(need.together, max((p.instance_chips for p in listed), default=0))
    return [p for p in listed if p.instance_chips >= least]


def chips_billed(price: Price, n_chips: int) -> int:
    """Return the chips of as many whole instances as hold `n_chips`.

    >>> chips_billed(default_price("h100-sxm"), 3)
    8
    """
    return -(-n_chips // price.instance_chips) * price.instance_chips


def bill_of(price: Price, n_chips: int) -> float:
    """Return dollars an hour of as many whole instances as hold `n_chips`."""
    return chips_billed(price, n_chips) * price.usd_per_chip_hour


class Quote(NamedTuple):
    """What a chip of a machine costs, and what to know about it."""

    price: Price | None
    note: str = ""
    """Why there is none, or why it is another instance's."""


def quote(
    machine: Machine, provider: str | None, region: str | None, tier: str | None, *, whole: bool = False
) -> Quote:
    """Return the price to take for a chip of `machine`, narrowed by provider, region and tier.

    `whole`: the cheapest by what whole instances for all of its chips cost, not by the chip.

    A named cloud instance takes its own rows, else its provider's rows of the chip; a machine that one provider lets
    takes that provider's. Raises InferometerError where `provider` is another one, UnknownNameError as `default_price`.

    >>> from inferometer.catalog.slices import build_machine
    >>> quote(build_machine("p5.48xlarge"), None, None, None).price.provider
    'AWS'
    """
    asked = (provider, region, tier)
    prices, need = load_prices(), need_of(machine) if whole else None
    _check_asked(prices, *asked)
    chip, product = machine.chip, machine.product
    owner = None if product in ("", chip.default_machine) else provider_of(product)
    if owner is None:
        price = _cheapest(prices, chip.id, *asked, need=need)
        return Quote(price, _missing(chip.id, asked) if price is None else "")
    if provider is not None and not _same(owner, provider):
        raise InferometerError(f"--provider {provider}: {product} is let by {owner}; leave --provider out")
    names = {one.name for one in load_instances().values() if product in (one.name, one.machine)}
    own = _cheapest((p for p in prices if p.instance in names), chip.id, owner, region, tier, need=need)
    if own is not None:
        return Quote(own)
    price = _cheapest(prices, chip.id, owner, region, tier, need=need)
    if price is None:
        return Quote(None, _missing(chip.id, (owner, region, tier)))
    return Quote(price, f"assumed: {product} has no price of its own")


def _missing(chip_id: str, asked: tuple[str | None, ...]) -> str:
    words = ", ".join(word for word in asked if word)
    return f"no price of {chip_id} for {words}" if words else ""


def provider_of(product: str) -> str | None:
    """Return who lets a cloud instance or a machine; None where nobody or several do.

    >>> provider_of("p5.48xlarge"), provider_of("gcp-a3-high"), provider_of("hgx-h100")
    ('AWS', 'GCP', None)
    """
    owners = {one.provider for one in load_instances().values() if one.name == product}
    owners = owners or {one.provider for one in load_instances().values() if one.machine == product}
    return owners.pop() if len(owners) == 1 else None


def _matches(price: Price, provider: str | None, region: str | None, tier: str | None) -> bool:
    return (
        (provider is None or _same(price.provider, provider))
        and (region is None or _same(price.region, region) or price.region == ANY_REGION)
        and (tier is None or _same(price.tier, tier))
    )


def _same(a: str, b: str) -> bool:
    return a.lower().replace(" ", "-") == b.strip().lower().replace(" ", "-")


def _check_asked(prices: Iterable[Price], provider: str | None, region: str | None, tier: str | None) -> None:
    known = tuple(prices)
    _check_known("provider", provider, {p.provider for p in known})
    _check_known("region", region, {p.region for p in known})
    _check_known("tier", tier, {p.tier for p in known})


def _check_known(kind: str, value: str | None, known: set[str]) -> None:
    if value is not None and not any(_same(k, value) for k in known):
        raise unknown_name(kind, value, known)
