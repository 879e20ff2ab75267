"""From files of runs to a calibration: one model on one chip under one engine."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inferometer.cost.calibrated import OwnRuns, load_fits, load_own_runs, load_serving
from inferometer.cost.calibration import Calibration, Run
from inferometer.errors import InferometerError
from inferometer.measurement.bands import Ends, Vector, ends_of
from inferometer.measurement.bench_serve import BenchRun
from inferometer.measurement.frameworks import engine_loop, engine_loop_name
from inferometer.measurement.models import chip_of, preset_id
from inferometer.measurement.own_runs import Measured, copy_of, fit_own
from inferometer.measurement.passes import Known
from inferometer.measurement.published import read_points
from inferometer.measurement.questions import SCORED_CLASSES, Question, Setup, ask
from inferometer.specs.deployment import ROLES, Sizes
from inferometer.specs.hardware import ChipSpec

MAX_RUNS = 50
"""More runs say nothing that these do not."""

ENOUGH = 5
"""Runs from which those left out may widen the band."""

TABLES = (".csv", ".csv.gz")


def is_table(path: str | Path) -> bool:
    """Return whether a file holds measurements in our columns; else it is a benchmark's result."""
    return str(path).lower().endswith(TABLES)


def table_runs(path: str | Path) -> list[Measured]:
    """Return the measured numbers of a CSV (columns as `validate --points` takes them); TTFT is left out.

    Raises InferometerError for a bad file, and for a row that cannot be asked.
    """
    found = []
    for point in read_points(path):
        if point.metric == "ttft":
            continue
        where = f"{path}: {point.id or point.group_id}"
        question = ask(point) if point.klass in SCORED_CLASSES else f"class: {point.klass or 'none'}"
        if isinstance(question, str):
            raise InferometerError(f"{where} ({point.metric}) cannot be asked: {question}")
        found.append(Measured(where, question, point.metric, point.measured))
    if not found:
        raise InferometerError(f"{path} holds no run: no row of tpot, e2e_latency or a throughput")
    return found


def bench_measured(run: BenchRun, *, model: str, chip: ChipSpec, sizes: Sizes, engine: str) -> Measured:
    """Return a benchmark's run as what was asked of `model`, a name that `Known` explains, and what was measured."""
    run_by = engine_loop(engine).kernels
    setup = Setup(
        model=model, weights="", kv="", head=False, chip=chip.id, n_chips=sizes.n_chips, sizes=sizes, engine=run_by
    )
    question = Question(
        setup=setup,
        phase="e2e",
        isl_tok=run.isl,
        osl_tok=run.osl,
        batch=run.in_flight,
        assumed=(),
        klass="B",
        framework=engine,
    )
    return Measured(run.where, question, run.metric, run.measured)


def calibrate(runs: Sequence[Measured], *, chip: ChipSpec | None, command: str, known: Known | None) -> Calibration:
    """Return the calibration that runs ask for; `chip` is theirs where it is none of the catalogue's.

    Raises InferometerError for too many runs, runs of several models, chips or engines, and where none can be priced.
    """
    if not 1 <= len(runs) <= MAX_RUNS:
        raise InferometerError(f"{len(runs)} runs: give from 1 to {MAX_RUNS}")
    model, where, engine = _one_series(runs)
    chip = chip or chip_of(where)
    if chip is None or chip.generation not in load_fits().generations:
        raise InferometerError(f"{where} names no generation of chips that has kernels; give `generation` in its file")
    own = fit_own(runs, chip.generation, known)
    usable = np.isfinite(own.shipped)
    ends = _ends(own.left_out[usable], load_own_runs())
    return Calibration(
        command=command,
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        fits=f"kernels {load_fits().date}, serving {load_serving().date}",
        model=model,
        chip=chip.id,
        generation=chip.generation,
        engine=engine,
        low=ends.low,
        high=ends.high,
        error_shipped=_median(own.shipped[usable]),
        error_left_out=_median(own.left_out[usable]),
        factors=copy_of(own.factors),
        runs=tuple(
            _run(run, *(float(x[i]) for x in (own.shipped, own.fitted, own.left_out)))
            for i, run in enumerate(runs)
            if usable[i]
        ),
    )


def _one_series(runs: Sequence[Measured]) -> tuple[str, str, str]:
    """Return model, chip and engine of all runs."""
    named = [
        (preset_id(r.question.setup.model), _chip_id(r.question.setup.chip), engine_loop_name(r.question.framework))
        for r in runs
    ]
    for what, i in (("models", 0), ("chips", 1), ("engines", 2)):
        if several := sorted({one[i] for one in named if one[i] != named[0][i]}):
            raise InferometerError(
                f"runs of several {what}: {named[0][i]} and {', '.join(several)}; calibrate each by itself"
            )
    return named[0]


def _chip_id(name: str) -> str:
    chip = chip_of(name)
    return name if chip is None else chip.id


def _ends(left_out: Vector, score: OwnRuns) -> Ends:
    """Return the band: what so many runs leave on published series, and what these leave where they are enough."""
    known = max((n for n in map(int, score.any_sharding) if n <= len(left_out)), default=1)
    of_others = score.any_sharding[str(known)]
    if len(left_out) < ENOUGH:
        return Ends(of_others["low"], of_others["high"])
    mine = ends_of(left_out)
    return Ends(min(mine.low, of_others["low"]), max(mine.high, of_others["high"]))


def _median(x: Vector) -> float:
    return float(f"{np.median(np.abs(np.expm1(x))):.3g}")


def _run(run: Measured, shipped: float, fitted: float, left_out: float) -> Run:
    question = run.question
    sizes = {role.upper(): getattr(question.setup.sizes, role) for role in ROLES}
    predicted = [float(f"{run.value * np.exp(run.sign * x):.6g}") for x in (shipped, fitted, left_out)]
    return Run(
        data=run.data,
        sizes=",".join(f"{role}={size}" for role, size in sizes.items() if size > 1) or "TP=1",
        isl=question.isl_tok,
        osl=question.osl_tok or 0,
        batch=question.batch or 0,
        metric=run.metric,
        measured=run.value,
        shipped=predicted[0],
        fitted=predicted[1],
        left_out=predicted[2],
    )
