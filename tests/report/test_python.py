"""The Python face: what `from inferometer import ...` gives."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import inferometer
from inferometer import InferometerError, estimate, load_machine, load_model, search
from inferometer.report.row import deployment_row, dumps
from inferometer.search.result import Slo
from inferometer.specs.deployment import Sizes


def test_the_snippet():
    model = load_model("deepseek-v3")
    machine = load_machine("h200", "8x2")
    best = search(model, machine, slo=20).answers[0]
    again = estimate(model, machine, best.estimate.sizes, batch=best.estimate.batch)
    assert again.rates == best.rates
    assert again.rates.tok_per_s_per_user >= 20


def test_names_and_specs_ask_the_same():
    by_name = estimate("llama-3.1-70b", "h100 8x1", "TP=8", batch=16)
    by_spec = estimate(load_model("llama-3.1-70b"), load_machine("h100", "8x1"), Sizes(tp=8), batch=16)
    by_map = estimate("meta-llama/Meta-Llama-3.1-70B", "h100", {"tp": 8}, batch=16)
    assert deployment_row(by_name) == deployment_row(by_spec) == deployment_row(by_map)


def test_limits_may_be_numbers_text_or_specs():
    for limit in (50, "50", "tpot=20ms", Slo(tpot_s=0.02)):
        (best,) = search("llama-3.1-8b", "h100", slo=limit, top=1).answers
        assert best.estimate.step_s <= 0.02


def test_formats_may_be_settings():
    plain = estimate("llama-3.1-8b", "h100", batch=8)
    small = estimate("llama-3.1-8b", "h100", batch=8, quant="fp8", kv_cache_dtype="fp8")
    assert small.estimate.memory.weights_bytes < plain.estimate.memory.weights_bytes
    assert small.estimate.memory.kv_bytes == plain.estimate.memory.kv_bytes / 2
    assert "kv_cache_dtype" in plain.assumed
    assert "kv_cache_dtype" not in small.assumed


def test_sequences_longer_than_the_model_are_noted():
    notes = estimate("llama-2-7b", "h100", batch=1, isl=100_000).estimate.diagnostics
    assert "beyond-context" in {note.name for note in notes}


def test_every_error_is_ours():
    for wrong in ({"batch": 0}, {"isl": 0}, {"phase": "x"}, {"sizes": "TP=0"}, {"placement": "x"}, {"slo": -1}):
        with pytest.raises(InferometerError):
            estimate("llama-3.1-8b", "h100", **wrong)
    with pytest.raises(InferometerError, match="did you mean"):
        search("llama-3.1-8b", ["h100", "h210"])


def test_rooms_of_the_same_name_do_not_hide_the_functions():
    for room in ("estimate", "search"):
        importlib.import_module(f"inferometer.{room}.{room}")
        assert callable(getattr(inferometer, room))


def test_importing_the_package_loads_nothing_heavy():
    script = "import sys, inferometer; print([m for m in ('numpy', 'msgspec', 'typer') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_all_is_all():
    assert all(hasattr(inferometer, name) for name in inferometer.__all__)
    with pytest.raises(AttributeError):
        _ = inferometer.nonsense


def test_the_version_is_the_project_s():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert inferometer.__version__ == project["version"]


def test_rows_hold_no_infinity():
    assert dumps({"a": [float("inf"), {"b": float("nan")}], "c": 1.0}) == '{"a": [null, {"b": null}], "c": 1.0}'
