"""Backends and calibrations as tables."""

from typing import Any

from rich.table import Table

from inferometer.cost.backend import Figure
from inferometer.report.tables import table
from inferometer.report.text import count


def backends_table(rows: list[dict[str, Any]]) -> Table:
    """Return backends, one a line."""
    grid = table(["<backend", "<origin", "<basis", "low", "high", "<held out, median |error| / p90"])
    for row in rows:
        figures = "\n".join(_figure_text(Figure(**figure)) for figure in row["figures"]) or row["error"] or "-"
        ends = ["-" if row[end] is None else f"{row[end]:.3g}" for end in ("low", "high")]
        grid.add_row(row["backend"], row["origin"], row["basis"] or "-", *ends, figures)
    return grid


def covered_table(row: dict[str, Any]) -> Table:
    """Return the generations that a backend knows, one a line."""
    grid = table(["<generation", "<basis", "runs", "low", "high", "<timed kernels", "<chips"], title=row["backend"])
    for one in row["covered"]:
        ends = (f"{one['low']:.3g}", f"{one['high']:.3g}")
        timed, chips = ", ".join(one["dtypes"]) or "-", ", ".join(one["chips"])
        grid.add_row(one["generation"] or "all alike", one["basis"], f"{one['n']:,}", *ends, timed, chips)
    return grid


def _figure_text(figure: Figure) -> str:
    return f"{figure.what}: {figure.median:.0%} / {figure.p90:.0%} of {figure.n:,}"


def runs_table(row: dict[str, Any]) -> Table:
    """Return the runs of a calibration, one a line: how far each is off before, after and left out."""
    heads = ["<run", "<sharding", "in\nflight", "ISL", "OSL", "<metric", "measured", "shipped", "fitted", "left out"]
    grid = table(heads)
    for run in row["runs"]:
        times, unit = (1.0, "tok/s") if "tok_per_s" in run["metric"] else (1e3, "ms")
        off = [f"{run[what] / run['measured'] - 1:+.1%}" for what in ("shipped", "fitted", "left_out")]
        load = [f"{run[what]:,}" for what in ("batch", "isl", "osl")]
        value = count(run["measured"] * times)
        grid.add_row(run["data"], run["sizes"], *load, f"{run['metric']} {unit}", value, *off)
    return grid
