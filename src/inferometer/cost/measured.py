"""The measured backend: kernels as they were timed on the chip, and the calibrated backend where none were.

time = calibrated x what timed kernels near it took over what the calibrated kernels say, interpolated in log space
(`cost.surface`) and fading to 1 away from timings; never below a datasheet bound. What an op is, is read off its counts
(`cost.measured_seen`). Norms, copies, lookups, scans and messages stay calibrated, and so do chips without tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from inferometer.cost.backend import Band, CostBackend, Support, Told, WorkPrice
from inferometer.cost.calibrated import Calibrated, calibrated_with, shipped
from inferometer.cost.groups import LinkRate
from inferometer.cost.measured_chips import TIMED_CHIPS, timed_chip
from inferometer.cost.measured_forms import FORMS, Columns, Coordinates, Form, Seen
from inferometer.cost.measured_seen import rounded, seen
from inferometer.cost.roofline import total_bytes
from inferometer.cost.silicon import Silicon, Tables
from inferometer.cost.surface import Indices, Surface, at_static, between, knots, monotone, spread
from inferometer.graph.ops import Column, Mask, OpKind, Work
from inferometer.specs.deployment import Kernels
from inferometer.specs.hardware import Axis, ChipSpec

SURE = 0.5
"""Sureness from which on an op counts as measured."""
LEAST, MOST = 0.2, 5.0
"""A timing further from the calibrated kernel than this is taken for this far: most of what lies beyond are faults."""


class _Curves(NamedTuple):
    """Logs of seconds, and sureness, at the knots of static points: (u, growing axes)."""

    log_s: Column
    sure: Column


@dataclass(slots=True)
class Measured:
    """Timed kernels over a calibrated backend."""

    inner: Calibrated
    tables: Tables
    plain: Calibrated = field(default_factory=lambda: calibrated_with({}))
    """Kernels as they were fitted, which timings are held against."""
    name: str = "measured"
    basis: str = "calibrated"
    """The weakest part's: an op of every step at least is calibrated."""
    _surfaces: dict[tuple[str, str], Surface | None] = field(default_factory=dict)
    _curves: dict[tuple[object, ...], tuple[Column, Column]] = field(default_factory=dict)

    def over(self, inner: Calibrated) -> "Measured":
        """Return the same timings over another calibrated backend."""
        return Measured(inner, self.tables, self.plain, _surfaces=self._surfaces)

    def running(self, kernels: Kernels) -> "Measured":
        """Return the same timings over the kernels that an engine runs."""
        own = self.inner.running(kernels), self.tables, self.plain.running(kernels)
        return Measured(*own, _surfaces=self._surfaces)

    def supports(self, kind: OpKind, chip: ChipSpec) -> Support:
        """Return yes where the calibrated backend has coefficients."""
        return self.inner.supports(kind, chip)

    def price(self, work: Work, chip: ChipSpec) -> WorkPrice:
        """Return the seconds of one op, columns."""
        price = self.inner.price(work, chip)
        found = self._found(work, chip)
        if found is None:
            return price
        compute_s = work.flops / chip.peak_flops_per_s[work.dtype]
        memory_s = total_bytes(work) / chip.memory_bytes_per_s
        total_s = np.maximum(found.seconds, np.maximum(compute_s, memory_s))
        if found.exact is not None:
            total_s = np.where(found.exact, total_s, np.maximum(total_s, price.total_s))
        total_s = np.where(found.none, price.total_s, total_s)
        return WorkPrice(np.minimum(price.compute_s, total_s), np.minimum(price.memory_s, total_s), total_s)

    def timed(self, work: Work, chip: ChipSpec) -> Mask:
        """Return where timed kernels are near enough to an op for it to count as measured, columns."""
        found = self._found(work, chip)
        if found is None:
            return np.zeros((), dtype=np.bool_)
        near: Mask = (found.sure >= SURE) & ~found.none
        return near if found.exact is None else near & found.exact

    def _found(self, work: Work, chip: ChipSpec) -> "_Found | None":
        what = seen(work) if chip.id in TIMED_CHIPS and work.dtype in chip.peak_flops_per_s else None
        surface = None if what is None or what.form not in FORMS else self.surface(chip, what.form)
        if what is None or surface is None or FORMS[what.form].dtype not in chip.peak_flops_per_s:
            return None
        which, curves = self._static(what, surface, chip)
        log_s, sure = between(knots(surface), curves, which, what.at.growing)
        none = np.asarray(~curves.sure.any(axis=tuple(range(1, curves.sure.ndim))))[which]
        return _Found(np.exp(log_s), sure, none, what.exact)

    def _static(self, what: Seen, surface: Surface, chip: ChipSpec) -> tuple[Indices, _Curves]:
        """Return the static points of a work, by their index among curves, and the curves."""
        columns = [_thin(rounded(np.asarray(x))) for x in what.at.static]
        laid = np.broadcast_arrays(*columns) if columns else []
        shape = laid[0].shape if laid else ()
        points = np.stack([x.reshape(-1) for x in laid], axis=1) if laid else np.zeros((1, 0))
        unique, which = np.unique(points, axis=0, return_inverse=True)
        rates = (chip.id, chip.memory_bytes_per_s, chip.peak_flops_per_s[FORMS[what.form].dtype])
        keys = [(what.form, *rates, point.tobytes()) for point in unique]
        new = [i for i, key in enumerate(keys) if key not in self._curves]
        if new:
            made = self._made(what.form, surface, unique[new], chip)
            for j, i in enumerate(new):
                self._curves[keys[i]] = made.log_s[j], made.sure[j]
        stacked = [np.stack([self._curves[key][k] for key in keys]) for k in range(2)]
        return which.reshape(shape), _Curves(*stacked)

    def _made(self, form: str, surface: Surface, static: Column, chip: ChipSpec) -> _Curves:
        ratio, sure = at_static(surface, static)
        grid = np.ix_(*(np.exp(axis) for axis in knots(surface)))
        lead = (len(static), *([1] * surface.growing))
        work = FORMS[form].work([x.reshape(lead) for x in static.T], [axis[None] for axis in grid])
        seconds = np.broadcast_to(self.inner.price(work, chip).total_s, ratio.shape)
        return _Curves(monotone(np.log(seconds) + ratio), sure)

    def surface(self, chip: ChipSpec, form: str) -> Surface | None:
        """Return the surface of a form on a chip, None where it was not timed; made once."""
        key = (chip.id, form)
        if key not in self._surfaces:
            table = self.tables.read(*key)
            self._surfaces[key] = None if table is None else self._spread(form, table.columns, table.seconds, chip)
        return self._surfaces[key]

    def _spread(self, form: str, columns: Columns, seconds: Column, chip: ChipSpec) -> Surface:
        own = FORMS[form]
        parts = own.rows(columns)
        log_ratio = self.log_ratio(form, parts, columns, seconds, chip)
        points = [np.concatenate(each) for each in zip(*(_point(part, own) for part in parts), strict=True)]
        axes = [axis or tuple(np.unique(x)) for axis, x in zip(own.axes, points, strict=True)]
        return spread(axes, own.growing, points, np.tile(log_ratio, len(parts)))

    def log_ratio(
        self, form: str, parts: Sequence[Coordinates], columns: Columns, seconds: Column, chip: ChipSpec
    ) -> Column:
        """Return the log of timed over calibrated seconds of the rows of a table."""
        own, timed = FORMS[form], timed_chip(chip)
        priced = sum(self.plain.price(own.work(*part), timed).total_s for part in parts)
        if own.around is not None:
            seconds = seconds - self.plain.price(own.around(columns), timed).total_s
        return np.log(np.clip(seconds / priced, LEAST, MOST))

    def link(self, axis: Axis) -> LinkRate:
        """Return the calibrated latency and rate, which are fitted to the same tables."""
        return self.inner.link(axis)

    def band(self) -> Band:
        """Return the calibrated band."""
        return self.inner.band()

    def basis_of(self, chip: ChipSpec, axes: Sequence[Axis]) -> str:
        """Return the weakest part's basis."""
        return self.inner.basis_of(chip, axes)

    def band_of(self, chip: ChipSpec, axes: Sequence[Axis]) -> Band:
        """Return the calibrated band of a chip."""
        return self.inner.band_of(chip, axes)

    def told(self) -> Told:
        """Return what was timed, and how far held-out kernels and runs were off."""
        from inferometer.cost.measured_told import told  # noqa: PLC0415 (only the list of backends needs it)

        return told(self.inner, getattr(self.tables, "version", None))


class _Found(NamedTuple):
    """What tables say of a work."""

    seconds: Column
    sure: Column
    none: Mask
    """Where no timing is near at all."""
    exact: Mask | None


def _point(part: Coordinates, own: Form) -> tuple[Column, ...]:
    """Return the coordinates of a lattice, without the parameters of a work."""
    return (*part.static[: len(own.axes) - own.growing], *part.growing)


def _thin(column: Column) -> Column:
    """Return a column without the batches where all are alike."""
    if column.ndim > 1 and bool((column == column[..., :1]).all()):
        return column[..., :1]
    return column


def create(calibration: object | None = None) -> CostBackend:
    """Return the backend over the tables of the installed package; a calibration is of the calibrated backend.

    Raises InferometerError, one line, where the package is not installed.
    """
    tables = Silicon()
    return Measured(shipped(calibration), tables)
