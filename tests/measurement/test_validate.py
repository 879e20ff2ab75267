import json
import subprocess
import sys
import time

import pytest
from measurement.rows import dialect_text
from pace import slowness

from inferometer.cost.registry import create_backend
from inferometer.cost.roofline import BAND_FILE
from inferometer.errors import InferometerError
from inferometer.measurement.fit_band import COMMAND, fit_band
from inferometer.measurement.points import load_points
from inferometer.measurement.summary import decode_like, summarise, time_ratio
from inferometer.measurement.validate import validate_points

KEYS = ["group_id", "metric", "measured", "predicted", "error", "low", "high", "class", "in_sample"]


@pytest.fixture(scope="module")
def everything():
    start = time.process_time()
    rows = list(validate_points(backend="roofline"))
    return rows[:-1], rows[-1]["summary"], time.process_time() - start


def validated(tmp_path, *changes):
    (tmp_path / "own.csv").write_text(dialect_text(*changes), encoding="utf-8")
    rows = list(validate_points(str(tmp_path / "own.csv"), backend="roofline"))
    return rows[:-1], rows[-1]["summary"]


def test_every_point_is_scored_or_counted(everything):
    rows, summary, _ = everything
    assert summary["points"] == len(load_points()) == 6724
    assert summary["scored"] == len(rows) > 5000
    assert len(rows) + sum(summary["not_scored"].values()) == 6724
    assert sum(summary["not_scored_by_kind"].values()) == sum(summary["not_scored"].values())
    assert sum(group["n"] for group in summary["by_group"]) == len(rows)
    assert sum(group["n"] for group in summary["by_era"]) == len(rows)


def test_the_reasons_are_those_of_the_rows(everything):
    reasons = everything[1]["not_scored"]
    assert {k: v for k, v in reasons.items() if k.startswith("class")} == {
        "class: D": 586,
        "class: O": 736,
    }
    assert sum(n for reason, n in reasons.items() if reason.startswith("chip")) == 2
    assert not [reason for reason in reasons if reason.startswith(("refused", "not stated", "sizes"))]


def test_it_takes_seconds(everything):
    """Under 10 on a quiet machine of two cores; workers beside share its caches, so thrice that here."""
    assert everything[2] < 30 * slowness()


def test_the_keys_come_first_and_in_order(everything):
    rows, _, _ = everything
    assert all(list(row)[: len(KEYS)] == KEYS for row in rows)
    assert len({tuple(row) for row in rows}) == 1
    json.dumps(rows[0], allow_nan=False)


def test_the_summary_is_json(everything):
    json.dumps(everything[1], allow_nan=False)


def test_low_and_high_are_the_band_in_the_metric(everything):
    band = create_backend("roofline").band()
    for row in everything[0]:
        assert row["low"] <= row["predicted"] <= row["high"]
        if row["unit"] == "s":
            assert (row["low"], row["high"]) == (row["predicted"] * band.low, row["predicted"] * band.high)
        else:
            assert (row["low"], row["high"]) == (row["predicted"] / band.high, row["predicted"] / band.low)


def test_the_roofline_was_fitted_to_nothing(everything):
    assert not any(row["in_sample"] for row in everything[0])


def test_groups_tell_argonne_apart(everything):
    groups = {group["group"]: group["n"] for group in everything[1]["by_group"]}
    assert set(groups) == {"A", "A Argonne", "B", "B2", "C"}
    assert groups["A Argonne"] == sum("argonne" in row["url"] for row in everything[0])


def test_the_roofline_is_a_limit(everything):
    """What beats it by more than a tenth is marked as suspicious by the study of these rows."""
    rows = [row for row in everything[0] if row["class"] == "A"]
    below = [row for row in rows if decode_like(row) and time_ratio(row) < 0.9]
    assert all(row["suspicious"] for row in below)


def test_errors_are_where_a_study_of_these_rows_found_a_roofline(everything):
    """Another estimator's roofline: TensorRT-LLM 0.9 throughput +46 %, Argonne -53 %, batch-1 decode +56 %."""
    bias = {(group["group"], group["metric"]): group["bias"] for group in everything[1]["by_metric"]}
    assert bias["A", "output_tok_per_s_per_chip"] == pytest.approx(0.46, abs=0.1)
    assert bias["A Argonne", "e2e_latency"] == pytest.approx(-0.53, abs=0.1)
    assert bias["A", "output_tok_per_s"] == pytest.approx(0.56, abs=0.15)


def test_summary_by_hand():
    row = {"group": "A", "era": "e", "suspicious": [], "fits": True, "low": 1.0, "high": 4.0}
    times = [(2.0, 1.0), (3.0, 1.5), (5.0, 1.0)]
    rows = [row | {"metric": "tpot", "measured": m, "predicted": p, "error": p / m - 1} for m, p in times]
    rate = {"metric": "output_tok_per_s", "measured": 10.0, "predicted": 40.0, "error": 3.0}
    found = summarise([*rows, row | rate], {"chip: x": 2, "chip: y": 1, "class: B": 4})
    assert found["points"] == 4 + 7
    assert found["not_scored_by_kind"] == {"class": 4, "chip": 3}
    tpot = next(group for group in found["by_metric"] if group["metric"] == "tpot")
    # errors -1/2, -1/2, -4/5; p90 of |error|: 0.5 + 0.8 (0.8 - 0.5)
    assert (tpot["n"], tpot["median_error"], tpot["bias"]) == (3, 0.5, -0.5)
    assert tpot["p90_error"] == pytest.approx(0.5 + 0.8 * 0.3)
    assert tpot["within_band"] == pytest.approx(2 / 3)
    # time ratios 2, 2, 5 and 40 / 10
    assert found["time_ratio"]["all"]["p50"] == pytest.approx((2 + 4) / 2)


def test_a_users_points(tmp_path):
    rows, summary = validated(tmp_path, {}, {"group_id": "g2", "clean": "D"}, {"hardware": "abacus"}, {"tp": "64"})
    assert [row["group_id"] for row in rows] == ["g1"]
    assert rows[0]["measured"] == 0.25
    assert rows[0]["error"] == rows[0]["predicted"] / 0.25 - 1
    assert summary["not_scored"] == {"chip: abacus": 1, "class: D": 1, "sizes: do not multiply to the chips": 1}


def test_what_the_estimator_refuses_is_counted(tmp_path):
    """Llama 2 7B has 32 heads; 64 ranks cannot share them."""
    rows, summary = validated(tmp_path, {"n_chips": "64", "tp": "64"})
    assert not rows
    (reason,) = summary["not_scored"]
    assert reason.startswith("refused: tp-exceeds-heads")
    assert summary["by_group"] == []


def test_a_file_without_rows_has_a_summary(tmp_path):
    rows, summary = validated(tmp_path)
    assert (rows, summary["points"]) == ([], 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ("D",)}, "class D cannot be scored yet"),
        ({"classes": ("Z",)}, "unknown class 'Z'"),
        ({"backend": "rooflin"}, "unknown backend 'rooflin'"),
        ({"path": "absent.csv"}, "absent.csv cannot be read"),
    ],
)
def test_bad_requests_fail_at_once(options, message):
    with pytest.raises(InferometerError, match=message):
        validate_points(**options)


def fixed_batches(rows):
    return [row for row in rows if row["class"] == "A"]


def test_the_committed_band_is_what_the_command_fits(everything):
    """A change of the model that moves it must run the command again."""
    committed = json.loads(BAND_FILE.read_text(encoding="utf-8"))
    fitted = fit_band(fixed_batches(everything[0]))
    assert committed["command"] == COMMAND
    assert committed["low"] == fitted["low"]
    assert committed["high"] == pytest.approx(fitted["high"], rel=0.01)
    assert committed["n"] == fitted["n"]


def test_the_backend_reads_the_committed_band():
    committed = json.loads(BAND_FILE.read_text(encoding="utf-8"))
    band = create_backend("roofline").band()
    assert (band.low, band.high) == (committed["low"], committed["high"])
    assert committed["command"] in band.source


def test_nine_rows_in_ten_took_at_most_the_band(everything):
    used = [row for row in fixed_batches(everything[0]) if row["fits"] and decode_like(row)]
    assert sum(time_ratio(row) <= fit_band(used)["high"] for row in used) / len(used) == pytest.approx(0.9, abs=0.01)


SHARED = """
from inferometer.measurement import validate
rows = list(validate.validate_points(backend="calibrated", classes=("C",)))
validate.WORTH_SHARING, validate.can_share = 0, lambda: True
assert list(validate.validate_points(backend="calibrated", classes=("C",))) == rows
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_a_second_process_prices_as_the_first_does():
    """In a process of its own: one with threads does not fork."""
    subprocess.run([sys.executable, "-c", SHARED], check=True, timeout=120)
