"""The verbs about money, and what saves it: cost, compare, prices, spec."""

from dataclasses import replace

import typer

from inferometer.api import cost as asked
from inferometer.api.load import load_model
from inferometer.cli.options import Options
from inferometer.cli.verbs import (
    NOT_FEASIBLE,
    check_output,
    chip_names,
    machines,
    out,
    role_sizes,
    say,
    say_refused,
    say_unused,
    settings,
)
from inferometer.errors import InferometerError
from inferometer.report.cost import Cost, cost_row
from inferometer.report.row import dumps


def cost(options: Options) -> None:
    """Print what a deployment costs; exit 1 where it does not fit, or no chip of many runs it."""
    check_output(options)
    if options.compare_clouds and options.compare_all:
        raise InferometerError("give --compare-clouds (every price of CHIP) or --compare-all (every chip), not both")
    if options.compare_all:
        _all(options)
        return
    if options.any_chip is None:
        raise InferometerError("cost needs CHIP, or --compare-all for every chip")
    options = replace(options, chip=options.any_chip)
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    (machine, *more) = machines(options, sizes).values()
    if more:
        raise InferometerError("cost takes one CHIP; with --compare-all several")
    say_unused(options, model)
    ask = asked.clouds if options.compare_clouds else _single
    found = ask(model, machine, sizes, batch=options.batch_size, money=money(options), **settings(options))
    if not found:
        say(f"no price of {machine.chip.id} is known; give --usd-per-chip-hour")
        raise typer.Exit(NOT_FEASIBLE)
    _print(options, found)
    if not found[0].answer.estimate.feasible:
        say_refused(found[0].answer, options)
        raise typer.Exit(NOT_FEASIBLE)


def _single(*subject: object, **more: object) -> list[Cost]:
    return [asked.cost(*subject, **more)]  # type: ignore[arg-type]  # passed on as typed


def _print(options: Options, found: list[Cost]) -> None:
    if options.json:
        for one in found:
            out(dumps(cost_row(one)))
        return
    from inferometer.report.cost_page import print_clouds, print_cost
    from inferometer.report.tables import Page

    if options.compare_clouds:
        print_clouds(Page(), found)
    else:
        print_cost(Page(), found[0])


def _all(options: Options) -> None:
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    chips = None if options.any_chip is None else chip_names(options.any_chip)
    found = asked.every_chip(
        model,
        sizes,
        batch=options.batch_size,
        money=money(options),
        chips=chips,
        machine=options.machine,
        **settings(options),
    )
    say_unused(options, model)
    if options.json:
        for one in found:
            out(dumps(cost_row(one) if isinstance(one, Cost) else one.row()))
    else:
        from inferometer.report.cost_page import print_chips
        from inferometer.report.tables import Page

        print_chips(Page(), found)
    if not any(isinstance(one, Cost) and one.answer.estimate.feasible for one in found):
        say("no chip runs it: name more chips (-tp N, MACHINE), a narrower --quant, or less --batch-size")
        raise typer.Exit(NOT_FEASIBLE)


def compare(options: Options) -> None:
    """Print the matrix of chips and the picks; exit 1 where the model fits none."""
    from inferometer.api.compare import compare as answer
    from inferometer.report.matrix import matrix_row, print_matrix

    check_output(options)
    model = load_model(options.model)
    found = answer(
        model,
        None if options.any_chip is None else chip_names(options.any_chip),
        role_sizes(options, model),
        batch=options.batch_size,
        money=asked.Money(utilization=options.utilization),
        machine=options.machine,
        **settings(options),
    )
    say_unused(options, model)
    if options.json:
        out(dumps(matrix_row(found)))
    else:
        from inferometer.report.tables import Page

        print_matrix(Page(), found)
    if not found.fitting:
        say("no chip fits" + "".join(f"; would fit: {near}" for near in found.nearest))
        raise typer.Exit(NOT_FEASIBLE)


def prices(options: Options) -> None:
    """Print prices; exit 1 where there is none."""
    from inferometer.api.prices import prices as answer
    from inferometer.report.offers import offer_row, print_offers

    check_output(options)
    found = answer(
        options.price_chip, provider=options.provider, region=options.region, tier=options.tier, live=options.live
    )
    if not found.prices:
        say(f"no such price is known; {found.note}")
        raise typer.Exit(NOT_FEASIBLE)
    if options.json:
        for price in found.prices:
            out(dumps(offer_row(price)))
        return
    from inferometer.report.tables import Page

    print_offers(Page(), found.prices, found.note)


def spec(options: Options) -> None:
    """Print what speculation brings; exit 1 where target and drafter do not fit together."""
    from inferometer.api.speculation import Draft, speculate
    from inferometer.report.speculation import print_speculation, speculation_row

    check_output(options)
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    (machine, *more) = machines(options, sizes).values()
    if more:
        raise InferometerError("spec takes one CHIP")
    say_unused(options, model)
    draft = Draft(
        model=options.draft,
        quant=options.draft_quant,
        lookahead=Draft().lookahead if options.lookahead is None else options.lookahead,
        acceptance=options.acceptance,
        accepted=options.accepted,
        tree_tokens=options.tree_tokens,
    )
    batch = 1 if options.batch_size is None else options.batch_size
    found = speculate(model, machine, draft, sizes, batch=batch, **settings(options))
    if options.json:
        out(dumps(speculation_row(found)))
    else:
        from inferometer.report.tables import Page

        print_speculation(Page(), found)
    if found.reasons:
        say("not feasible: " + "; ".join(found.reasons))
        raise typer.Exit(NOT_FEASIBLE)


def money(options: Options) -> asked.Money:
    """Return how the deployment is used and paid for, as typed."""
    return asked.Money(
        utilization=options.utilization,
        api_usd_per_mtok=options.break_even,
        capex_usd=options.capex,
        lifetime_years=options.years,
        usd_per_kwh=options.kwh,
        pue_ratio=options.pue,
    )
