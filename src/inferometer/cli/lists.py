"""The verbs that list: models, chips, params, validate."""

from collections.abc import Iterable
from typing import Any

from inferometer.api.load import load_model
from inferometer.api.settings import settle
from inferometer.blocks.params import count_params
from inferometer.catalog.loader import load_chips, preset_ids
from inferometer.cli.options import Options
from inferometer.cli.verbs import check_output, out, settings
from inferometer.errors import InferometerError
from inferometer.report.catalog_rows import chip_row, least_chips, model_row, params_row
from inferometer.report.row import dumps


def models(options: Options) -> None:
    """List the model presets."""
    check_output(options)
    rows = [model_row(load_model(name)) for name in preset_ids()]
    if options.json:
        _lines(rows)
        return
    from inferometer.report.tables import Page, models_table

    page = Page()
    page.show(models_table(rows, width=page.width))


def chips(options: Options) -> None:
    """List the chips; with a model, how many of each hold its weights."""
    check_output(options)
    terms = settle(settings(options))
    weights = None
    if options.for_model is not None:
        weights = count_params(load_model(options.for_model, options.quant)).checkpoint_bytes
    elif options.quant is not None:
        raise InferometerError("--quant needs --model")
    rows = []
    for chip in load_chips().values():
        least = None if weights is None else least_chips(weights, chip, terms.reserve)
        rows.append(chip_row(chip, terms.price(chip.id), least))
    if options.json:
        _lines(rows)
        return
    from inferometer.report.tables import Page, chips_table

    page = Page()
    page.show(chips_table(rows, model=options.for_model, width=page.width))
    if options.for_model is not None:
        share = terms.assumed.get("reserve", "as given")
        page.show()
        page.show(f"least chips: weights of {options.for_model} over visible memory less a reserve ({share})")


def params(options: Options) -> None:
    """Count the parameters of a model."""
    check_output(options)
    row = params_row(load_model(options.model, options.quant))
    if options.json:
        out(dumps(row))
        return
    from inferometer.report.tables import GIB, Page, params_table

    page = Page()
    page.show(params_table(row))
    page.show()
    page.show(f"checkpoint {row['checkpoint_bytes'] / GIB:,.2f} GiB")
    if row["unknown_keys"]:
        page.show(f"config keys not understood: {', '.join(row['unknown_keys'])}")
    for remark in row["assumed"]:
        page.show(f"assumed: {remark}")


def validate(options: Options) -> None:
    """Hold predictions against measurements, a point at a time."""
    check_output(options)
    from inferometer.measurement.questions import SCORED_CLASSES
    from inferometer.measurement.validate import validate_points

    classes = SCORED_CLASSES if options.measured_class is None else (options.measured_class,)
    rows = validate_points(options.points, backend=options.backend or "roofline", classes=classes)
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
