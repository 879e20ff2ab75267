"""What the measured backend says of itself: which chips were timed, in what, and how far off it is."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from inferometer.cost.backend import Band, Covered, Figure, Told
from inferometer.cost.calibrated import Calibrated, load_serving
from inferometer.cost.measured_chips import TIMED_CHIPS
from inferometer.cost.silicon import INSTALL

FILE = Path(__file__).parent / "data" / "measured.json"
"""Scores by the command it names (`inferometer.measurement.score_measured`)."""

FORMS = {
    "gemm": "matrix products",
    "moe": "grouped products",
    "bmm-in": "products a head, in",
    "bmm-out": "products a head, out",
    "decode": "attention, decode",
    "prefill": "attention, prefill",
    "mla-decode": "MLA, decode",
    "mla-prefill": "MLA, prefill",
}


@cache
def scores() -> dict[str, Any]:
    """Return the committed scores; read at the first call."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def told(inner: Calibrated, version: str | None) -> Told:
    """Return what is said of the tables of a version (None: not installed) over a calibrated backend."""
    own = scores()
    runs = [
        Figure(f"published runs, class {row['class']} tpot, {row['chip']}", **row["measured"]) for row in own["runs"]
    ]
    chips = dict.fromkeys(row["chip"] for row in own["kernels"])
    return Told(
        data=(
            f"timed kernels: NVIDIA {own['data']} (Apache-2.0); installed: {version or f'no ({INSTALL})'}",
            "norms, copies, scans and messages, and what was not timed: the calibrated backend",
        ),
        commands=(f"{own['command']} ({own['date']})",),
        figures=tuple(runs),
        covered=tuple(_covered(inner, chip) for chip in chips),
    )


def _covered(inner: Calibrated, chip: str) -> Covered:
    serving, generation = load_serving(), TIMED_CHIPS[chip].generation
    rows = [row for row in scores()["kernels"] if row["chip"] == chip]
    known = generation in inner.known
    low, high = (serving.low, serving.high) if known else (serving.wide_low, serving.wide_high)
    factors = serving.factors.get(generation)
    return Covered(
        generation=generation,
        basis="measured",
        dtypes=tuple(dict.fromkeys(row["form"].split(".")[1] for row in rows if row["form"].startswith("gemm"))),
        n=factors.n if factors else 0,
        band=Band(low, high, "", serving.apart),
        source=f"{sum(row['row']['n'] for row in rows):,} timed kernels, shapes held out",
        figures=tuple(Figure(form_text(row["form"]), **row["shape"]) for row in rows),
        chips=(chip,),
    )


def form_text(form: str) -> str:
    """Return a form for a reader.

    >>> form_text("gemm.fp8-block"), form_text("mla-prefill")
    ('matrix products fp8-block', 'MLA, prefill')
    """
    kind, _, rest = form.partition(".")
    return f"{FORMS[kind]} {rest}".strip()
