"""The roofline backend: each op takes the longer of its arithmetic and its traffic, at datasheet rates.

The limit of what the hardware allows; real kernels are slower. Williams et al., "Roofline", CACM 52(4), 2009.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.cost.backend import Band, CostBackend, Support, Told, WorkPrice
from inferometer.cost.calibration import refuse_calibration
from inferometer.cost.groups import LinkRate
from inferometer.graph.ops import Column, OpKind, Work
from inferometer.specs.hardware import Axis, ChipSpec

BAND_FILE = Path(__file__).parent / "data" / "roofline_band.json"
"""Fitted by the command it names; apart from datasheet facts."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """max(flops / peak, bytes / bandwidth) an op; alpha and link rate of the fabric as stated."""

    name: str = "roofline"
    basis: str = "analytic"

    def supports(self, kind: OpKind, chip: ChipSpec) -> Support:
        """Return yes: every op kind is flops and bytes."""
        del kind, chip
        return Support(ok=True)

    def price(self, work: Work, chip: ChipSpec) -> WorkPrice:
        """Return the seconds of one op, columns: max(flops / peak, bytes / bandwidth)."""
        moved = total_bytes(work)
        memory_s = moved * (1 / chip.memory_bytes_per_s)
        if work.kind in (OpKind.ELEMENTWISE, OpKind.LOOKUP):
            return WorkPrice(np.zeros(()), memory_s, memory_s)
        compute_s = work.flops * (1 / chip.peak_flops_per_s[work.dtype])
        return WorkPrice(compute_s, memory_s, np.maximum(compute_s, memory_s))

    def link(self, axis: Axis) -> LinkRate:
        """Return the axis' datasheet latency and rate."""
        return LinkRate(axis.latency_s, axis.bytes_per_s)

    def band(self) -> Band:
        """Return the band published measurements leave around the limit."""
        return _band()

    def told(self) -> Told:
        """Return what its band is fitted to."""
        fitted = _fitted()
        return Told((f"the band: {fitted['source']}",), (f"{fitted['command']} ({fitted['date']})",), (), ())


@cache
def _fitted() -> dict[str, Any]:
    """Return the fitted band with its figures; read at the first call."""
    fitted: dict[str, Any] = json.loads(BAND_FILE.read_text(encoding="utf-8"))
    return fitted


@cache
def _band() -> Band:
    """Return the fitted band."""
    fitted = _fitted()
    source = f"{fitted['source']}; {fitted['command']}, {fitted['date']}"
    return Band(fitted["low"], fitted["high"], source, fitted.get("apart", 0.0))


def total_bytes(work: Work) -> Column:
    """Return all bytes an op moves, summed in the order they are declared."""
    parts = iter(work.traffic_bytes.values())
    total = next(parts)
    for part in parts:
        total = total + part
    return total


def create(calibration: object | None = None) -> CostBackend:
    """Return the roofline backend; it takes no calibration."""
    refuse_calibration("roofline", calibration)
    return Roofline()
