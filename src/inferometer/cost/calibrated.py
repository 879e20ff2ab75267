"""The calibrated backend: the roofline at the rates that kernels reach, and the fixed time of each kernel.

Coefficients are by generation of chips, fitted to timed kernels (`python -m inferometer.measurement.fit_kernels`), and
lie in `data/kernels.json` with what they come from. A generation without timings of its own takes another's, `assumed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from inferometer.cost.backend import Band, CostBackend, Support, Told, WorkPrice
from inferometer.cost.calibration import Calibration, calibration_of
from inferometer.cost.eras import Era, aged, find_era, load_eras
from inferometer.cost.factors import Factors, generation_with, link_with
from inferometer.cost.groups import LinkRate
from inferometer.cost.kernels import (
    FEW_QUERIES,
    Generation,
    Link,
    Product,
    decode_price,
    grouped_price,
    other_price,
    prefill_price,
    product_price,
)
from inferometer.cost.roofline import total_bytes
from inferometer.errors import InferometerError, unknown_name
from inferometer.graph.ops import LATENTS, NONE, Column, OpKind, Work
from inferometer.specs.deployment import NO_KERNELS, Kernels
from inferometer.specs.hardware import Axis, ChipSpec

T = TypeVar("T")

KERNELS_FILE = Path(__file__).parent / "data" / "kernels.json"
"""Fitted by the command it names; apart from datasheet facts."""


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """Everything fitted."""

    command: str
    date: str
    generations: dict[str, Generation]
    links: tuple[Link, ...]
    held_out: dict[str, dict[str, dict[str, float]]]
    """Generation (or `links`) -> form -> n, median, p90 and bias of rows held out."""


@cache
def load_fits() -> Fits:
    """Return the committed coefficients; read at the first call."""
    return msgspec.json.decode(KERNELS_FILE.read_bytes(), type=Fits)


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Factors of every generation, fitted to published serving measurements."""

    command: str
    date: str
    low: float = 1.0
    high: float = 1.0
    """Ends of the band: measured over predicted time of rows held out, their generation known from other models."""
    wide_low: float = 1.0
    wide_high: float = 1.0
    """Ends where nothing of a generation was measured."""
    apart: float = 1.0
    """How wrong the ratio of two shardings of one model on one chip may be."""
    coverage: dict[str, float]
    """Which rows held out -> share inside the band."""
    factors: dict[str, Factors]
    folds: tuple[dict[str, Factors], ...]
    """Fold -> factors fitted to the points of the other folds."""
    figures: dict[str, dict[str, float]]
    """What is held out -> n, median, p90 and bias."""


SERVING_FILE = Path(__file__).parent / "data" / "serving.json"


OWN_RUNS_FILE = SERVING_FILE.with_name("own_runs.json")
"""How much a few runs of one's own help, by `inferometer.measurement.score_own_runs`."""


class OwnRuns(msgspec.Struct, frozen=True, kw_only=True):
    """How much a few runs of one's own help, on published series."""

    command: str
    date: str
    without: dict[str, float]
    """series, median, p90, ... by the shipped factors."""
    any_sharding: dict[str, dict[str, float]]
    """Number of runs -> the same of rows left out, of any sharding."""
    one_sharding: dict[str, dict[str, float]]
    """The same of the sharding that all runs have."""


@cache
def load_own_runs() -> OwnRuns:
    """Return the committed figures; read at the first call."""
    return msgspec.json.decode(OWN_RUNS_FILE.read_bytes(), type=OwnRuns)


@cache
def load_serving() -> Serving:
    """Return the committed factors; read at the first call."""
    return msgspec.json.decode(SERVING_FILE.read_bytes(), type=Serving)


def calibrated_with(factors: Mapping[str, Factors], calibration: Calibration | None = None) -> "Calibrated":
    """Return the backend under factors of one's own; a generation that is not named has none.

    `calibration` replaces those of its generation.
    """
    fits, plain = load_fits(), Factors()
    if calibration is not None:
        if calibration.generation not in fits.generations:
            raise unknown_name("generation of chips", calibration.generation, fits.generations)
        factors = {**factors, calibration.generation: calibration.own}
    known = frozenset(name for name, own in factors.items() if own.basis == "calibrated")
    return Calibrated(
        {name: generation_with(own, factors.get(name, plain)) for name, own in fits.generations.items()},
        tuple(link_with(link, factors.get(link.generation, plain)) for link in fits.links),
        known,
        calibration,
    )


WIDEN = 1.6
"""How much wider the band is where an era's software was not run on a generation (assumed)."""


def calibrated_in(era: str, fold: int | None = None, calibration: Calibration | None = None) -> "Calibrated":
    """Return the backend with an era's software, or as a fold knows both; raises UnknownNameError for no era's name."""
    own, serving = find_era(era), load_serving()
    if own is None:
        raise unknown_name("era", era, [one.name for one in load_eras().eras])
    factors = serving.factors if fold is None else serving.folds[fold]
    return replace(calibrated_with(aged(factors, own, fold), calibration), era=own)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Kernels by generation, links by geometry and rate."""

    generations: Mapping[str, Generation]
    links: tuple[Link, ...]
    known: frozenset[str] = frozenset()
    """Generations whose factors are fitted to measurements of their own chips."""
    calibration: Calibration | None = None
    era: Era | None = None
    """Software of another time than today's."""
    kernels: Kernels = NO_KERNELS
    """Those that an engine runs."""
    name: str = "calibrated"
    basis: str = "calibrated"

    def generation(self, chip: ChipSpec) -> Generation:
        """Return the coefficients of a chip's generation; raises InferometerError for a chip that names none."""
        known = self.generations
        if not chip.generation:
            raise InferometerError(
                f"{chip.id} names no generation, whose kernels it runs: give `generation` in its file, one of "
                f"{', '.join(known)}, or --backend roofline"
            )
        if chip.generation not in known:
            raise unknown_name("generation of chips", chip.generation, known)
        return known[chip.generation]

    def supports(self, kind: OpKind, chip: ChipSpec) -> Support:
        """Return yes where the chip's generation has coefficients."""
        del kind
        try:
            self.generation(chip)
        except InferometerError as error:
            return Support(ok=False, reason=str(error))
        return Support(ok=True)

    def price(self, work: Work, chip: ChipSpec) -> WorkPrice:
        """Return the seconds of one op, columns: by the form of its kind (`cost.kernels`)."""
        own, times = self.generation(chip), self._launches(work)
        if times is not None:
            if not isinstance(times, np.ndarray) and times == 0:
                return FREE
            work = replace(work, kernels=work.kernels * times)
        moved = total_bytes(work)
        bandwidth = chip.memory_bytes_per_s
        if work.kind in (OpKind.ELEMENTWISE, OpKind.LOOKUP):
            return other_price(work, own, bandwidth, moved)
        peak = chip.peak_flops_per_s[work.dtype]
        units = chip.units or own.units * peak / (own.units_peak_flops_per_s * WIDTHS[work.dtype])
        if work.kind is OpKind.ATTENTION:
            if float(work.rows.max()) <= FEW_QUERIES:
                core = self._run(core_of(own.decode, work.stored))
                return decode_price(work, core, units=units, peak=peak, bandwidth=bandwidth, moved=moved)
            return prefill_price(work, own.prefill, peak, bandwidth, moved)
        if work.kind is OpKind.GROUPED_GEMM:
            run = self._run(found_of(own.grouped, work))
            return grouped_price(work, run, units=units, peak=peak, bandwidth=bandwidth, moved=moved)
        product = product_of(own.gemm, work)
        return product_price(work, product, units=units, peak=peak, bandwidth=bandwidth, moved=moved)

    def running(self, kernels: Kernels) -> "Calibrated":
        """Return the backend for an engine that runs `kernels`."""
        return replace(self, kernels=kernels)

    def _launches(self, work: Work) -> float | Column | None:
        """Return by how much the kernels of an op differ with the engine's; None where they are as lowered."""
        told = self.kernels
        if work.summed is not None and work.name in told.reduced:
            return np.where(work.summed > 1, 0.0, 1.0)
        if not told.launches:
            return None
        return told.launches.get(f"{work.name}@{work.stored}", told.launches.get(work.name))

    def _run(self, table: Mapping[str, T]) -> T:
        """Return the coefficients of the kernels that are run: the engine's, else the table's first."""
        return table[next(name for name in (*self.kernels.families, *table) if name in table)]

    def link(self, axis: Axis) -> LinkRate:
        """Return latency and rate that messages reach: of the link of its geometry whose rate is nearest.

        The latency is not below the axis' own: an oversized or far network keeps what it states.
        """
        nearest = self._nearest(axis)
        return LinkRate(max(nearest.alpha_s, axis.latency_s), nearest.share * axis.bytes_per_s)

    def _nearest(self, axis: Axis) -> Link:
        alike = [link for link in self.links if link.geometry == axis.geometry]
        rate = axis.stated_bytes_per_s or axis.bytes_per_s
        return min(alike, key=lambda link: abs(log(link.bytes_per_s / rate)))

    def band(self) -> Band:
        """Return the band that published measurements leave."""
        return self._band("published runs held out", load_serving().low, load_serving().high)

    def basis_of(self, chip: ChipSpec, axes: Sequence[Axis]) -> str:
        """Return `assumed` where nothing of the chip's generation, or of a link that is crossed, was measured."""
        links = [self._nearest(axis) for axis in axes]
        timed = all(link.basis == "calibrated" or link.generation in self.known for link in links)
        return "calibrated" if chip.generation in self.known and timed else "assumed"

    def band_of(self, chip: ChipSpec, axes: Sequence[Axis]) -> Band:
        """Return the band of a chip: wider where something of it is assumed, that of one's own runs on their chip."""
        serving, own, era = load_serving(), self.calibration, self.era
        if era is not None:
            wide = WIDEN if self.basis_of(chip, axes) == "assumed" else 1.0
            source = f"{era.of}; {load_eras().command}, {load_eras().date}"
            return Band(era.low / wide, era.high * wide, source, serving.apart)
        if self.basis_of(chip, axes) == "assumed":
            unmeasured = "links" if chip.generation in self.known else chip.generation or "a chip of no generation"
            return self._band(f"{unmeasured} not measured", serving.wide_low, serving.wide_high)
        if own is not None and own.chip == chip.id:
            source = f"{len(own.runs)} own runs of {own.model} on {own.chip}, {own.engine}; {own.date}"
            return Band(own.low, own.high, source, min(serving.apart, own.high / own.low))
        return self.band()

    @staticmethod
    def _band(what: str, low: float, high: float) -> Band:
        fitted = load_serving()
        return Band(low, high, f"{what}; {fitted.command}, {fitted.date}", fitted.apart)

    def told(self) -> Told:
        """Return what it is fitted to, and how far held-out kernels and runs were off."""
        from inferometer.cost.calibrated_told import told  # noqa: PLC0415 (only the list of backends needs it)

        return told(self, load_fits(), load_serving())


FREE = WorkPrice(NONE, NONE, NONE)
"""Of an op that is a part of another."""

WIDTHS = {"fp32": 0.5, "fp16": 1.0, "bf16": 1.0, "fp8": 2.0, "int8": 2.0, "fp4": 4.0}
"""Peak of a type over that of bf16, as units are counted: a unit is what one of the reference chip does."""

LIKE = {
    "fp16": ("bf16",),
    "fp32": ("bf16",),
    "int8": ("fp8", "bf16"),
    "fp8": ("fp8-block", "bf16"),
    "fp4": ("nvfp4", "mxfp4-fp8", "fp8", "bf16"),
}
"""Arithmetic type without timings of its own -> those whose shares of the peak it is taken for (assumed)."""


def found_of(table: Mapping[str, T], work: Work) -> T:
    """Return a table's entry for a product: of its weights in its arithmetic, of its weights, of its arithmetic."""
    names = (f"{work.stored}-{work.dtype}", work.stored, work.dtype, *LIKE.get(work.dtype, ()))
    return table[next(name for name in names if name in table)]


def core_of(table: Mapping[str, T], cached: str) -> T:
    """Return a table's entry for a format of the cache: its own, the nearest, or 16 bits; of latents, theirs first."""
    plain = cached.removeprefix(LATENTS)
    formats = (plain, *LIKE.get(plain, ()), "bf16")
    names = (*(f"{LATENTS}{name}" for name in formats if plain != cached), *formats)
    return table[next(name for name in names if name in table)]


def product_of(table: Mapping[str, Product], work: Work) -> Product:
    """Return the coefficients of a product; of weights that it unpacks, without tiles, as no such kernel was timed."""
    own = found_of(table, work)
    if not work.stored or work.stored == work.dtype or work.stored in table:
        return own
    return msgspec.structs.replace(own, fill=0.0, depth_s=0.0)


def shipped(calibration: object | None = None) -> Calibrated:
    """Return the backend with its own fits.

    `calibration`: a file that `inferometer calibrate` wrote adds to them; the name of an era ages them.
    """
    if isinstance(calibration, str) and find_era(calibration) is not None:
        return calibrated_in(calibration)
    return calibrated_with(load_serving().factors, calibration_of(calibration))


def create(calibration: object | None = None) -> CostBackend:
    """Return the same, as a backend is made by name."""
    return shipped(calibration)
