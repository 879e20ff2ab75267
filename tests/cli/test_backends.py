"""The verbs `backends` and `calibrate`, and what `--calibration` changes."""

import json
import tomllib

import pytest
from cli.command import inferometer
from cli.test_rows import check, schema

from inferometer.catalog.loader import load_chips
from inferometer.cost.calibrated import load_fits, load_serving

RUN = {
    "model_id": "meta-llama/Llama-3.1-70B-Instruct",
    "request_rate": "inf",
    "completed": 10,
    "total_input_tokens": 10_240,
    "total_output_tokens": 10_240,
}


def bench(folder, in_flight, tpot_ms, **more):
    file = folder / f"bench{in_flight}.json"
    file.write_text(json.dumps(RUN | {"max_concurrency": in_flight, "mean_tpot_ms": tpot_ms} | more))
    return str(file)


def test_backends_say_what_they_rest_on():
    rows = {row["backend"]: row for row in inferometer("backends", "--json").rows}
    assert {"roofline", "calibrated"} <= set(rows)
    own = rows["calibrated"]
    assert [one["generation"] for one in own["covered"]] == list(load_fits().generations)
    chips = [chip for one in own["covered"] for chip in one["chips"]]
    assert sorted(chips) == sorted(chip.id for chip in load_chips().values() if chip.generation)
    hopper = next(one for one in own["covered"] if one["generation"] == "hopper")
    assert (hopper["basis"], hopper["dtypes"]) == ("calibrated", ["bf16", "fp8", "fp8-block"])
    assert (hopper["low"], hopper["high"]) == (load_serving().low, load_serving().high)
    assert hopper["n"] == load_serving().factors["hopper"].n
    for one in own["covered"]:
        assert one["basis"] == ("calibrated" if one["n"] else "assumed")
    tpot = next(figure for figure in own["figures"] if figure["what"] == "published runs, class B tpot")
    assert tpot["median"] == load_serving().figures["B tpot"]["median"]
    assert any("fit_kernels" in command for command in own["commands"])
    limit = rows["roofline"]
    assert limit["basis"] == "analytic"
    assert limit["covered"][0]["chips"] == list(load_chips())


def test_backends_are_a_table():
    done = inferometer("backends")
    assert done.status == 0
    for word in ("calibrated", "roofline", "hopper", "assumed", "python -m inferometer.measurement.fit_serving"):
        assert word in done.out


def test_calibrate_writes_what_search_uses(tmp_path):
    files = [bench(tmp_path, c, ms) for c, ms in ((1, 14.0), (8, 15.0), (64, 24.0))]
    path = str(tmp_path / "my.toml")
    words = ("calibrate", *files, "--model", "llama-3.1-70b", "--chip", "h200", "-tp", "8")
    done = inferometer(*words, "--output", path, "--json")
    assert done.status == 0, done.err
    (row,) = done.rows
    check(row, schema("calibration"))
    assert (row["chip"], row["engine"], len(row["runs"])) == ("h200-sxm", "vllm", 3)
    assert row["error_left_out"] < row["error_shipped"]
    written = tomllib.loads((tmp_path / "my.toml").read_text())
    assert written["factors"] == row["factors"]
    assert written["command"].startswith("inferometer calibrate ")
    table = inferometer(*words)
    assert table.status == 0
    assert "not written: give --output FILE" in " ".join(table.out.split())
    asked = ("llama-3.1-70b", "h200", "8x1", "--batch", "8", "--json")
    for verb in ("search", "explain", "top"):
        (own, *_), (plain, *_) = inferometer(verb, *asked, "--calibration", path).rows, inferometer(verb, *asked).rows
        assert own["calibration"] == path
        assert own["step_s"] != plain["step_s"]
        assert own["id"] != plain["id"]
    assert inferometer("search", *asked, "--calibration", path, "--table").status == 2
    compared = inferometer("explain", *asked, "--calibration", path, "--against=--backend roofline").rows[0]
    assert (compared["a"]["calibration"], compared["b"]["calibration"]) == (path, None)


def test_validate_takes_a_calibration(tmp_path):
    path = str(tmp_path / "my.toml")
    words = ("--model", "llama-3.1-70b", "--chip", "h200", "-tp", "8", "--output", path)
    assert inferometer("calibrate", bench(tmp_path, 8, 30.0), *words).status == 0
    rows = inferometer("validate", "--calibration", path, "--class", "C", "--json").rows[:-1]
    plain = inferometer("validate", "--class", "C", "--json").rows[:-1]
    for own, other in zip(rows, plain, strict=True):
        hopper = own["chip"].startswith(("h100", "h200", "gh200"))
        assert (own["predicted"] != other["predicted"]) == hopper == own["in_sample"]


BAD = [
    (("calibrate",), "Missing argument"),
    (("calibrate", "none.json", "--chip", "h200"), "cannot be read"),
    (("calibrate", "none.csv"), "cannot be read"),
    (("search", "llama-3.1-8b", "h100", "--calibration", "none.toml"), "cannot be read"),
    (("validate", "--calibration", "none.toml"), "cannot be read"),
    (("backends", "--json", "--table"), "not both"),
]


@pytest.mark.parametrize(("words", "told"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line(words, told):
    done = inferometer(*words)
    assert done.status == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_bad_runs_are_one_line(tmp_path):
    file = bench(tmp_path, 8, 15.0)
    for words, told in (
        (("--model", "llama-3.1-70b"), "add --chip"),
        (("--model", "llama-3.1-70b", "--chip", "h210"), "did you mean"),
        (("--model", "llama-3.1-70b", "--chip", "h200", "--engine", "vlm"), "did you mean"),
        (("--model", "llama-3.1-70b", "--chip", "h200", "-tp", "8", "--output", str(tmp_path)), "directory"),
        (("--model", "llama-3.1-70b", "--chip", "h200", "-tp", "8", "--output", file), "one of the files"),
        (("--model", "llama-3.1-70b", "--chip", "h200", "-tp", "7"), "heads-not-divisible"),
    ):
        done = inferometer("calibrate", file, *words)
        assert done.status == 2, words
        assert told in done.err
        assert done.err.count("\n") == 1, done.err


def test_rows_the_band_cannot_tell_from_the_best_are_marked():
    words = ("search", "deepseek-v3", "h200", "8x2", "--top", "10")
    rows = inferometer(*words, "--json").rows
    best = rows[0]["tok_per_s_per_chip"]
    marked = [row["tied"] for row in rows]
    assert marked == [best / row["tok_per_s_per_chip"] <= load_serving().apart for row in rows]
    table = inferometer(*words).out
    assert ("the band cannot tell from row 1" in table) == any(marked[1:])
    assert inferometer("explain", "llama-3.1-8b", "h100", "--json").rows[0]["tied"] is None
