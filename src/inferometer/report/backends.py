"""Backends and calibrations as JSON holds them."""

from typing import Any

from inferometer.cost.backend import Covered
from inferometer.cost.calibration import Calibration
from inferometer.cost.known_backends import Backend
from inferometer.graph.ops import OpKind
from inferometer.report.schema_backends import CALIBRATION, RUN
from inferometer.specs.hardware import ChipSpec


def backend_row(known: Backend, chips: dict[str, ChipSpec]) -> dict[str, Any]:
    """Return the keys of BACKEND."""
    band, own = known.band, known.backend
    covered = [_covered(one, chips) for one in known.told.covered] or _by_asking(known, chips)
    return {
        "backend": known.name,
        "origin": known.origin,
        "basis": None if own is None else own.basis,
        "scheduler": known.scheduler,
        "low": None if band is None else band.low,
        "high": None if band is None else band.high,
        "apart": None if band is None else band.alike,
        "data": list(known.told.data),
        "commands": list(known.told.commands) or ([band.source] if band else []),
        "figures": [figure._asdict() for figure in known.told.figures],
        "covered": covered,
        "error": known.error,
    }


def _covered(one: Covered, chips: dict[str, ChipSpec]) -> dict[str, Any]:
    return {
        "generation": one.generation,
        "chips": [*one.chips] or [chip.id for chip in chips.values() if chip.generation == one.generation],
        "dtypes": list(one.dtypes),
        "basis": one.basis,
        "n": one.n,
        "low": one.band.low,
        "high": one.band.high,
        "source": one.source,
        "figures": [figure._asdict() for figure in one.figures],
    }


def _by_asking(known: Backend, chips: dict[str, ChipSpec]) -> list[dict[str, Any]]:
    """Return one entry of the chips whose every kind of operation a backend prices, where it does not tell."""
    own = known.backend
    if own is None:
        return []
    priced = [chip for chip in chips.values() if all(own.supports(kind, chip).ok for kind in OpKind)]
    dtypes = sorted({dtype for chip in priced for dtype in chip.peak_flops_per_s})
    one = Covered("", _basis(own.basis), tuple(dtypes), 0, own.band(), own.band().source, ())
    return [_covered(one, {}) | {"chips": [chip.id for chip in priced]}]


def _basis(text: str) -> Any:
    return text


def calibration_row(found: Calibration, output: str | None) -> dict[str, Any]:
    """Return the keys of CALIBRATION."""
    named = [field.name for field in CALIBRATION if field.name not in ("output", "runs")]
    runs = [{field.name: getattr(run, field.name) for field in RUN} for run in found.runs]
    return {"output": output} | {name: getattr(found, name) for name in named} | {"runs": runs}
