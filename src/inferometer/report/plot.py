"""What was predicted against what was measured, as a picture: a point a row, the diagonal, the band about it."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from inferometer.errors import InferometerError

FORMS = {".png": "png", ".svg": "svg"}
"""Suffix -> form."""
INSTALL = "pip install 'inferometer[plot]'"
COLOURS = {
    "A": "#0072b2",
    "A Argonne": "#56b4e9",
    "B": "#d55e00",
    "B2": "#e69f00",
    "C": "#009e73",
}
"""Group of points -> colour that those who see fewer tell apart too (Okabe and Ito); others are grey."""
OTHER = "#777777"
WHAT = {
    "A": "fixed batches",
    "A Argonne": "fixed batches, 2024",
    "B": "closed loops",
    "B2": "closed loops, other sources",
    "C": "most throughput",
}
SECONDS = "s"
TITLES = ("time a token", "time to first token, and whole requests", "rates")
"""Panels, from the left."""


def plot_form(path: str) -> str:
    """Return the form of a picture by its file's suffix.

    Raises InferometerError, one line, for another suffix, for a folder that is none, and where matplotlib is not
    installed.

    >>> plot_form("a.gif")
    Traceback (most recent call last):
    inferometer.errors.InferometerError: --plot a.gif: ends in none of .png, .svg
    """
    form = FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise InferometerError(f"--plot {path[:80]}: ends in none of {', '.join(FORMS)}")
    if not Path(path).parent.is_dir():
        raise InferometerError(f"--plot {path[:80]} cannot be written: No such folder")
    _matplotlib()
    return form


def _matplotlib() -> Any:
    try:
        return import_module("matplotlib")
    except ImportError:
        raise InferometerError(f"--plot draws with matplotlib: {INSTALL}") from None


def draw(lines: Sequence[Mapping[str, Any]], path: str, form: str) -> None:
    """Write the picture of the rows of `validate`, the summary last; the same rows give the same bytes.

    Raises InferometerError for no rows, and for a file that cannot be written.
    """
    rows, summary = [line for line in lines if "group_id" in line], lines[-1]["summary"]
    if not rows:
        raise InferometerError("--plot: no point was scored")
    panels = {title: [row for row in rows if _title(row) == title] for title in TITLES}
    panels = {title: own for title, own in panels.items() if own}
    matplotlib, figures = _matplotlib(), import_module("matplotlib.figure")
    with matplotlib.rc_context({"svg.hashsalt": "inferometer", "font.size": 9}):
        figure = figures.Figure(figsize=(5.6 * len(panels), 6.2), layout="constrained")
        places = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, own) in zip(places, panels.items(), strict=True):
            _panel(axes, title, own)
        scored, points = f"{summary['scored']:,}", f"{summary['points']:,}"
        figure.suptitle(f"{scored} of {points} published points scored, backend {summary['backend']}", fontsize=10)
        try:
            told = {"Date": None} if form == "svg" else {"Software": None}
            figure.savefig(path, format=form, dpi=150, bbox_inches="tight", metadata=told)
        except OSError as error:
            raise InferometerError(f"--plot {path[:80]} cannot be written: {error.strerror or error}") from None


def _title(row: Mapping[str, Any]) -> str:
    """Return the panel of a row: time a token and other times apart, for they are off in different ways."""
    if row["unit"] != SECONDS:
        return "rates"
    return "time a token" if row["metric"] == "tpot" else "time to first token, and whole requests"


def _panel(axes: Any, title: str, rows: list[Mapping[str, Any]]) -> None:
    """Draw the points of one kind, the groups with most points first so that none hides another."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    for group, own in sorted(groups.items(), key=lambda item: -len(item[1])):
        name = f"{group}, {WHAT[group]}" if group in WHAT else group
        axes.scatter(
            [row["measured"] for row in own],
            [row["predicted"] for row in own],
            s=7,
            alpha=0.45,
            linewidths=0,
            color=COLOURS.get(group, OTHER),
            label=f"{name} ({len(own):,})",
            rasterized=True,
        )
    values = [row[key] for row in rows for key in ("measured", "predicted")]
    ends = (min(values) / 1.3, max(values) * 1.3)
    low, high = _band(rows)
    axes.plot(ends, ends, color="black", linewidth=1)
    axes.fill_between(
        ends,
        [end / high for end in ends],
        [end / low for end in ends],
        color="black",
        alpha=0.10,
        linewidth=0,
        label=f"band: measured is x {low:.2f} to x {high:.2f} of predicted",
    )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    unit = "seconds" if rows[0]["unit"] == SECONDS else "tokens a second"
    axes.set_title(title, loc="left", fontsize=9)
    axes.set(xlabel=f"measured, {unit}", ylabel=f"predicted, {unit}")
    axes.grid(visible=True, which="major", linewidth=0.4, alpha=0.5)
    axes.legend(loc="upper left", markerscale=2, frameon=False, fontsize=8)


def _band(rows: list[Mapping[str, Any]]) -> tuple[float, float]:
    """Return low and high over predicted of most rows: chips nobody measured have a wider band."""
    ends: dict[tuple[float, float], int] = {}
    for row in rows:
        end = (round(row["low"] / row["predicted"], 4), round(row["high"] / row["predicted"], 4))
        ends[end] = ends.get(end, 0) + 1
    return max(ends, key=lambda end: ends[end])
