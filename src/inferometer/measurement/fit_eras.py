"""Fit how many times longer the software of 2024 took, an engine and generation, and write it beside the backend.

python -m inferometer.measurement.fit_eras

The scalar of a generation is the median of measured over predicted time, each pair of model and chip weighing the
same, drawn to the engine's median over all pairs as if one more pair had that. What is predicted comes from today's
factors of the row's own fold, which have seen neither the pair nor any row of this data; a fold's scalars have not seen
its pairs.
"""

import datetime as dt
import json
import sys
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from inferometer.cost.calibrated import calibrated_with, load_serving
from inferometer.cost.eras import ERAS_FILE, Era, Eras, Scalar
from inferometer.measurement.bands import ends_of
from inferometer.measurement.models import chip_of
from inferometer.measurement.questions import ERAS, FOLDS, fold_of
from inferometer.measurement.validate import asked_points, predictions

COMMAND = "python -m inferometer.measurement.fit_eras"


class Ran(NamedTuple):
    """A published run of an era."""

    era: str
    generation: str
    pair: str
    fold: int
    log_times: float
    """Log of measured over predicted time."""


def runs() -> list[Ran]:
    """Return the runs of every era that can be priced."""
    asked = [one for one in asked_points() if one.question.era and not one.point.suspicious]
    found = []
    for fold in range(FOLDS):
        mine = [one for one in asked if fold_of(one.question.setup.model, one.question.setup.chip) == fold]
        for one, value in zip(mine, predictions(mine, calibrated_with(load_serving().folds[fold])), strict=True):
            setup, chip = one.question.setup, chip_of(one.question.setup.chip)
            if chip is not None and np.isfinite(value):
                sign = 1.0 if one.point.is_time else -1.0
                off = sign * float(np.log(one.point.measured / value))
                found.append(Ran(one.question.era, chip.generation, f"{setup.model}|{chip.id}", fold, off))
    return found


def middle(found: list[Ran]) -> float:
    """Return the median log time, each pair weighing the same."""
    rows = Counter(one.pair for one in found)
    ordered = sorted(found, key=lambda one: one.log_times)
    weight = np.cumsum([1 / rows[one.pair] for one in ordered])
    return ordered[int(np.searchsorted(weight, weight[-1] / 2))].log_times


def scalars(found: list[Ran]) -> dict[str, float]:
    """Return the scalar of each generation, and the one all share."""
    common = middle(found)
    out = {"common": common}
    for generation in sorted({one.generation for one in found}):
        own = [one for one in found if one.generation == generation]
        pairs = len({one.pair for one in own})
        out[generation] = common + (middle(own) - common) * pairs / (pairs + 1)
    return {name: float(f"{np.exp(value):.3g}") for name, value in out.items()}


def fit(name: str, found: list[Ran]) -> Era:
    """Return an era fitted to its runs."""
    whole = scalars(found)
    folds = tuple(scalars([one for one in found if one.fold != fold]) for fold in range(FOLDS))
    held = np.array(
        [np.log(folds[one.fold].get(one.generation, folds[one.fold]["common"])) - one.log_times for one in found]
    )
    ends, off = ends_of(held), np.expm1(held)
    return Era(
        name=name,
        of=ERAS[name],
        common=whole.pop("common"),
        scalars={generation: _scalar(times, found, generation) for generation, times in whole.items()},
        folds=folds,
        low=ends.low,
        high=ends.high,
        figures={
            "n": len(found),
            "median": _short(np.median(np.abs(off))),
            "p90": _short(np.quantile(np.abs(off), 0.9)),
            "bias": _short(np.median(off)),
        },
    )


def _scalar(times: float, found: Iterable[Ran], generation: str) -> Scalar:
    own = [one for one in found if one.generation == generation]
    return Scalar(times=times, n=len(own), models=len({one.pair for one in own}))


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    """Fit, write the file, and say how far rows that a fold left out are off."""
    found = runs()
    eras = tuple(fit(name, [one for one in found if one.era == name]) for name in ERAS)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    whole = msgspec.to_builtins(Eras(command=COMMAND, date=today, eras=eras))
    ERAS_FILE.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    for era in eras:
        sys.stdout.write(f"{era.name}: {era.figures}, { ({g: s.times for g, s in era.scalars.items()}) }\n")


if __name__ == "__main__":
    main()
