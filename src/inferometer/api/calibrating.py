"""Factors of one's own from runs of one's own: `calibrate`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inferometer.api.legal_sizes import legal_sizes
from inferometer.api.load import in_formats, load_machine, load_model
from inferometer.api.sizes import chips_of
from inferometer.catalog.loader import find_engine
from inferometer.cost.calibration import Calibration, calibration_text
from inferometer.errors import InferometerError
from inferometer.measurement.bench_serve import BenchRun, read_bench
from inferometer.measurement.calibrate import bench_measured, calibrate, is_table, table_runs
from inferometer.measurement.own_runs import Measured
from inferometer.measurement.passes import Known
from inferometer.specs.deployment import Sizes
from inferometer.specs.hardware import ChipSpec
from inferometer.specs.model import ModelSpec

USUAL_ENGINE = "vllm"
"""Whose results `vllm bench serve` writes, unless told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOf:
    """What result files do not say: a table's rows say it themselves."""

    model: ModelSpec | str | None = None
    """None: the one that the files name."""
    chip: str | None = None
    machine: str | None = None
    sizes: Mapping[str, int] | Callable[[ModelSpec], Mapping[str, int]] = field(default_factory=dict)
    """Role sizes, or what gives them of a model; what is left out is filled as in `estimate`."""
    engine: str | None = None
    quant: str | None = None
    kv_cache_dtype: str | None = None


def calibrate_files(
    files: Sequence[str | Path], about: RunsOf, *, command: str = "inferometer.calibrate"
) -> Calibration:
    """Return the calibration that the runs of `files` ask for.

    Files are results of `vllm bench serve`, or tables (CSV) as `validate --points` takes them: of one model, chip and
    engine, 50 runs at most. Raises InferometerError, one line, for anything else.
    """
    if not files:
        raise InferometerError("give one file or more")
    measured: list[Measured] = []
    benches: list[BenchRun] = []
    for file in files:
        if is_table(file):
            measured += table_runs(file)
        else:
            benches += read_bench(file)
    if not benches:
        return calibrate(measured, chip=None, command=command, known=None)
    model = _model(benches, about)
    if about.chip is None:
        raise InferometerError(f"{benches[0].where} does not say which chip it ran on: add --chip NAME")
    given = dict(about.sizes(model) if callable(about.sizes) else about.sizes)
    machine = load_machine(about.chip, about.machine, None if about.machine else chips_of(given))
    sizes: Sizes = legal_sizes(model, given, machine.fabric.n_chips)
    engine = USUAL_ENGINE if about.engine is None else find_engine(about.engine).name
    known = Known({model.name: model}, {(machine.chip.id, machine.fabric.n_chips): machine})
    measured += [
        bench_measured(run, model=model.name, chip=machine.chip, sizes=sizes, engine=engine) for run in benches
    ]
    return calibrate(measured, chip=_only_chip(measured, machine.chip), command=command, known=known)


def write_calibration(found: Calibration, output: str | Path, files: Sequence[str | Path] = ()) -> None:
    """Write a calibration; raises InferometerError where that cannot be done, or would take the place of a run."""
    path = Path(output)
    try:
        if any(path.resolve() == Path(file).resolve() for file in files):
            raise InferometerError(f"--output {output} is one of the files with runs; name another")
        path.write_text(calibration_text(found), encoding="utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, InferometerError):
            raise
        raise InferometerError(f"--output {output}: {getattr(error, 'strerror', None) or error}") from None


def _only_chip(measured: Sequence[Measured], chip: ChipSpec) -> ChipSpec | None:
    """Return the chip of the result files where no table names another."""
    return chip if all(run.question.setup.chip == chip.id for run in measured) else None


def _model(benches: Sequence[BenchRun], about: RunsOf) -> ModelSpec:
    if about.model is None:
        named = sorted({run.model_id for run in benches})
        if len(named) > 1 or not named[0]:
            told = f"name {', '.join(named)}" if named[0] else "do not name their model"
            raise InferometerError(f"the files {told}: add --model MODEL")
        plain = load_model(named[0])
    else:
        plain = load_model(about.model) if isinstance(about.model, str) else about.model
    return in_formats(plain, about.quant, about.kv_cache_dtype)
