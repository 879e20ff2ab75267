"""The verbs about what times come from: backends, calibrate."""

from inferometer.api.calibrating import RunsOf, calibrate_files, write_calibration
from inferometer.api.load import load_model
from inferometer.catalog.loader import load_chips
from inferometer.cli.options import Options, spelled
from inferometer.cli.verbs import check_output, out, role_sizes
from inferometer.cost.calibrated import load_own_runs
from inferometer.cost.known_backends import known_backends
from inferometer.report.backends import backend_row, calibration_row
from inferometer.report.row import dumps


def backends(options: Options) -> None:
    """List what is installed, for which chips, and how far off it is."""
    check_output(options)
    rows = [backend_row(one, dict(load_chips())) for one in known_backends()]
    if options.json:
        for row in rows:
            out(dumps(row))
        return
    from inferometer.report.backends_tables import backends_table, covered_table
    from inferometer.report.tables import Page

    page = Page()
    page.show(backends_table(rows))
    for row in rows:
        if len(row["covered"]) > 1:
            page.show()
            page.show(covered_table(row))
        for line in (*row["data"], *row["commands"]):
            page.show(f"{row['backend']}: {line}")


def calibrate(options: Options) -> None:
    """Fit factors to runs of one's own, and say how much that helped."""
    check_output(options)
    about = _about(options)
    found = calibrate_files(options.files, about, command=spelled("calibrate", options))
    if options.output is not None:
        write_calibration(found, options.output, options.files)
    row = calibration_row(found, options.output)
    if options.json:
        out(dumps(row))
        return
    from inferometer.report.backends_tables import runs_table
    from inferometer.report.tables import Page

    page = Page()
    page.show(f"{found.model} on {found.chip}, {found.engine}: {len(found.runs)} runs")
    page.show()
    page.show(runs_table(row))
    page.show()
    page.show(_helped(len(found.runs), found.error_shipped, found.error_left_out))
    page.show("factors on timed kernels: " + ", ".join(f"{k} {v:g}" for k, v in found.factors.items()))
    page.show(f"band of this model on {found.chip}: x {found.low:g} to x {found.high:g}")
    if options.output is not None:
        page.show(f"written: {options.output}; use it with --calibration {options.output}")
    else:
        page.show("not written: give --output FILE")


def _helped(n: int, shipped: float, left_out: float) -> str:
    """Return how much the fit helped where it had not seen a run."""
    if n > 1:
        return f"median |error| {shipped:.1%} as shipped, {left_out:.1%} with each run predicted by the others"
    score = load_own_runs()
    told = f"{score.without['median']:.0%} to {score.any_sharding['1']['median']:.0%}"
    return f"one run cannot be held out; on published series one run takes the median |error| from {told}"


def _about(options: Options) -> RunsOf:
    """Return what is said of result files."""
    return RunsOf(
        model=None if options.for_model is None else load_model(options.for_model),
        chip=options.on_chip,
        sizes=lambda model: role_sizes(options, model),
        engine=options.engine,
        quant=options.quant,
        kv_cache_dtype=options.kv_cache_dtype,
    )
