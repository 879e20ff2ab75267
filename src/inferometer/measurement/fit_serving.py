"""Fit the factors of every generation to published serving measurements, and write them beside the backend.

python -m inferometer.measurement.fit_serving

Eight factors a generation (`cost.factors`), by Gauss-Newton on log(predicted / measured): few, each drawn to 1 so that
what the points do not tell stays as the kernels were timed. A pair of model and chip weighs the same however many rows
it has, but less by classes that say less (WEIGHTS). Folds are of such pairs: the factors of a fold have not seen its
models on its chips, and `validate` prices every row with its own fold's. Left out of the fit, not of the score: rows
marked suspicious, those of 2024's software, and TTFT, which is the engine's more than the chip's.
"""

import datetime as dt
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from inferometer.cost.calibrated import SERVING_FILE, calibrated_with, load_fits
from inferometer.cost.factors import NAMES, Factors
from inferometer.measurement.bands import apart_of, covered, covered_by_others, ends_of, wide_of
from inferometer.measurement.models import chip_of
from inferometer.measurement.questions import FOLDS, fold_of
from inferometer.measurement.summary import ARGONNE
from inferometer.measurement.validate import Asked, asked_points, predictions
from inferometer.specs.deployment import Sizes

COMMAND = "python -m inferometer.measurement.fit_serving"
ROUNDS = 4
STEP = 0.05
"""Change of a factor that a derivative is taken over."""
PULL_COMMON, PULL_OWN = 2.0, 1.0
"""How much a log factor away from 0, or of a generation from the common one, counts against residuals of SPREAD, in
pairs of model and chip."""
SPREAD = 0.15
"""Residual beyond which a row's weight falls, so that no single strange series decides."""
WEIGHTS = {"A": 0.2, "C": 0.5}
"""Class -> weight of a pair's rows, of others 1: class A is software of 2023 and 2024, class C states no batch."""
LIMITS = (0.3, 3.5)
"""Least and most of a factor."""

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """What the fit sees of the points."""

    asked: tuple[Asked, ...]
    generation: tuple[str, ...]
    pair: tuple[str, ...]
    fold: npt.NDArray[np.intp]
    weight: Vector
    """Of the row's class; rows of a pair and weight share it."""
    measured: Vector
    sign: Vector
    """1 where the metric is seconds, -1 where it is a rate: residuals are of time."""


def fitted_rows() -> Rows:
    """Return the rows that the fit uses."""
    found = []
    for one in asked_points():
        point, chip = one.point, chip_of(one.question.setup.chip)
        old = bool(one.question.era) or point.source.url.startswith(ARGONNE)
        if chip is None or point.suspicious or old or point.metric == "ttft":
            continue
        found.append((one, chip))
    return Rows(
        asked=tuple(one for one, _ in found),
        generation=tuple(chip.generation for _, chip in found),
        pair=tuple(f"{one.question.setup.model}|{chip.id}" for one, chip in found),
        fold=np.array([fold_of(one.question.setup.model, one.question.setup.chip) for one, chip in found]),
        weight=np.array([WEIGHTS.get(one.point.klass, 1.0) for one, _ in found]),
        measured=np.array([one.point.measured for one, _ in found]),
        sign=np.array([1.0 if one.point.is_time else -1.0 for one, _ in found]),
    )


def log_times(rows: Rows, factors: Mapping[str, Factors]) -> Vector:
    """Return log(predicted / measured) time of every row; nan where it cannot be priced."""
    predicted = predictions(rows.asked, calibrated_with(factors))
    return rows.sign * np.log(np.array(predicted) / rows.measured)


def changed(factors: Mapping[str, Factors], name: str, times: float) -> dict[str, Factors]:
    """Return factors with one of every generation changed."""
    return {g: msgspec.structs.replace(f, **{name: getattr(f, name) * times}) for g, f in factors.items()}


class Linear(NamedTuple):
    """log(predicted / measured) of every row about the factors it was worked out at."""

    at: Mapping[str, Factors]
    off: Vector
    """(n,)."""
    slope: Vector
    """(n, 8) by log factor."""

    def residuals(self, mine: Mask, center: Mapping[str, Vector], rows: Rows) -> Vector:
        """Return the residuals of some rows, moved to the log factors `center` of their generations."""
        moved = np.array([center[g] - logs(self.at[g]) for g in np.array(rows.generation)[mine]])
        found: Vector = self.off[mine] + (self.slope[mine] * moved).sum(axis=1)
        return found


def logs(factors: Factors) -> Vector:
    """Return the logarithms of factors, in the order of NAMES."""
    return np.log([getattr(factors, name) for name in NAMES])


def step(rows: Rows, mine: Mask, line: Linear, center: Mapping[str, Vector], pull: float) -> Vector:
    """Return how far from `center` the rows move it, drawn back by `pull`: weighted ridge regression."""
    off = line.residuals(mine, center, rows)
    series = [(pair, weight) for pair, weight, own in zip(rows.pair, rows.weight, mine, strict=True) if own]
    counts = Counter(series)
    rows_of = np.array([float(counts[one]) for one in series])
    weight = rows.weight[mine] / (rows_of * np.sqrt(1 + (off / SPREAD) ** 2))
    slope = line.slope[mine]
    normal = (slope * weight[:, None]).T @ slope + pull * SPREAD**2 * np.eye(len(NAMES))
    return np.asarray(np.linalg.solve(normal, -(slope * weight[:, None]).T @ off), dtype=np.float64)


def solve(rows: Rows, keep: Mask, line: Linear) -> dict[str, Factors]:
    """Return factors one Gauss-Newton step on, of the rows kept.

    First what all generations have in common, then each generation's own about that: one without rows has the common.
    """
    kept = keep & np.isfinite(line.off)
    center: dict[str, Vector] = dict.fromkeys(line.at, np.zeros(len(NAMES)))
    common = np.clip(step(rows, kept, line, center, PULL_COMMON), *np.log(LIMITS))
    center = dict.fromkeys(line.at, common)
    out = {}
    for name in line.at:
        mine = kept & (np.array(rows.generation) == name)
        own = common + step(rows, mine, line, center, PULL_OWN) if mine.any() else common
        values = {n: float(f"{np.exp(x):.3g}") for n, x in zip(NAMES, np.clip(own, *np.log(LIMITS)), strict=True)}
        out[name] = Factors(**values, basis="calibrated" if mine.any() else "assumed", n=int(mine.sum()))
    return out


def fit_serving(rows: Rows) -> tuple[dict[str, Factors], list[dict[str, Factors]], Vector]:
    """Return (factors of all rows, of every fold's others, log residuals of each row by its own fold's)."""
    now = dict.fromkeys(load_fits().generations, Factors())
    every = np.ones(len(rows.asked), dtype=np.bool_)
    for number in range(ROUNDS):
        off = log_times(rows, now)
        slope = np.stack([(log_times(rows, changed(now, n, 1 + STEP)) - off) / np.log(1 + STEP) for n in NAMES], axis=1)
        line = Linear(now, off, slope)
        folds = [solve(rows, rows.fold != fold, line) for fold in range(FOLDS)]
        now = solve(rows, every, line)
        sys.stdout.write(f"round {number + 1}: median |error| {np.nanmedian(np.abs(np.expm1(off))):.3f}\n")
    held = np.full(len(rows.asked), np.nan)
    for fold, factors in enumerate(folds):
        mine = rows.fold == fold
        held[mine] = log_times(only(rows, mine), factors)
    return now, folds, held


def only(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    """Return some of the rows."""

    def some(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(value for value, own in zip(values, mask, strict=True) if own)

    return Rows(
        asked=some(rows.asked),
        generation=some(rows.generation),
        pair=some(rows.pair),
        fold=rows.fold[mask],
        weight=rows.weight[mask],
        measured=rows.measured[mask],
        sign=rows.sign[mask],
    )


def figures(rows: Rows, held: Vector) -> dict[str, dict[str, float]]:
    """Return n, median and p90 of |error| and the bias by class and kind of metric, held out."""
    groups: dict[str, list[float]] = {}
    for one, off, sign in zip(rows.asked, held, rows.sign, strict=True):
        kind = one.point.metric if one.point.is_time else "throughput"
        if np.isfinite(off):
            groups.setdefault(f"{one.point.klass} {kind}", []).append(float(np.expm1(sign * off)))
    return {
        name: {
            "n": len(found),
            "median": float(f"{np.median(np.abs(found)):.3g}"),
            "p90": float(f"{np.quantile(np.abs(found), 0.9):.3g}"),
            "bias": float(f"{np.median(found):.3g}"),
        }
        for name, found in sorted(groups.items())
    }


def bands(rows: Rows, folds: Sequence[Mapping[str, Factors]], held: Vector) -> dict[str, Any]:
    """Return the bands of held-out rows, and what they cover.

    A row whose fold has factors of its generation counts for the band of chips that are calibrated; the others say how
    far off it is where a generation was never measured.
    """
    known = np.array([folds[f][g].basis == "calibrated" for f, g in zip(rows.fold, rows.generation, strict=True)])
    narrow = ends_of(held[known])
    wide = wide_of(narrow)
    questions = [one.question for one in rows.asked]
    load = [
        (q.klass, q.setup._replace(sizes=Sizes(), n_chips=0), q.framework, q.isl_tok, q.osl_tok, one.point.metric)
        for one, q in zip(rows.asked, questions, strict=True)
    ]
    apart = apart_of(np.where(known, held, np.nan), load, [q.setup.sizes for q in questions])
    return {
        "low": narrow.low,
        "high": narrow.high,
        "wide_low": wide.low,
        "wide_high": wide.high,
        "apart": apart,
        "coverage": {
            "calibrated": _short(covered(held[known], narrow)),
            "calibrated, band of the other folds": _short(covered_by_others(held[known], rows.fold[known])),
            "assumed": _short(covered(held[~known], wide)),
        },
    }


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    """Fit, write the file, and say how far rows that a fold left out are off."""
    rows = fitted_rows()
    factors, folds, held = fit_serving(rows)
    told = figures(rows, held)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    whole = {"command": COMMAND, "date": today}
    whole |= bands(rows, folds, held) | {"factors": factors, "folds": folds, "figures": told}
    text = json.dumps(msgspec.to_builtins(whole), indent=1) + "\n"
    SERVING_FILE.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{name}: {figure}\n" for name, figure in told.items()))


if __name__ == "__main__":
    main()
