"""Scattered timings as a surface over a lattice, and monotone times along it.

Letters: r log of measured over calibrated seconds, c how sure of it (1 at a timed point, 0 where none is near).

A surface has static axes (what a kernel is: n and k of a product) and growing axes (what a pass makes larger: m).
Timings are spread to the corners of their cell by distance in log space, empty corners take the mean of their
neighbours at half their c, each time they are one further from a timing. Beyond the lattice c fades to 0, a factor of
FADE out.

Times at one static point are known at the knots of the growing axes: calibrated(knot) exp(c r). Each is taken for no
more than any larger one (what a timing is off by is mostly upwards: a cold clock, a neighbour), and times lie between
knots on straight lines in log space: so none falls when a pass grows, whatever noise a table has; and as each knot is a
calibrated price times a constant, none rises when a rate rises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from inferometer.graph.ops import Column

Indices = npt.NDArray[np.intp]
FADE = 8.0
"""Factor beyond the lattice at which nothing of it is left; half at its square root."""
FILLS = 2
"""Times that empty corners take their neighbours' mean."""
BEYOND = (2.0, 8.0, 64.0, 1024.0)
"""Knots past the end of a growing axis, as factors: the first half as sure as the end, the others calibrated."""


@dataclass(frozen=True, slots=True)
class Surface:
    """c r and c over a lattice; the growing axes are the last."""

    axes: tuple[Column, ...]
    """Logs of the knots."""
    growing: int
    ratio: Column
    sure: Column


def spread(axes: Sequence[Sequence[float]], growing: int, points: Sequence[Column], ratio: Column) -> Surface:
    """Return the surface of timings at `points` (one column an axis) with log ratios `ratio`."""
    logs = tuple(np.log(np.asarray(axis, dtype=np.float64)) for axis in axes)
    shape = tuple(len(axis) for axis in logs)
    inside = np.ones(len(ratio), dtype=np.bool_)
    places = []
    for axis, values in zip(logs, points, strict=True):
        x = np.log(values)
        inside &= (x >= axis[0] - 1e-9) & (x <= axis[-1] + 1e-9)
        places.append(cell(axis, x))
    weight, total = np.zeros(shape), np.zeros(shape)
    for corner in product((0, 1), repeat=len(shape)):
        share = np.where(inside, 1.0, 0.0)
        for (_, part), side in zip(places, corner, strict=True):
            share = share * (part if side else 1 - part)
        index = tuple(np.minimum(i + side, n - 1) for (i, _), side, n in zip(places, corner, shape, strict=True))
        at = np.ravel_multi_index(index, shape)
        weight += np.bincount(at, share, weight.size).reshape(shape)
        total += np.bincount(at, share * ratio, weight.size).reshape(shape)
    known = weight > 0
    mean = np.where(known, total / np.where(known, weight, 1.0), 0.0)
    mean, sure = _filled(mean, np.where(known, 1.0, 0.0))
    return Surface(logs, growing, mean * sure, sure)


def _filled(mean: Column, sure: Column) -> tuple[Column, Column]:
    """Return values and sureness with empty corners next to known ones filled."""
    for _ in range(FILLS):
        total, count = np.zeros_like(mean), np.zeros_like(mean)
        best = np.zeros_like(mean)
        for axis in range(mean.ndim):
            for step in (1, -1):
                near, far = _shifted(mean, sure, axis, step)
                total += np.where(far > 0, near, 0.0)
                count += far > 0
                best = np.maximum(best, far)
        empty = (sure == 0) & (count > 0)
        mean = np.where(empty, total / np.maximum(count, 1), mean)
        sure = np.where(empty, best / 2, sure)
    return mean, sure


def _shifted(mean: Column, sure: Column, axis: int, step: int) -> tuple[Column, Column]:
    """Return the neighbours' values and sureness on one side of an axis; 0 beyond the end."""
    edge = [slice(None)] * mean.ndim
    edge[axis] = slice(0, 1) if step == 1 else slice(-1, None)
    moved = [np.roll(column, step, axis) for column in (mean, sure)]
    moved[1][tuple(edge)] = 0.0
    return moved[0], moved[1]


def cell(axis: Column, x: Column) -> tuple[Indices, Column]:
    """Return the cell of an axis that x lies in, and how far along it; ends are held.

    >>> cell(np.array([0.0, 1.0, 3.0]), np.array([0.5, 2.0, 9.0]))
    (array([0, 1, 1]), array([0.5, 0.5, 1. ]))
    """
    if len(axis) == 1:
        return np.zeros(x.shape, dtype=np.intp), np.zeros(x.shape)
    at = np.clip(np.searchsorted(axis, x, side="right") - 1, 0, len(axis) - 2)
    return at, np.clip((x - axis[at]) / (axis[at + 1] - axis[at]), 0.0, 1.0)


def at_static(surface: Surface, static: Column) -> tuple[Column, Column]:
    """Return c r and c over the growing axes at static points (u, static axes), past their ends too."""
    ratio, sure = surface.ratio, surface.sure
    n = len(surface.axes) - surface.growing
    u = len(static)
    found = [np.zeros((u, *ratio.shape[n:])) for _ in range(2)]
    places = [cell(surface.axes[i], np.log(static[:, i])) for i in range(n)]
    for corner in product((0, 1), repeat=n):
        share = np.ones(u)
        index: list[Indices] = []
        for (at, part), side, axis in zip(places, corner, surface.axes, strict=False):
            share = share * (part if side else 1 - part)
            index.append(np.minimum(at + side, len(axis) - 1))
        share = share.reshape(u, *([1] * surface.growing))
        for k, column in enumerate((ratio, sure)):
            found[k] = found[k] + share * (column[tuple(index)] if n else column[None])
    fade = np.ones(u)
    for i in range(n):
        x, axis = np.log(static[:, i]), surface.axes[i]
        beyond = np.maximum(np.maximum(axis[0] - x, x - axis[-1]), 0.0)
        fade = fade * np.clip(1 - beyond / np.log(FADE), 0.0, 1.0)
    fade = fade.reshape(u, *([1] * surface.growing))
    return _beyond(found[0] * fade), _beyond(found[1] * fade)


def _beyond(column: Column) -> Column:
    """Return a column with what is left of it at the knots past the end of each growing axis."""
    for axis in range(1, column.ndim):
        last = np.take(column, [-1], axis=axis)
        column = np.concatenate([column, last / 2, *([last * 0] * (len(BEYOND) - 1))], axis=axis)
    return column


def knots(surface: Surface) -> tuple[Column, ...]:
    """Return the logs of the knots of the growing axes, those past the end among them."""
    own = surface.axes[len(surface.axes) - surface.growing :]
    return tuple(np.append(axis, axis[-1] + np.log(BEYOND)) for axis in own)


def monotone(log_s: Column) -> Column:
    """Return logs of times (u, growing axes) that never fall along a growing axis: no more than a larger one took.

    >>> monotone(np.array([[0.0, 2.0, 1.0, 3.0]]))
    array([[0., 1., 1., 3.]])
    """
    for axis in range(1, log_s.ndim):
        log_s = np.flip(np.minimum.accumulate(np.flip(log_s, axis), axis=axis), axis)
    return log_s


def between(axes: Sequence[Column], tables: Sequence[Column], which: Indices, at: Sequence[Column]) -> list[Column]:
    """Return each table (u, growing axes) at points: table `which` of each, straight lines between knots of `axes`."""
    laid = np.broadcast_arrays(which, *at)
    which = np.ascontiguousarray(laid[0])
    places = [cell(axis, log_of(x)) for axis, x in zip(axes, laid[1:], strict=True)]
    shape = tables[0].shape
    found = [np.zeros(which.shape) for _ in tables]
    for corner in product((0, 1), repeat=len(axes)):
        share = np.ones(())
        index = which
        for (i, part), side, size in zip(places, corner, shape[1:], strict=True):
            own = part if side else 1 - part
            share = share * own
            index = index * size + (i + side)
        for k, table in enumerate(tables):
            found[k] = found[k] + share * table.reshape(-1)[index]
    return [column.reshape(laid[0].shape) for column in found]


def log_of(column: Column) -> Column:
    """Return the log, laid out so that one value gives the same bits as many."""
    found: Column = np.log(np.ascontiguousarray(column))
    return found
