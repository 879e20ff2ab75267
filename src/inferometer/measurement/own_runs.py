"""Factors from a few runs of one model on one chip: drawn to the shipped ones, and held against the runs left out.

Letters: x the log of predicted over measured time of a run, s what all its times are off by, d (8,) what each factor
differs by beside.

Of few runs mostly s can be told, of many also which factor: minimise sum x^2 + s^2 / a + |d|^2 / b over log factors
f + s of those of times, f - s of those of rates, each plus its d. Gauss-Newton, runs far off counting less.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from inferometer.cost.calibrated import calibrated_with, load_serving
from inferometer.cost.factors import LONGER, NAMES, SLOWER, Factors
from inferometer.errors import InferometerError
from inferometer.measurement.bands import Vector
from inferometer.measurement.passes import Known, Pricer
from inferometer.measurement.points import METRIC_UNITS
from inferometer.measurement.questions import Question
from inferometer.measurement.validate import predicted

COMMON = np.array([float(name in LONGER) - float(name in SLOWER) for name in NAMES])
"""What s does to the log of each factor of NAMES."""

PULL_COMMON, PULL_OWN = 0.02, 0.03
"""1/a and 1/b against residuals of SPREAD: chosen on published pairs, of which `score_own_runs` holds most runs out."""

SPREAD = 0.1
ROUNDS = 4
STEP = 0.05
MOST = 6.0
"""Most that a factor may leave the shipped one, either way."""


class Measured(NamedTuple):
    """One measured number of a run."""

    data: str
    """File and row."""
    question: Question
    metric: str
    value: float  # of the metric's unit

    @property
    def sign(self) -> float:
        """1 of seconds, -1 of a rate."""
        return 1.0 if METRIC_UNITS[self.metric] == "s" else -1.0


class Own(NamedTuple):
    """A fit to one's own runs."""

    factors: Factors
    shipped: Vector
    """x of each run by the shipped factors."""
    fitted: Vector
    """By the factors found."""
    left_out: Vector
    """By factors found from the other runs; of one run, as shipped."""


def solve(off: Vector, slope: Vector) -> Vector:
    """Return the change of the log factors (8,) that runs of residuals `off` (n,) and slopes (n, 8) ask for."""
    design = np.concatenate([(slope @ COMMON)[:, None], slope], axis=1)
    pull = np.diag([PULL_COMMON, *[PULL_OWN] * len(NAMES)])
    theta = np.zeros(1 + len(NAMES))
    for _ in range(ROUNDS):
        weight = 1 / np.sqrt(1 + ((off + design @ theta) / SPREAD) ** 2)
        normal = (design * weight[:, None]).T @ design + pull
        theta = np.linalg.solve(normal, -(design * weight[:, None]).T @ off)
    return np.asarray(theta[0] * COMMON + theta[1:], dtype=np.float64)


def fit_own(runs: Sequence[Measured], generation: str, known: Known | None = None) -> Own:
    """Return the factors of a generation that runs ask for, with the log residuals before, after and left out.

    Raises InferometerError where no run can be priced; a run that cannot has nan residuals, and is not fitted.
    """
    shipped = load_serving().factors
    start = np.log([getattr(shipped[generation], name) for name in NAMES])

    def off_at(moved: Vector, some: Sequence[Measured] = runs) -> Vector:
        own = shipped[generation] if not moved.any() else _factors(start + moved, len(some))
        return _residuals(some, shipped | {generation: own}, known)

    before = off_at(np.zeros(len(NAMES)))
    usable = np.isfinite(before)
    if not usable.any():
        _refuse(runs, shipped, known)
    moved = np.zeros(len(NAMES))
    for _ in range(ROUNDS):
        off = off_at(moved)
        steps = np.eye(len(NAMES)) * np.log(1 + STEP)
        slope = np.stack([(off_at(moved + one) - off) / np.log(1 + STEP) for one in steps], axis=1)
        line = off - slope @ moved  # residuals at the shipped factors, as a straight line has them
        moved = _within(solve(line[usable], slope[usable]))
    left_out = before.copy()
    for i in np.flatnonzero(usable).tolist():
        others = usable & (np.arange(len(runs)) != i)
        if others.any():
            left_out[i] = off_at(_within(solve(line[others], slope[others])), [runs[i]])[0]
    return Own(_factors(start + moved, int(usable.sum())), before, off_at(moved), left_out)


def _within(moved: Vector) -> Vector:
    return np.clip(moved, -np.log(MOST), np.log(MOST))


def _factors(logs: Vector, n: int) -> Factors:
    values = {name: float(f"{np.exp(x):.4g}") for name, x in zip(NAMES, logs, strict=True)}
    return Factors(**values, basis="calibrated", n=n)


def _residuals(runs: Sequence[Measured], factors: Mapping[str, Factors], known: Known | None) -> Vector:
    found = predicted([(run.question, run.metric) for run in runs], Pricer(calibrated_with(factors), known))
    sign, measured = (np.array([getattr(run, what) for run in runs]) for what in ("sign", "value"))
    return np.asarray(sign * np.log(np.array(found) / measured), dtype=np.float64)


def _refuse(runs: Sequence[Measured], factors: Mapping[str, Factors], known: Known | None) -> None:
    pricer = Pricer(calibrated_with(factors), known)
    predicted([(run.question, run.metric) for run in runs], pricer)
    raise InferometerError(f"no run can be priced: {next(iter(pricer.refused.values()), 'no reason given')}")


def copy_of(factors: Factors) -> dict[str, float]:
    """Return the factors by name."""
    return {name: value for name, value in msgspec.structs.asdict(factors).items() if name in NAMES}
