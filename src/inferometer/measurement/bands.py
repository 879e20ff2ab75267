"""How far rows that a fit has not seen lie from what was predicted: the ends of a band, and what it covers.

Letters: x the log of predicted over measured time of a row.
"""

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

COVERED = 0.85
"""Share of held-out rows that a band is to cover."""

WIDE = 1.6
"""Least factor either way where nothing of a chip's generation was measured (assumed)."""


class Ends(NamedTuple):
    """Measured over predicted time, at its least and most."""

    low: float
    high: float


def ends_of(held: Vector) -> Ends:
    """Return the ends of the band: the middle `COVERED` of held-out rows.

    >>> ends_of(np.log(np.linspace(0.5, 1.5, 1001)))
    Ends(low=0.702, high=1.74)
    """
    ratios = np.exp(-held[np.isfinite(held)])
    low, high = np.quantile(ratios, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return Ends(float(f"{low:.3g}"), float(f"{high:.3g}"))


def wide_of(narrow: Ends) -> Ends:
    """Return the band of a generation of which nothing was measured."""
    return Ends(float(f"{min(narrow.low, 1 / WIDE):.3g}"), float(f"{max(narrow.high, WIDE):.3g}"))


def covered(held: Vector, ends: Ends) -> float:
    """Return the share of rows inside; nan of none."""
    ratios = np.exp(-held[np.isfinite(held)])
    return float(((ratios >= ends.low) & (ratios <= ends.high)).mean()) if len(ratios) else float("nan")


def covered_by_others(held: Vector, fold: npt.NDArray[np.intp]) -> float:
    """Return the share of rows inside the band that the other folds' rows give: what a band covers that saw no row."""
    inside = 0.0
    found = np.isfinite(held)
    for one in np.unique(fold[found]):
        mine = found & (fold == one)
        inside += covered(held[mine], ends_of(held[found & (fold != one)])) * mine.sum()
    return inside / float(found.sum())


def apart_of(held: Vector, load: Sequence[Hashable], sharding: Sequence[Hashable]) -> float:
    """Return the factor that tells two shardings of one model on one chip apart, under the same load.

    Of all pairs of rows of equal `load` and unequal `sharding`, |x - y| is how wrong their ratio was predicted; the
    factor holds for `COVERED` of them. Each load counts once, however many pairs it has.

    >>> round(apart_of(np.log([1.0, 1.1, 2.0]), ["a", "a", "b"], [1, 2, 1]), 3)
    1.1
    """
    rows: dict[Hashable, list[int]] = {}
    for i, key in enumerate(load):
        if np.isfinite(held[i]):
            rows.setdefault(key, []).append(i)
    wrong, weight = [], []
    for own in rows.values():
        pairs = [abs(held[i] - held[j]) for i, j in combinations(own, 2) if sharding[i] != sharding[j]]
        wrong += pairs
        weight += [1 / max(len(pairs), 1)] * len(pairs)
    order = np.argsort(wrong)
    reached = np.cumsum(np.array(weight)[order]) / sum(weight)
    return float(f"{np.exp(np.interp(COVERED, reached, np.array(wrong)[order])):.3g}")
