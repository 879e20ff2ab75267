"""`inferometer --help` answers at once: the heavy imports wait for a verb that needs them."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from repo.tree import ROOT

HEAVY = ("numpy", "msgspec", "huggingface_hub", "jinja2", "nicegui", "matplotlib", "torch")
BUDGET_S = 0.2
SLOW_MACHINE = 5.0
"""Shared CI cores, with other tests beside this one."""


def command():
    """The installed console script."""
    found = [Path(sys.executable).with_name(name) for name in ("inferometer", "inferometer.exe")]
    scripts = [path for path in found if path.exists()]
    assert scripts, f"no console script beside {sys.executable}; run `make test`, or `pip install -e .`"
    return str(scripts[0])


def run_help(**environment):
    return subprocess.run(
        [command(), "--help"],
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def test_help_answers():
    done = run_help()
    assert done.returncode == 0, done.stderr
    assert "search" in done.stdout


def test_help_loads_nothing_heavy():
    done = run_help(PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0, done.stderr
    loaded = set(re.findall(r"\|\s+([\w.]+)$", done.stderr, flags=re.MULTILINE))
    assert "inferometer.cli.main" in loaded, "the import profile was not read"
    assert not loaded.intersection(HEAVY)


def test_help_is_quick():
    elapsed_s = []
    for _ in range(5):
        start_s = time.perf_counter()
        run_help()
        elapsed_s.append(time.perf_counter() - start_s)
    assert min(elapsed_s) < BUDGET_S * SLOW_MACHINE
