"""Recorded timings in place of an installed aiconfigurator-core, and the backends that the laws are asked of."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from inferometer.cost.calibrated import calibrated_with
from inferometer.cost.measured import Measured
from inferometer.cost.registry import backend_names, create_backend
from inferometer.cost.silicon import FORMS, Timed, installed_version

FILE = Path(__file__).parent / "data" / "silicon.json"
INSTALLED = installed_version() is not None


@cache
def recorded():
    return json.loads(FILE.read_text(encoding="utf-8"))


class Recorded:
    """The tables of the file."""

    def read(self, chip, form):
        """Return a table of it."""
        rows = [row for row in recorded()["rows"] if row["form"] == form] if chip == recorded()["chip"] else []
        if not rows:
            return None
        columns = {letter: np.array([row[letter] for row in rows]) for letter in FORMS[form].letters}
        return Timed(columns, np.array([row["seconds"] for row in rows]))


@cache
def backend(name):
    """Return a backend by name; `recorded` is the measured one over the file."""
    return Measured(create_backend("calibrated"), Recorded()) if name == "recorded" else create_backend(name)


@cache
def kernels():
    """Return the measured backend over kernels alone: what a table says, without factors of serving."""
    return Measured(calibrated_with({}), Recorded())


FOUND = ("recorded", *(name for name in backend_names() if name != "measured" or INSTALLED))
"""Every backend there is, of other distributions too."""
