"""The verb report: written from a question, or rendered again from its own JSON."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from inferometer.cli.options import Options, flags, spelled
from inferometer.cli.verbs import NOT_FEASIBLE, check_output, machines, out, role_sizes, say, say_unused, settings
from inferometer.errors import InferometerError
from inferometer.report.document import form_of, read_report, reasons, render
from inferometer.report.row import dumps

KEPT = ("model", "output", "form", "json", "table")
"""What rendering again takes."""


def report(options: Options) -> None:
    """Write the report; exit 1 where the deployment does not run."""
    check_output(options)
    if options.json and (options.form or options.output):
        raise InferometerError("--json is the report on a line; leave --format and --output out")
    form = form_of(options.output, options.form)
    kept = read_report(Path(options.model))
    if kept is not None:
        _check_alone(options)
    found = _ask(options) if kept is None else kept
    _write(options, found, form)
    if reasons(found):
        say("not feasible: " + "; ".join(reasons(found)))
        raise typer.Exit(NOT_FEASIBLE)


def _check_alone(options: Options) -> None:
    """Refuse what would change a report that is written already."""
    plain = Options()
    for field in (name for name in options.__dataclass_fields__ if name not in KEPT):
        if getattr(options, field) != getattr(plain, field):
            name = next(iter(flags(field)), field.replace("any_chip", "CHIP").upper())
            raise InferometerError(f"{options.model} is a report: it is only rendered again; leave {name} out")


def _ask(options: Options) -> dict[str, Any]:
    from inferometer.api.load import load_model
    from inferometer.api.report import report as answer
    from inferometer.cli.money import money

    if options.any_chip is None:
        raise InferometerError("report needs CHIP, or the .json of a report as MODEL")
    options = replace(options, chip=options.any_chip)
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    (machine, *more) = machines(options, sizes).values()
    if more:
        raise InferometerError("report takes one CHIP; it compares with all")
    say_unused(options, model)
    found = answer(model, machine, sizes, batch=options.batch_size, money=money(options), **settings(options))
    return found | {"commands": list(_commands(options, found))}


def _commands(options: Options, found: dict[str, Any]) -> Iterator[str]:
    """Yield the commands whose answers the report holds."""
    batch = found["cost"]["batch"]
    asked = replace(options, batch_size=batch)
    yield spelled("cost", asked)
    yield spelled("cost", replace(asked, compare_clouds=True, capex=None, years=None, kwh=None, pue=None))
    yield spelled("memory", replace(asked, context=found["context"]))
    yield spelled("compare", replace(asked, any_chip=None, machine=None, sizes=_sizes(found), **_NO_FLAGS))
    yield spelled("explain", asked)
    yield spelled("report", options)


_NO_FLAGS: dict[str, Any] = {
    "tensor_parallel_size": None,
    "pipeline_parallel_size": None,
    "data_parallel_size": None,
    "enable_expert_parallel": False,
    "expert_parallel_size": None,
    "decode_context_parallel_size": None,
}


def _sizes(found: dict[str, Any]) -> str:
    """Return all role sizes as --sizes takes them."""
    sizes = found["cost"]["sizes"]
    return ",".join(f"{role.upper()}={size}" for role, size in sizes.items() if size > 1) or "TP=1"


def _write(options: Options, found: dict[str, Any], form: str) -> None:
    if options.json:
        out(dumps(found))
        return
    text = render(found, form)
    if options.output is None:
        sys.stdout.write(text)
        return
    try:
        Path(options.output).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InferometerError(f"--output {options.output[:80]}: {error.strerror or error}") from None
    say(f"written to {options.output}")
