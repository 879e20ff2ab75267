"""How much runs of one's own help: published series taken for them, most of each held out.

python -m inferometer.measurement.score_own_runs

A series is all TPOT of one (model, chip, engine) in classes B and B2, of eight rows or more. By lot K rows of it are
one's own runs, and the factors they give, from those of the fold that has not seen the pair, predict the others: of any
sharding, or of the one sharding that all K rows have. Straight lines about the fold's factors stand for the fit.
"""

import datetime as dt
import json
import sys
from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.cost.calibrated import OWN_RUNS_FILE, load_serving
from inferometer.cost.factors import NAMES
from inferometer.measurement.bands import Vector, ends_of
from inferometer.measurement.fit_serving import STEP, Rows, changed, fitted_rows, log_times, only
from inferometer.measurement.own_runs import solve

COMMAND = "python -m inferometer.measurement.score_own_runs"
RUNS = (1, 2, 3, 5, 10)
DRAWS = 15
LEAST = 8
"""Rows of a series."""
HELD_OUT = 2
"""Least rows that a draw must leave."""

Index = npt.NDArray[np.intp]


def straight(rows: Rows) -> tuple[Vector, Vector]:
    """Return (residuals (n,), slopes (n, 5)) of every row by its own fold's factors."""
    off, slope = np.full(len(rows.asked), np.nan), np.full((len(rows.asked), len(NAMES)), np.nan)
    for fold, factors in enumerate(load_serving().folds):
        mine = rows.fold == fold
        some = only(rows, mine)
        off[mine] = log_times(some, factors)
        for i, name in enumerate(NAMES):
            slope[mine, i] = (log_times(some, changed(factors, name, 1 + STEP)) - off[mine]) / np.log(1 + STEP)
    return off, slope


def series_of(rows: Rows, off: Vector) -> list[Index]:
    """Return the rows of every series."""
    found: dict[Hashable, list[int]] = {}
    for i, one in enumerate(rows.asked):
        if one.point.klass in ("B", "B2") and one.point.metric == "tpot" and np.isfinite(off[i]):
            found.setdefault((one.question.setup.model, one.question.setup.chip, one.question.framework), []).append(i)
    return [np.array(own) for own in found.values() if len(own) >= LEAST]


def held_out(rows: Rows, off: Vector, slope: Vector, n_runs: int, *, one_sharding: bool) -> list[Vector]:
    """Return the residuals of the rows left out, a series after the other."""
    draw = np.random.default_rng(n_runs)
    sizes = np.array([str(one.question.setup.sizes) for one in rows.asked])
    out = []
    for own in series_of(rows, off):
        found = []
        for _ in range(DRAWS):
            pool = own[sizes[own] == sizes[draw.choice(own)]] if one_sharding else own
            if len(pool) < n_runs + HELD_OUT:
                continue
            taken = draw.choice(pool, n_runs, replace=False)
            left = np.setdiff1d(pool, taken)
            found.append(off[left] + slope[left] @ solve(off[taken], slope[taken]))
        out += [np.concatenate(found)] if found else []
    return out


def figures(found: list[Vector]) -> dict[str, float]:
    """Return series, median and p90 of |error|, share below 6 %, and the ends of the band; every series counts once."""
    many = max(len(one) for one in found)
    even = np.concatenate([np.resize(one, many) for one in found])
    wrong = np.abs(np.expm1(even))
    low, high = ends_of(even)
    told = {"median": np.median(wrong), "p90": np.quantile(wrong, 0.9), "below_6_percent": (wrong < GOAL).mean()}
    by_series = [float(np.median(np.abs(np.expm1(one)))) for one in found]
    told |= {"series_below_6_percent": np.mean(np.array(by_series) < GOAL), "low": low, "high": high}
    return {"series": len(found)} | {name: float(f"{value:.3g}") for name, value in told.items()}


GOAL = 0.06


def score() -> dict[str, Any]:
    """Return the figures by number of runs."""
    rows = fitted_rows()
    off, slope = straight(rows)
    plain = [off[own] for own in series_of(rows, off)]
    both = {"any_sharding": False, "one_sharding": True}
    return {"without": figures(plain)} | {
        name: {str(n): figures(held_out(rows, off, slope, n, one_sharding=one)) for n in RUNS}
        for name, one in both.items()
    }


def main() -> None:
    """Score, write the file, and print it."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    text = json.dumps({"command": COMMAND, "date": today} | score(), indent=1) + "\n"
    OWN_RUNS_FILE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
