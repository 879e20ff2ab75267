"""What a deployment costs: at one price, at every price of its chip, or on every chip."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from inferometer.api.load import load_machine, load_model
from inferometer.api.questions import estimate
from inferometer.api.settings import Settings, settle
from inferometer.api.sizes import Given, chips_of, role_given
from inferometer.catalog.loader import chips_billed, load_chips, prices_for, quote
from inferometer.catalog.prices import narrowed
from inferometer.errors import InferometerError
from inferometer.estimate.step import PREFILL_MICROBATCHES
from inferometer.report.answer import Answer
from inferometer.report.cost import Bill, Cost, Lost
from inferometer.serving.money import Owned
from inferometer.serving.rates import price_label
from inferometer.specs.hardware import Machine, Price
from inferometer.specs.model import ModelSpec

RULE = "least bill an hour in whole instances: of on-demand rows of no marketplace, else of the other tiers"
YEARS, USD_PER_KWH, PUE = 4.0, 0.12, 1.3
"""Life of owned hardware, its power's price, and the site's PUE, where nobody says (`assumed`)."""

MAX_USD = 1e12
"""Dearest thing taken; more is a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """How a deployment is used and paid for. None takes the default."""

    utilization: float | None = None
    """Share of the hour in which it is busy (1)."""
    api_usd_per_mtok: float | None = None
    """Price of a closed API, to break even with."""
    capex_usd: float | None = None
    """Dollars of all chips with their hosts: they are bought, not let."""
    lifetime_years: float | None = None
    usd_per_kwh: float | None = None
    pue_ratio: float | None = None


def cost(
    model: ModelSpec | str,
    machine: Machine | str,
    sizes: Given = None,
    *,
    batch: int | None = None,
    money: Money | None = None,
    **settings: Unpack[Settings],
) -> Cost:
    """Return what one deployment costs: `.usd_per_hour`, `.per_mtok`, `.cycle`; `report.cost.cost_row` has all of it.

    Parameters are those of `estimate`. With isl and osl (the default) prefill and decode alternate; with one context
    only decode is known, and figures carry `decode_only_`. Raises InferometerError for input that makes no sense.

    >>> found = cost("qwen2.5-7b", "rtx4090", batch=16, context=2048, backend="roofline")
    >>> round(found.usd_per_hour, 2)
    0.3
    """
    asked = money or Money()
    assumed: dict[str, str] = {}
    check_money(asked, settings)
    decode, prefill = _passes(model, machine, sizes, batch, settings)
    where = decode.problem.machine
    owned = _owned(asked, assumed)
    bill = _own_bill(owned, where) if owned else _bill(where, settings)
    return _cost(decode, prefill, bill, asked, assumed)


def clouds(
    model: ModelSpec | str,
    machine: Machine | str,
    sizes: Given = None,
    *,
    batch: int | None = None,
    money: Money | None = None,
    **settings: Unpack[Settings],
) -> list[Cost]:
    """Return the cost at every price of the chip that provider, region and tier leave, the least bill first.

    Every provider's chips are taken to be joined as the machine asked for. Empty where no price is known.
    """
    asked = money or Money()
    check_money(asked, settings)
    if asked.capex_usd is not None or settings.get("usd_per_chip_hour") is not None:
        raise InferometerError("--compare-clouds takes the catalogue's prices; leave --capex, --usd-per-chip-hour out")
    decode, prefill = _passes(model, machine, sizes, batch, settings)
    where = decode.problem.machine
    rows = narrowed(prices_for(where.chip.id), settings.get("provider"), settings.get("region"), settings.get("tier"))
    bills = [_billed(price, where.fabric.n_chips, "every price of the chip") for price in rows]
    bills.sort(key=lambda bill: (bill.usd_per_chip_hour or 0.0) * bill.chips)
    return [_cost(decode, prefill, bill, asked, {}) for bill in bills]


def every_chip(
    model: ModelSpec | str,
    sizes: Given = None,
    *,
    batch: int | None = None,
    money: Money | None = None,
    chips: Sequence[str] | None = None,
    machine: str | None = None,
    **settings: Unpack[Settings],
) -> list[Cost | Lost]:
    """Return the cost on every chip of the catalogue, or on `chips`, in that order; what cannot be priced says why."""
    asked = money or Money()
    if asked.capex_usd is not None:
        raise InferometerError("--capex is of one machine; leave --compare-all out")
    spec = load_model(model) if isinstance(model, str) else model
    found: list[Cost | Lost] = []
    check_money(asked, settings)
    settle(settings)
    for chip in chips or load_chips():
        try:
            where = load_machine(chip, machine, None if machine else chips_of(role_given(sizes)))
        except InferometerError as error:
            if chips is not None:
                raise
            found.append(Lost(chip=chip, reason=str(error)))
            continue
        try:
            found.append(cost(spec, where, sizes, batch=batch, money=money, **settings))
        except InferometerError as error:
            found.append(Lost(chip=chip, reason=str(error)))
    return found


def _passes(
    model: ModelSpec | str, machine: Machine | str, sizes: Given, batch: int | None, settings: Settings
) -> tuple[Answer, Answer]:
    """Return the decode step, and a prefill: of the request, or of the one context."""
    spec = load_model(model) if isinstance(model, str) else model
    decode = estimate(spec, machine, sizes, batch=batch, **settings)
    changes = Settings(phase="prefill", context=None, isl=settings.get("context") or settings.get("isl"))
    priced = decode.estimate
    # A pipeline is filled with several prompts; without one each rank takes one at a time.
    prompts = 1 if priced.sizes.pp == 1 else min(PREFILL_MICROBATCHES * priced.sizes.pp, priced.sequences)
    where, pure = machine, Settings(**{**settings, **changes})
    prefill = estimate(spec, where, sizes, batch=prompts * priced.sizes.r * priced.sizes.dpa, **pure)
    return decode, prefill


def _cost(decode: Answer, prefill: Answer, bill: Bill, money: Money, assumed: Mapping[str, str]) -> Cost:
    more = {} if money.utilization is not None else {"utilization": "100%"}
    if prefill.problem.workload.prompt_tokens == decode.problem.workload.context:
        more["prompts"] = "of the context"
    return Cost(
        answer=decode,
        prefill=prefill,
        bill=bill,
        utilization=1.0 if money.utilization is None else money.utilization,
        api_usd_per_mtok=money.api_usd_per_mtok,
        assumed={**decode.assumed, **more, **assumed},
    )


def _bill(machine: Machine, settings: Settings) -> Bill:
    """Return the bill at the price given, or at the catalogue's."""
    n, given = machine.fabric.n_chips, settings.get("usd_per_chip_hour")
    if given is not None:
        return Bill(n, given, "given", "as given, by the chip")
    asked = (settings.get("provider"), settings.get("region"), settings.get("tier"))
    quoted = quote(machine, *asked, whole=True)
    if quoted.price is None:
        return Bill(n, None, "none", RULE, quoted.note or "no price known")
    chosen = " ".join(word for word in asked if word)
    return _billed(quoted.price, n, f"{RULE}; {chosen} asked for" if chosen else RULE, quoted.note)


def _billed(price: Price, n_chips: int, rule: str, note: str = "") -> Bill:
    return Bill(chips_billed(price, n_chips), price.usd_per_chip_hour, price_label(price), rule, note, price)


def _own_bill(owned: Owned, machine: Machine) -> Bill:
    """Return the bill of bought chips; power comes on top as it is drawn."""
    if machine.chip.tdp_w is None:
        raise InferometerError(f"no power limit of {machine.chip.id} is known; give --usd-per-chip-hour, not --capex")
    what = f"${owned.capex_usd:,.0f} over {owned.lifetime_years:g} years"
    source = f"owned: {what}, ${owned.usd_per_kwh:g}/kWh, PUE {owned.pue_ratio:g}"
    n = machine.fabric.n_chips
    return Bill(n, None, source, "capex in a straight line, and power as drawn", "", None, owned)


def _owned(money: Money, assumed: dict[str, str]) -> Owned | None:
    if money.capex_usd is None:
        return None
    for name, value, default in (
        ("years", money.lifetime_years, YEARS),
        ("kwh", money.usd_per_kwh, USD_PER_KWH),
        ("pue", money.pue_ratio, PUE),
    ):
        if value is None:
            assumed[name] = f"{default:g}"
    return Owned(
        money.capex_usd,
        YEARS if money.lifetime_years is None else money.lifetime_years,
        USD_PER_KWH if money.usd_per_kwh is None else money.usd_per_kwh,
        PUE if money.pue_ratio is None else money.pue_ratio,
    )


def check_money(money: Money, settings: Settings) -> None:
    """Raise InferometerError for a share or a price that is out of range, and for two ways to pay."""
    share = money.utilization
    if share is not None and not 0 < share <= 1:
        raise InferometerError(f"--utilization {share}: must be above 0 and at most 1")
    for flag, value, least in (
        ("--break-even", money.api_usd_per_mtok, 0.0),
        ("--capex", money.capex_usd, 0.0),
        ("--years", money.lifetime_years, 1e-3),
        ("--kwh", money.usd_per_kwh, 0.0),
        ("--pue", money.pue_ratio, 1.0),
    ):
        if value is not None and not (least <= value < MAX_USD and math.isfinite(value)):
            raise InferometerError(f"{flag} {value}: must be {least:g} or more")
    owned = [flag for flag, value in _owning(money) if value is not None]
    if owned and money.capex_usd is None:
        raise InferometerError(f"{owned[0]} is of owned hardware: give --capex, what all chips and their hosts cost")
    paid = [name for name in ("usd_per_chip_hour", "provider", "region", "tier") if settings.get(name) is not None]
    if money.capex_usd is not None and paid:
        raise InferometerError(f"--capex is owned hardware, --{paid[0].replace('_', '-')} is let: give one")


def _owning(money: Money) -> tuple[tuple[str, float | None], ...]:
    return (("--years", money.lifetime_years), ("--kwh", money.usd_per_kwh), ("--pue", money.pue_ratio))
