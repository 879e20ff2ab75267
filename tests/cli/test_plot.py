"""`validate --plot`: the picture, and what stops it."""

import importlib.util
import xml.etree.ElementTree as ET

import pytest
from cli.command import inferometer

from inferometer.measurement.points import load_points
from inferometer.report import plot

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib")
ONE_CLASS = ("validate", "--backend", "roofline", "--class", "C")


@needs_matplotlib
def test_a_picture_has_a_dot_a_row_the_diagonal_and_the_band(tmp_path):
    file = tmp_path / "c.svg"
    done = inferometer(*ONE_CLASS, "--plot", str(file), "--json")
    assert done.status == 0, done.err
    *rows, last = done.rows
    text = file.read_text(encoding="utf-8")
    assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 (our own file)
    assert len(rows) == last["summary"]["scored"] > 100
    again = tmp_path / "again.svg"
    inferometer(*ONE_CLASS, "--plot", str(again))
    assert again.read_bytes() == file.read_bytes()


@needs_matplotlib
def test_what_is_drawn_is_what_was_scored(tmp_path, monkeypatch):
    rows = [
        {"group_id": "g", "group": group, "metric": metric, "unit": unit, "measured": 2.0, "predicted": x}
        | {"low": 0.5 * x, "high": 1.5 * x}
        for group, metric, unit, x in (("B", "tpot", "s", 1.0), ("B", "ttft", "s", 3.0), ("mine", "tpot", "s", 4.0))
    ]
    drawn = []
    panel = plot._panel
    monkeypatch.setattr(plot, "_panel", lambda axes, title, own: (panel(axes, title, own), drawn.append(axes)))
    summary = {"summary": {"scored": 3, "points": 9, "backend": "roofline"}}
    file = tmp_path / "a.png"
    plot.draw([*rows, summary], str(file), "png")
    assert file.read_bytes().startswith(b"\x89PNG")
    assert [axes.get_title(loc="left") for axes in drawn] == list(plot.TITLES[:2])
    dots = [tuple(point) for dot in drawn[0].collections[:2] for point in dot.get_offsets()]
    assert sorted(dots) == [(2.0, 1.0), (2.0, 4.0)]
    (diagonal,) = drawn[0].lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    assert "band: measured is x 0.50 to x 1.50 of predicted" in [t.get_text() for t in drawn[0].get_legend().texts]
    assert drawn[0].get_xscale() == drawn[0].get_yscale() == "log"


@pytest.mark.parametrize(
    "where",
    ["no/a.png", pytest.param("folder.png", marks=needs_matplotlib)],
)
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, where, monkeypatch):
    """A folder that is none is told before anything is priced; a folder in the file's place when it is written."""
    (tmp_path / "folder.png").mkdir()
    if where == "no/a.png":
        monkeypatch.setattr("inferometer.measurement.validate.load_points", None)
    done = inferometer(*ONE_CLASS, "--plot", str(tmp_path / where))
    assert (done.status, len(done.err.strip().splitlines())) == (2, 1)
    assert "cannot be written: " in done.err


def test_without_matplotlib_there_is_one_line_with_the_command(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(plot, "import_module", missing)
    done = inferometer(*ONE_CLASS, "--plot", "a.png")
    assert (done.status, len(done.err.strip().splitlines())) == (2, 1)
    assert "pip install 'inferometer[plot]'" in done.err


def test_another_form_is_refused_before_anything_is_priced(monkeypatch):
    monkeypatch.setattr("inferometer.measurement.validate.load_points", lambda: pytest.fail("priced"))
    done = inferometer("validate", "--plot", "a.gif")
    assert (done.status, done.err.strip()) == (2, "inferometer: --plot a.gif: ends in none of .png, .svg")


def test_points_of_every_class_have_a_name():
    assert {point.klass for point in load_points()} >= {"A", "B", "B2", "C"} <= set(plot.WHAT)
