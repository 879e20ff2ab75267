"""What the calibrated backend says of itself: by generation, what was measured, and how far off it was."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from inferometer.cost.backend import Band, Covered, Figure, Told
from inferometer.cost.eras import Era, load_eras

if TYPE_CHECKING:
    from inferometer.cost.calibrated import Calibrated, Fits, Serving

FORMS = {
    "gemm": "matrix products",
    "grouped": "grouped products",
    "decode": "attention, decode",
    "prefill": "attention, prefill",
}
"""Form of a kernel -> its name for a reader."""

DATA = (
    "timed kernels: a sample of NVIDIA aiconfigurator-core 0.12.0 (Apache-2.0)",
    "published serving runs: inferometer validate lists them with their sources",
)


def told(backend: "Calibrated", fits: "Fits", serving: "Serving") -> Told:
    """Return what the backend's files say."""
    figures = tuple(
        Figure(f"published runs, class {name}", int(own["n"]), own["median"], own["p90"], own["bias"])
        for name, own in serving.figures.items()
    )
    links = tuple(
        Figure(f"all-reduce over {name}", int(own["n"]), own["median"], own["p90"], own.get("bias"))
        for name, own in fits.held_out.get("links", {}).items()
    )
    return Told(
        data=DATA,
        commands=tuple(f"{one.command} ({one.date})" for one in (fits, serving, load_eras())),
        figures=(*figures, *links, *(_era_figure(era) for era in load_eras().eras)),
        covered=tuple(_covered(backend, fits, serving, name) for name in fits.generations),
    )


def _covered(backend: "Calibrated", fits: "Fits", serving: "Serving", name: str) -> Covered:
    own, held = fits.generations[name], fits.held_out.get(name, {})
    known = name in backend.known
    low, high = (serving.low, serving.high) if known else (serving.wide_low, serving.wide_high)
    mine = backend.calibration if backend.calibration and backend.calibration.generation == name else None
    factors = serving.factors.get(name)
    n = len(mine.runs) if mine else factors.n if factors else 0
    return Covered(
        generation=name,
        basis="calibrated" if known else "assumed",
        dtypes=tuple(own.gemm) if own.basis == "calibrated" else (),
        n=n,
        band=Band(low, high, "", serving.apart),
        source=own.source,
        figures=tuple(_kernel_figure(form, figure) for form, figure in held.items()),
    )


def _era_figure(era: Era) -> Figure:
    own = era.figures
    return Figure(f"--calibration {era.name}", int(own["n"]), own["median"], own["p90"], own["bias"])


def _kernel_figure(form: str, own: Mapping[str, float]) -> Figure:
    kind, _, dtype = form.partition(".")
    what = f"{FORMS.get(kind, kind)}{f' {dtype}' if dtype else ''}"
    return Figure(what, int(own["n"]), own["median"], own["p90"], own.get("bias"))
