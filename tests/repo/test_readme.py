"""What README.md tells a newcomer to type works, and prints what the page shows."""

import doctest
import re
import shutil
import subprocess
import sys

import pytest
from repo.readme import README, consoles, fences, run, shown
from repo.tree import ROOT

TEXT = README.read_text(encoding="utf-8")


@pytest.mark.parametrize("console", consoles(TEXT), ids=lambda console: console.command)
def test_command(console):
    if console.command.startswith("make ") and shutil.which("make") is None:
        pytest.skip("no make on this machine")
    done = run(console.command)
    assert done.returncode == 0, done.stderr
    got = shown(done.stdout)
    if console.output:
        same = doctest.OutputChecker().check_output(console.output, got, doctest.ELLIPSIS)
        assert same, f"README.md is out of date (make readme):\n{console.output}\nis now\n{got}"


def test_the_first_command_is_make_run():
    assert consoles(TEXT)[0].command == "make run"


@pytest.mark.parametrize("snippet", fences("python", TEXT))
def test_snippet(snippet):
    done = subprocess.run([sys.executable, "-W", "error", "-c", snippet], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_has_a_snippet():
    assert fences("python", TEXT)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
    ],
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (path.parent / target).exists()]
