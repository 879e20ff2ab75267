import subprocess
import sys
from collections import Counter

import pytest
from measurement.rows import dialect_text, make_points_script, to_dialect

from inferometer.errors import InferometerError
from inferometer.measurement.points import (
    CLASSES,
    DATA,
    METRIC_UNITS,
    POINT_COLUMNS,
    SOURCE_COLUMNS,
    load_points,
    load_sources,
    read_rows,
    read_text,
)
from inferometer.measurement.published import read_points, to_own


def own_rows(name, columns):
    return read_rows(read_text(DATA / name), name, columns)


def test_every_published_row_is_there():
    points = load_points()
    assert Counter(point.klass for point in points) == {"A": 1648, "B": 2073, "B2": 934, "C": 747, "D": 586, "O": 736}
    assert len({point.id for point in points}) == len(points) == 6724
    assert len({point.group_id for point in points}) == 4611


def test_rows_are_typed_and_sourced():
    for point in load_points():
        assert point.klass in CLASSES
        assert point.metric in METRIC_UNITS
        assert point.measured > 0
        assert (point.value_s is None) is not (point.value_tok_per_s is None)
        assert point.source.name
        assert point.source.url


def test_rows_of_one_group_share_their_configuration():
    own = {"id", "metric", "value_s", "value_tok_per_s"}
    seen = {}
    for row in own_rows("points.csv.gz", POINT_COLUMNS):
        shared = {k: v for k, v in row.items() if k not in own}
        assert seen.setdefault(row["group_id"], shared) == shared


def test_every_source_is_used():
    assert {point.source.source_id for point in load_points()} == set(load_sources())


def test_doubts_mark_whole_groups():
    marked = {point.group_id for point in load_points() if point.suspicious}
    assert len(marked) == 343
    assert {kind for point in load_points() for kind in point.suspicious} == {
        *("outlier", "below roofline", "ttft", "series", "contradiction", "memory", "MFU", "utilisation")
    }


def test_the_tables_are_small():
    assert sum((DATA / name).stat().st_size for name in ("points.csv.gz", "sources.csv.gz")) < 400_000


def test_milliseconds_became_seconds():
    row = next(point for point in load_points() if point.group_id == "g00001" and point.metric == "tpot")
    assert row.value_s == pytest.approx(9.648023886344358e-3, rel=1e-15)


def test_nothing_is_read_before_it_is_asked_for():
    code = (
        "import inferometer.measurement.validate, inferometer.measurement.points as p;"
        "print(p.load_points.cache_info().currsize, p.load_sources.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "0"]


def test_the_script_makes_the_committed_tables(tmp_path):
    """From the committed rows, written back in the dialect they were collected in."""
    sources = {row["source_id"]: row for row in own_rows("sources.csv.gz", SOURCE_COLUMNS)}
    rows = own_rows("points.csv.gz", POINT_COLUMNS)
    text = dialect_text(*(to_dialect(row, sources[row["source_id"]]) for row in rows))
    (tmp_path / "points.csv").write_text(text, encoding="utf-8")
    doubts = sorted({(row["group_id"], kind) for row in rows for kind in row["suspicious"].split(";") if kind})
    listed = "".join(f"{group},{kind}\n" for group, kind in doubts)
    (tmp_path / "suspicious.csv").write_text("group_id,kind\n" + listed, encoding="utf-8")
    assert make_points_script().make(tmp_path / "points.csv", tmp_path / "suspicious.csv", tmp_path / "out") == 6724
    for name in ("points.csv.gz", "sources.csv.gz"):
        assert read_text(tmp_path / "out" / name) == read_text(DATA / name)


def test_the_script_writes_the_same_bytes_twice(tmp_path):
    (tmp_path / "points.csv").write_text(dialect_text({}, {"group_id": "g2"}), encoding="utf-8")
    script = make_points_script()
    for out in ("one", "two"):
        script.make(tmp_path / "points.csv", None, tmp_path / out)
    for name in ("points.csv.gz", "sources.csv.gz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_script_refuses_what_it_could_not_read_back(tmp_path):
    (tmp_path / "points.csv").write_text(dialect_text({"value": "-1"}), encoding="utf-8")
    with pytest.raises(InferometerError, match=r"points\.csv line 2: value_s is"):
        make_points_script().make(tmp_path / "points.csv", None, tmp_path / "out")


def test_sources_are_numbered_by_first_appearance():
    base = {"group_id": "g", "metric": "ttft_ms", "value": "1"}
    rows = [base | {"source": "one"}, base | {"source": "two"}, base | {"source": "one"}]
    points, sources = to_own(rows, {"g": "outlier"}, "x")
    assert [p["source_id"] for p in points] == ["s0001", "s0002", "s0001"]
    assert [s["name"] for s in sources] == ["one", "two"]
    assert {p["suspicious"] for p in points} == {"outlier"}


def test_a_users_file_may_be_in_either_dialect(tmp_path):
    (tmp_path / "dialect.csv").write_text(dialect_text({}), encoding="utf-8")
    make_points_script().make(tmp_path / "dialect.csv", None, tmp_path)
    theirs, ours = read_points(tmp_path / "dialect.csv"), read_points(tmp_path / "points.csv.gz")
    assert theirs[0].value_s == ours[0].value_s == 0.25
    assert theirs[0].isl_tok == ours[0].isl_tok == 128


@pytest.mark.parametrize("column", ["value", "clean", "hardware", "isl"])
def test_a_missing_column_is_named(tmp_path, column):
    columns = [c for c in ("group_id", "clean", "model", "weight_dtype", "hardware", "n_chips", "tp") if c != column]
    columns += [c for c in ("isl", "osl", "concurrency_or_batch", "metric", "value") if c != column]
    (tmp_path / "own.csv").write_text(dialect_text({}, columns=columns), encoding="utf-8")
    with pytest.raises(InferometerError, match=f"no column {column};"):
        read_points(tmp_path / "own.csv")


def test_columns_that_say_nothing_may_be_left_out(tmp_path):
    columns = ("group_id", "clean", "model", "weight_dtype", "hardware", "n_chips", "tp", "isl", "osl")
    columns += ("concurrency_or_batch", "metric", "value")
    (tmp_path / "own.csv").write_text(dialect_text({}, columns=columns), encoding="utf-8")
    assert read_points(tmp_path / "own.csv")[0].pp is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": "fast"}, "line 3: value is 'fast'"),
        ({"value": "nan"}, "line 3: value_s is 'nan'"),
        ({"value": "0"}, "line 3: value_s is '0.000'"),
        ({"value": "inf", "metric": "output_tok_s_total"}, "line 3: value_tok_per_s is 'inf'"),
        ({"isl": "1e3"}, "line 3: isl_tok is '1e3'"),
        ({"n_chips": "0"}, "line 3: n_chips is '0'"),
        ({"tp": "-1"}, "line 3: tp is '-1'"),
        ({"concurrency_or_batch": "9" * 30}, "line 3: batch is"),
        ({"dp_attention": "maybe"}, "line 3: dp_attention is 'maybe'"),
        ({"metric": "latency"}, "'latency'"),
        ({"clean": "yes"}, "line 3, in column class or clean.*'yes'"),
        ({"clean": ""}, "line 3, in column class or clean.*A, B, B2, C, D, O"),
    ],
)
def test_a_bad_cell_is_named(tmp_path, change, message):
    (tmp_path / "own.csv").write_text(dialect_text({}, change), encoding="utf-8")
    with pytest.raises(InferometerError, match=message):
        read_points(tmp_path / "own.csv")


@pytest.mark.parametrize("name", ["absent.csv", "torn.csv.gz", "binary.csv", "."])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, name):
    (tmp_path / "torn.csv.gz").write_bytes(b"\x1f\x8b\x08\x00torn")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InferometerError, match="cannot be read") as caught:
        read_points(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_too_many_cells_are_refused(tmp_path):
    (tmp_path / "own.csv").write_text(dialect_text({}).rstrip("\n") + ",more\n", encoding="utf-8")
    with pytest.raises(InferometerError, match="line 2: more cells than columns"):
        read_points(tmp_path / "own.csv")


def test_a_metric_may_go_by_the_name_we_print(tmp_path):
    names = [{"metric": "e2e_latency", "value": "0.25"}, {"metric": "output_tok_per_s", "value": "9"}]
    (tmp_path / "own.csv").write_text(dialect_text({}, *names), encoding="utf-8")
    theirs, time, rate = read_points(tmp_path / "own.csv")
    assert time.value_s == theirs.value_s == 0.25
    assert (rate.metric, rate.value_tok_per_s) == ("output_tok_per_s", 9)
