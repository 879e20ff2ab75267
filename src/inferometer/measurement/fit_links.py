"""What links reach, fitted to timed all-reduces: latency of a step and share of the rate, by geometry and rate.

The formulas are `cost.collectives`: the cheapest algorithm of an axis, a line each. Timings of engines' own all-reduces
inside CUDA graphs (what a decode step runs), the quickest engine at each size, and NCCL's of the other collectives.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inferometer.cost.collectives import collective_lines
from inferometer.cost.groups import LinkRate
from inferometer.measurement.kernels import load_kernels
from inferometer.specs.hardware import Axis, Fabric

Vector = npt.NDArray[np.float64]
MICRO = 1e-6


class Timed(NamedTuple):
    """An axis that was timed."""

    geometry: str
    bytes_per_s: float
    chips: tuple[str, ...]
    reduces: bool
    generation: str


TIMED: Mapping[str, Timed] = {
    "nvlink3": Timed("switch", 300e9, ("a100-80-sxm",), reduces=False, generation="ampere"),
    "nvlink4": Timed("switch", 450e9, ("h100-sxm", "h200-sxm"), reduces=True, generation="hopper"),
    "nvlink5": Timed("switch", 900e9, ("b200-sxm", "gb200-nvl72"), reduces=True, generation="blackwell"),
}

OPS = {
    "allreduce_custom": "all-reduce",
    "nccl_all_gather": "all-gather",
    "nccl_reduce_scatter": "reduce-scatter",
    "nccl_alltoall": "all-to-all",
}


def quickest(chips: tuple[str, ...], op: str) -> list[tuple[int, float, float]]:
    """Return (members, bytes, seconds): of each size and group the quickest engine's, over the chips' mean."""
    best: dict[tuple[str, int, float], float] = {}
    for row in load_kernels():
        if row["op"] == op and row["chip"] in chips and float(row["message_bytes"] or 0) > 0:
            key = (row["chip"], int(row["n_chips"]), float(row["message_bytes"]))
            best[key] = min(best.get(key, float("inf")), float(row["seconds"]))
    return [(n, size, seconds) for (_, n, size), seconds in best.items()]


def seconds_of(kind: str, n: int, size: float, own: Timed, rate: LinkRate) -> float:
    """Return the time of the cheapest algorithm of one axis of n members."""
    axis = Axis(
        name="x",
        geometry="switch",
        size=n,
        bytes_per_s=own.bytes_per_s,
        latency_s=0.0,
        reduces=own.reduces,
        multicast=own.reduces,
    )
    lines = collective_lines(kind, ((n, 1),), Fabric(axes=(axis,)), [rate])
    return min(line.alpha_s + size * line.s_per_byte for line in lines)


def fit_links() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return (links, errors of held-out rows by link)."""
    from scipy.optimize import least_squares  # noqa: PLC0415 (only the fits need scipy)

    links, errors = [], {}
    for name, own in TIMED.items():
        rows = [(OPS["allreduce_custom"], *row) for row in quickest(own.chips, "allreduce_custom")]

        def residuals(x: Vector, some: list[tuple[str, int, float, float]], own: Timed = own) -> Vector:
            rate = LinkRate(x[0] * MICRO, x[1] * own.bytes_per_s)
            return np.array([np.log(seconds_of(k, n, size, own, rate) / s) for k, n, size, s in some])

        def fitted(some: list[tuple[str, int, float, float]]) -> Vector:
            found: Vector = least_squares(
                residuals, (4.0, 0.7), bounds=((0.5, 0.2), (30, 1.0)), loss="soft_l1", f_scale=0.1, args=(some,)
            ).x
            return found

        held = [residuals(fitted([r for i, r in enumerate(rows) if i % 5 != fold]), rows[fold::5]) for fold in range(5)]
        off = np.abs(np.exp(np.concatenate(held)) - 1)
        errors[name] = {
            "n": len(rows),
            "median": float(f"{np.median(off):.3g}"),
            "p90": float(f"{np.quantile(off, 0.9):.3g}"),
        }
        x = fitted(rows)
        links.append(
            {
                "geometry": own.geometry,
                "bytes_per_s": own.bytes_per_s,
                "alpha_s": float(f"{x[0] * MICRO:.3g}"),
                "share": float(f"{x[1]:.3g}"),
                "generation": own.generation,
                "basis": "calibrated",
                "source": f"engines' all-reduces on {', '.join(own.chips)}, aiconfigurator-core 0.12.0",
            }
        )
    return links + assumed_links(), errors


def assumed_links() -> list[dict[str, Any]]:
    """Return links without timings here, from published constants."""
    rows = (
        (
            "mesh",
            64e9,
            10e-6,
            0.75,
            "cdna4",
            "xGMI: 48 of 64 GB/s (rocm.blogs.amd.com mi300x-rccl-xgmi)",
        ),
        ("ring", 90e9, 1e-6, 0.9, "", "jax-ml/scaling-book:sharding.md: 1 us a hop; 0.9 of the stated rate"),
        ("line", 90e9, 1e-6, 0.9, "", "as ring"),
        ("pcie", 32e9, 7e-6, 0.6, "ada", "NCCL over PCIe, L40S and RTX PRO 6000, two chips"),
        ("switch", 50e9, 10e-6, 0.9, "", "InfiniBand NDR; alpha between NCCL's hop and a kernel launch, assumed"),
    )
    return [
        {"geometry": g, "bytes_per_s": b, "alpha_s": a, "share": e, "generation": gen, "basis": "assumed", "source": s}
        for g, b, a, e, gen, s in rows
    ]
