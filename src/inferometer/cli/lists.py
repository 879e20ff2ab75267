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
    from inferometer.report.tables import models_table, stdout_console

    stdout_console().print(models_table(rows))


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
    from inferometer.report.tables import chips_table, stdout_console

    console = stdout_console()
    console.print(chips_table(rows, model=options.for_model))
    if options.for_model is not None:
        share = terms.assumed.get("reserve", "as given")
        console.print(f"\nleast chips: weights of {options.for_model} over visible memory less a reserve ({share})")


def params(options: Options) -> None:
    """Count the parameters of a model."""
    check_output(options)
    row = params_row(load_model(options.model, options.quant))
    if options.json:
        out(dumps(row))
        return
    from inferometer.report.tables import GIB, params_table, stdout_console

    console = stdout_console()
    console.print(params_table(row))
    console.print(f"\ncheckpoint {row['checkpoint_bytes'] / GIB:,.2f} GiB")
    if row["unknown_keys"]:
        console.print(f"config keys not understood: {', '.join(row['unknown_keys'])}")
    for remark in row["assumed"]:
        console.print(f"assumed: {remark}")


def validate(options: Options) -> None:
    """Hold predictions against measurements, a point at a time."""
    check_output(options)
    from inferometer.measurement.validate import validate_points

    rows = validate_points(options.points, options.backend or "roofline")
    if options.json:
        _lines(row for row in rows if _of_class(row, options.measured_class))
        return
    raise InferometerError("TODO")


def _of_class(row: dict[str, Any], wanted: str | None) -> bool:
    return wanted is None or row.get("class", wanted) == wanted


def _lines(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        out(dumps(row))
