"""The console script: verbs, exit status, and every failure as one line.

Exit status: 0 answered; 1 nothing feasible, or it does not fit; 2 bad input; 130 interrupted.
"""

import os
import sys
from typing import Annotated

import typer

from inferometer.cli.options import ClosedPipeError, Options, check_once, command
from inferometer.cli.verb_options import VERBS
from inferometer.errors import InferometerError

NOT_FEASIBLE, BAD_INPUT, INTERRUPTED = 1, 2, 130

CommandLineError = typer.BadParameter.__mro__[2]
"""click's own base of what it says about a command line; typer carries it under several names."""

app = typer.Typer(
    help="How fast an LLM runs on which machine, sharded how; whether it fits, what it costs, how sure we are.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)


def _version(asked: bool) -> None:
    if asked:
        from inferometer import __version__

        typer.echo(f"inferometer {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    del version


def search(options: Options) -> None:
    """Rank every sharding, placement and batch of MODEL on one or more machines."""
    from inferometer.cli.verbs import search as verb

    verb(options, top=10)


def top(options: Options) -> None:
    """Rank as search does, and print the best few."""
    from inferometer.cli.verbs import search as verb

    verb(options, top=5)


def explain(options: Options) -> None:
    """Work one deployment out in full: operations, choices, memory, dollars, launch flags."""
    from inferometer.cli.verbs import explain as verb

    verb(options)


def memory(options: Options) -> None:
    """Divide a chip's memory line by line as an engine does; exit 1 where it does not fit."""
    from inferometer.cli.memory import memory as verb

    verb(options)


def fit(options: Options) -> None:
    """Find the accelerators of this machine and say for each whether MODEL fits; exit 1 where it fits in none."""
    from inferometer.cli.memory import fit as verb

    verb(options)


def max_batch(options: Options) -> None:
    """Find the most sequences in flight that fit; exit 1 where none does."""
    from inferometer.cli.memory import max_batch as verb

    verb(options)


def max_context(options: Options) -> None:
    """Find the longest sequences that fit; exit 1 where not one token does."""
    from inferometer.cli.memory import max_context as verb

    verb(options)


def cost(options: Options) -> None:
    """Say what tokens cost on MODEL's machine: rented or owned, at every price, on every chip; exit 1 if it misfits."""
    from inferometer.cli.money import cost as verb

    verb(options)


def compare(options: Options) -> None:
    """Hold every chip against MODEL: memory, speed, dollars, which to take; exit 1 where none fits."""
    from inferometer.cli.money import compare as verb

    verb(options)


def prices(options: Options) -> None:
    """List the prices of chips with source and date, or those of the day."""
    from inferometer.cli.money import prices as verb

    verb(options)


def spec(options: Options) -> None:
    """Say what speculative decoding brings MODEL: tokens a pass, speed-up, best lookahead, where batch ends it."""
    from inferometer.cli.money import spec as verb

    verb(options)


def report(options: Options) -> None:
    """Write a report to decide by on MODEL and CHIP, or render a report's own JSON again; exit 1 if it misfits."""
    from inferometer.cli.report import report as verb

    verb(options)


def params(options: Options) -> None:
    """Count the parameters of MODEL by kind of tensor."""
    from inferometer.cli.lists import params as verb

    verb(options)


def ops(options: Options) -> None:
    """List the operations of one pass of MODEL: shapes, FLOPs, bytes; no chip is needed."""
    from inferometer.cli.counts import ops as verb

    verb(options)


def kv(options: Options) -> None:
    """Size the cache of MODEL: a token, a sequence, windows and states, a chip of a sharding."""
    from inferometer.cli.counts import kv as verb

    verb(options)


def models(options: Options) -> None:
    """List the model presets."""
    from inferometer.cli.lists import models as verb

    verb(options)


def chips(options: Options) -> None:
    """List the chips, or one in full; how many of each hold a model."""
    from inferometer.cli.lists import chips as verb

    verb(options)


def check(options: Options) -> None:
    """Ask the pinned deployments of FILE again; exit 1 where one leaves its bounds."""
    from inferometer.cli.pins import check as verb

    verb(options)


def backends(options: Options) -> None:
    """List the cost backends: for which chips, how accurate, from what data."""
    from inferometer.cli.backends import backends as verb

    verb(options)


def calibrate(options: Options) -> None:
    """Fit factors to your own runs of one model, chip and engine; --calibration uses them."""
    from inferometer.cli.backends import calibrate as verb

    verb(options)


def validate(options: Options) -> None:
    """Hold predictions against published measurements."""
    from inferometer.cli.lists import validate as verb

    verb(options)


_FUNCTIONS = (
    *(search, top, explain, memory, fit, max_batch, max_context, ops, params, kv),
    *(cost, compare, prices, spec, report, models, chips, check, backends, calibrate, validate),
)
for _name, _verb in zip(VERBS, _FUNCTIONS, strict=True):
    command(app, _name, _verb)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit status; what went wrong is one line on stderr."""
    try:
        check_once(sys.argv[1:] if arguments is None else arguments)
        status = app(arguments, prog_name="inferometer", standalone_mode=False)
        sys.stdout.flush()
    except InferometerError as error:
        return _fail(str(error), BAD_INPUT)
    except (BrokenPipeError, ClosedPipeError):
        # Whoever read stdout has gone: say nothing, and keep the interpreter's last flush from saying it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(f"the answer cannot be written: {error.strerror or error}", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        if isinstance(error, CommandLineError):
            return _fail(_said(error), BAD_INPUT)
        raise
    return status if isinstance(status, int) else 0


def run() -> None:
    """Be the console script."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here calls BLAS, and its threads slow the start
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name no terminal can show is no reason to stop
    sys.exit(main())


def _said(error: Exception) -> str:
    """Return what click has to say about a command line, with the way to the list of what is allowed."""
    text = getattr(error, "format_message", lambda: str(error))()
    return f"{text.strip().removesuffix('.')}; see inferometer --help"


def _fail(text: str, status: int) -> int:
    line = " ".join(text.split())
    print(f"inferometer: {line}", file=sys.stderr)  # noqa: T201 (this is the place that talks to stderr)
    return status
