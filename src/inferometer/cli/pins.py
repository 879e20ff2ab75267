"""The verb check: pinned deployments of a file, asked again."""

import typer

from inferometer.api.pins import check_pins
from inferometer.cli.options import Options
from inferometer.cli.verbs import NOT_FEASIBLE, check_output, out
from inferometer.report.pins import pin_line, pin_row
from inferometer.report.row import dumps


def check(options: Options) -> None:
    """Print a line a pin; exit 1 where one moved."""
    check_output(options)
    pins = check_pins(options.pins)
    for pin in pins:
        out(dumps(pin_row(pin)) if options.json else pin_line(pin))
    if not all(pin.ok for pin in pins):
        raise typer.Exit(NOT_FEASIBLE)
