"""Runs command lines in this process."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from inferometer.cli.main import main


class Done(NamedTuple):
    """What a command line did."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Stdout, one object a line; NaN and Infinity are refused."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines()]


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def inferometer(*words: str) -> Done:
    """Run one command line."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(list(words))
    return Done(status, out.getvalue(), err.getvalue())


def refused(*words: str) -> str:
    """Run a command line that must fail as bad input; return its one line."""
    done = inferometer(*words)
    assert done.status == 2, done
    assert not done.out
    assert done.err.endswith("\n"), done.err
    assert done.err.count("\n") == 1, done.err
    assert "Traceback" not in done.err
    return done.err
