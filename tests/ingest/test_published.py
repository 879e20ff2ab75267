"""One table of published figures: parameters, actives, cache, states and checkpoints of every model that has them.

`published.csv`, a row a model of two tables: of configs (counts by an index, a checkpoint's bytes, or instances of
transformers 5.24.0 without memory) and of operators (rounded to a million or so; `*_doubt` says how far). Ours is the
published figure plus `*_apart`, for the reason in `why`. `scope` says which parameters are active ones: `all`, without
the input embedding (`one-table`), or without the head either (`no-tables`). Cache bytes are of bf16 (of DeepSeek-V4 of
the format it is published in): of a token in all layers (`kv`), in those that grow without end (`kv_grows`), and of a
full window of the others. A row that says `refused` has no model: its name is refused with the reason.
"""

import csv
from functools import cache
from pathlib import Path

import msgspec
import pytest

from inferometer.api.load import load_model
from inferometer.blocks.params import count_params
from inferometer.errors import InferometerError
from inferometer.memory.footprint import kv_bytes_per_token, state_bytes_per_sequence

ROWS = tuple(csv.DictReader((Path(__file__).parent / "published.csv").read_text(encoding="utf-8").splitlines()))
REFUSED = [row for row in ROWS if row["why"].startswith("refused")]
MET = [row for row in ROWS if row not in REFUSED]


def named(rows):
    return [f"{row['table']}-{row['model']}" for row in rows]


@cache
def model(name):
    loaded = load_model(name)
    kept = loaded.kv_format if loaded.architecture.startswith("deepseek_v4") else "bf16"
    return msgspec.structs.replace(loaded, kv_format=kept)


@cache
def counts(name):
    return count_params(load_model(name))


def check(row, name, ours):
    """Hold our figure against the published one, where there is one."""
    if row[name]:
        apart, doubt = (float(row.get(f"{name}_{what}") or 0) for what in ("apart", "doubt"))
        assert ours - apart == pytest.approx(float(row[name]), rel=0, abs=doubt), row["why"]


@pytest.mark.parametrize("row", MET, ids=named(MET))
def test_parameters(row):
    count, loaded = counts(row["preset"]), model(row["preset"])
    check(row, "total", count.total)
    head = loaded.vocab * loaded.hidden
    actives = {"all": count.active, "one-table": count.active_one_table, "no-tables": count.active_one_table - head}
    check(row, "active", actives.get(row["scope"]))


@pytest.mark.parametrize("row", MET, ids=named(MET))
def test_caches_and_states(row):
    loaded = model(row["preset"])
    every, growing = kv_bytes_per_token(loaded), kv_bytes_per_token(loaded, windows=False)
    check(row, "kv", every)
    check(row, "kv_grows", growing)
    if row["window"]:
        assert (every - growing) * int(row["window"]) == pytest.approx(float(row["window_bytes"]), rel=2e-3)
    if row["state"]:
        found = state_bytes_per_sequence(loaded)
        assert found == pytest.approx(float(row["state"]), rel=float(row["state_doubt"]))


STORED = [row for row in MET if row["checkpoint"]]


@pytest.mark.parametrize("row", STORED, ids=named(STORED))
def test_checkpoints(row):
    found = counts(row["preset"]).checkpoint_bytes
    assert found == pytest.approx(float(row["checkpoint"]), rel=float(row["checkpoint_doubt"]), abs=0)


NAMED = [row for row in REFUSED if row["preset"]]


@pytest.mark.parametrize("row", NAMED, ids=named(NAMED))
def test_models_without_a_config_are_refused_with_the_reason(row):
    with pytest.raises(InferometerError, match="no preset: "):
        load_model(row["preset"])


def test_nothing_is_skipped_in_silence():
    assert [sum(row["table"] == table for row in ROWS) for table in ("configs", "operators")] == [130, 52]
    for row in ROWS:
        apart = any(row[name] for name in row if name.endswith("_apart"))
        assert row["why"] or not apart, row["model"]
        assert row["why"] or row["total"] or row["kv_grows"], row["model"]
