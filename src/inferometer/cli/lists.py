"""The verbs that list: models, chips, params, validate."""

from collections.abc import Callable, Iterable
from typing import Any

import typer

from inferometer.api.load import checkpoint_of, load_model
from inferometer.api.settings import DEFAULT_BACKEND, settle
from inferometer.blocks.params import count_params
from inferometer.catalog.loader import find_machine, load_chips, preset_ids, prices_for, subject
from inferometer.cli.options import Options, flags
from inferometer.cli.verbs import NOT_FEASIBLE, check_output, out, say, settings
from inferometer.errors import InferometerError, unknown_name
from inferometer.memory.footprint import Reserve
from inferometer.report.catalog_rows import (
    chip_row,
    chosen_chips,
    full_chip_row,
    least_chips,
    model_row,
    params_row,
    sorted_chips,
)
from inferometer.report.row import dumps
from inferometer.specs.hardware import ChipSpec

PIPED = 200
"""Columns of a list of names whose output is no terminal's: whoever reads it, reads whole lines."""


def models(options: Options) -> None:
    """List the model presets."""
    check_output(options)
    rows = [model_row(load_model(name)) for name in preset_ids()]
    if options.json:
        _lines(rows)
        return
    from inferometer.report.tables import Page, models_table

    page = Page(piped_width=PIPED)
    page.show(models_table(rows, width=page.width))


def chips(options: Options) -> None:
    """List the chips, or print one in full; with a model, how many of each hold its weights."""
    check_output(options)
    if options.one_chip is not None:
        _one_chip(options, options.one_chip)
        return
    listed = chosen_chips(load_chips().values(), options.vendor, options.min_memory)
    weigh = _weigher(options)
    terms = settle(settings(options))
    rows = [chip_row(chip, terms.price(chip.id), weigh(chip, terms.reserve)) for chip in listed]
    if options.sort is not None:
        rows = sorted_chips(rows, options.sort)
    if not rows:
        say("no chip is like that: leave --vendor out, or ask for less with --min-memory")
        raise typer.Exit(NOT_FEASIBLE)
    if options.json:
        _lines(rows)
    else:
        _chips_page(options, rows, terms.assumed.get("reserve", "as given"))


def _chips_page(options: Options, rows: list[dict[str, Any]], share: str) -> None:
    from inferometer.report.tables import Page, chips_table

    page = Page()
    page.show(chips_table(rows, model=options.for_model, width=page.width))
    if options.for_model is not None:
        page.show()
        page.show(f"least chips: weights of {options.for_model} over visible memory less a reserve ({share})")


def _one_chip(options: Options, name: str) -> None:
    narrowing = [flag for flag in ("vendor", "min_memory", "sort") if getattr(options, flag) is not None]
    if narrowing:
        raise InferometerError(f"{flags(narrowing[0])[0]} is for the list of chips; leave CHIP out")
    terms, (chip, named, _) = settle(settings(options)), subject(name)
    least = _weigher(options)(chip, terms.reserve)
    machine = named or find_machine(chip.default_machine)
    if named is not None:
        say(f"{name} carries {chip.id}")
    row = full_chip_row(chip, terms.price(chip.id), least, machine, prices_for(chip.id))
    if options.json:
        out(dumps(row))
        return
    from inferometer.report.chip import print_chip
    from inferometer.report.tables import Page

    print_chip(Page(), row)


def _weigher(options: Options) -> Callable[[ChipSpec, Reserve], int | None]:
    """Return what says how many of a chip hold the model's weights; nothing without a model."""
    if options.for_model is None:
        if options.quant is not None:
            raise InferometerError("--quant needs --model")
        return lambda chip, reserve: None  # noqa: ARG005 (called as the other)
    weights = count_params(load_model(options.for_model, options.quant)).checkpoint_bytes
    return lambda chip, reserve: least_chips(weights, chip, reserve)


def params(options: Options) -> None:
    """Count the parameters of a model."""
    check_output(options)
    if options.grouped not in (None, "kind", "layer"):
        raise unknown_name("grouping in --by", options.grouped[:40], ("kind", "layer"))
    model = load_model(options.model, options.quant)
    row = params_row(model, None if options.quant else checkpoint_of(options.model, model))
    if options.json:
        out(dumps(row))
        return
    from inferometer.report.params import checkpoint_text, dtypes_table, layers_table, params_table
    from inferometer.report.tables import Page

    page = Page()
    page.show(layers_table(row) if options.grouped == "layer" else params_table(row))
    page.show()
    page.show(dtypes_table(row))
    page.show()
    page.show(*checkpoint_text(row))
    if row["unknown_keys"]:
        say(f"config keys not understood: {', '.join(row['unknown_keys'])}")
    for remark in row["assumed"]:
        say(f"assumed: {remark}")


def validate(options: Options) -> None:
    """Hold predictions against measurements, a point at a time."""
    check_output(options)
    from inferometer.measurement.questions import SCORED_CLASSES
    from inferometer.measurement.validate import validate_points
    from inferometer.report.plot import draw, plot_form

    classes = SCORED_CLASSES if options.measured_class is None else (options.measured_class,)
    backend = options.backend or DEFAULT_BACKEND
    form = None if options.plot is None else plot_form(options.plot)
    rows: Iterable[dict[str, Any]] = validate_points(
        options.points, backend=backend, calibration=options.calibration, classes=classes
    )
    if options.plot is not None and form is not None:
        rows = list(rows)
        draw(rows, options.plot, form)
    if options.json:
        _lines(rows)
        return
    from inferometer.report.tables import Page, validation_tables

    *_, last = rows
    summary = last["summary"]
    page = Page()
    page.show(f"{summary['scored']:,} of {summary['points']:,} published points scored, backend {summary['backend']}")
    for part in validation_tables(summary):
        page.show()
        page.show(part)
    page.show()
    left = ", ".join(f"{number:,} {reason}" for reason, number in summary["not_scored_by_kind"].items())
    page.show("error = predicted / measured - 1; bias is its median; in band: low <= measured <= high")
    if left:
        page.show(f"not scored: {left}")


def _lines(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        out(dumps(row))
