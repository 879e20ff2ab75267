"""The fenced blocks of README.md: find them, run them, write their output back (`make readme`)."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).parents[2] / "README.md"
COLUMNS = "110"
"""Width of the shown terminal."""


class Console(NamedTuple):
    """One command of a console block, and what the page says it prints ("" where it says nothing)."""

    command: str
    output: str


def fences(language: str, text: str) -> list[str]:
    """Bodies of the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def consoles(text: str) -> list[Console]:
    r"""Commands of every console block, with the output below each.

    >>> consoles("```console\n$ a --b\nx\ny\n$ c\n```")
    [Console(command='a --b', output='x\ny\n'), Console(command='c', output='')]
    """
    found = []
    for body in fences("console", text):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Console(command, output))
    return found


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page as its reader would: our console script, or make."""
    inherited = {key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    words = shlex.split(command)
    if words[0] == "inferometer":
        words[0] = str(Path(sys.executable).with_name("inferometer"))
    return subprocess.run(
        words,
        cwd=README.parent,
        env={**inherited, "COLUMNS": COLUMNS, "NO_COLOR": "1", "TERM": "dumb", "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def shown(output: str) -> str:
    """Output as the page shows it: no trailing blanks, which an editor would drop."""
    return "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())


def cut(output: str, like: str) -> str:
    r"""Output cut to as many lines as the page shows before a line `...`; whole where it has none.

    >>> cut("a\nb\nc\n", "x\ny\n...\n")
    'a\nb\n...\n'
    """
    before, found, _ = like.partition("\n...\n")
    return "".join(output.splitlines(keepends=True)[: before.count("\n") + 1]) + "...\n" if found else output


def rewrite() -> None:
    """Put the present output below every command of the page. Raises CalledProcessError where one fails."""
    text = README.read_text(encoding="utf-8")
    for console in consoles(text):
        done = run(console.command)
        sys.stderr.write(done.stderr)
        done.check_returncode()
        before = f"$ {console.command}\n{console.output}"
        text = text.replace(before, f"$ {console.command}\n{cut(shown(done.stdout), console.output)}", 1)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
