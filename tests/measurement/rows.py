"""Rows of both dialects for the tests."""

import csv
import importlib.util
import io
from decimal import Decimal
from pathlib import Path

from inferometer.measurement.points import METRIC_UNITS
from inferometer.measurement.published import COLUMNS, METRICS, SOURCE_CELLS

DIALECT_COLUMNS = (*COLUMNS.values(), *SOURCE_CELLS.values(), "metric", "value")
DIALECT_METRICS = {ours: theirs for theirs, ours in METRICS.items()}

ROW = {
    "id": "p1",
    "group_id": "g1",
    "clean": "A",
    "model": "meta-llama/Llama-2-7b-hf",
    "weight_dtype": "fp16",
    "kv_dtype": "fp16",
    "hardware": "H100",
    "n_chips": "1",
    "tp": "1",
    "pp": "1",
    "disagg": "n",
    "framework": "some engine",
    "phase": "e2e",
    "isl": "128",
    "osl": "9",
    "concurrency_or_batch": "4",
    "spec_decode": "none",
    "metric": "e2e_latency_ms",
    "value": "250",
}


def dialect_text(*changes, columns=DIALECT_COLUMNS):
    """CSV in the published dialect: one row for each dictionary of changes to ROW."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROW | change for change in changes)
    return out.getvalue()


def to_dialect(own, source):
    """One of our rows as the dialect spells it: the inverse of `to_own`."""
    metric = own["metric"]
    is_time = METRIC_UNITS[metric] == "s"
    value = format(Decimal(own["value_s"]).scaleb(3), "f") if is_time else own["value_tok_per_s"]
    row = {theirs: own[ours] for ours, theirs in COLUMNS.items()}
    row |= {cell: source[name] for name, cell in SOURCE_CELLS.items()}
    return row | {"metric": DIALECT_METRICS[metric], "value": value}


def make_points_script():
    """The script that writes the committed tables, as a module."""
    path = Path(__file__).parents[2] / "scripts" / "make_points.py"
    spec = importlib.util.spec_from_file_location("make_points", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
