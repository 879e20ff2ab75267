"""Chips that an engine runs on, and settings that an engine or a model has nothing for."""

import pytest
from cli.command import inferometer, refused

from inferometer.catalog.engine_memory import load_engine_memory
from inferometer.catalog.loader import load_chips


@pytest.mark.parametrize(
    ("engine", "chip"),
    [
        *(("trtllm", chip) for chip in ("mi300x", "tpu-v7x", "m2-max")),
        *(("llama.cpp", "tpu-v6e"), ("sglang", "trainium2")),
    ],
)
@pytest.mark.parametrize("verb", ["memory", "explain", "search", "max-batch"])
def test_a_chip_that_an_engine_does_not_run_on_is_refused(verb, engine, chip):
    said = refused(verb, "llama-3.1-8b", chip, "--engine", engine)
    assert f"--engine {engine} does not run on {chip}" in said
    assert "it runs on NVIDIA" in said


@pytest.mark.parametrize(
    ("engine", "chip", "through"),
    [("vllm", "m2-max", "vllm-metal"), ("vllm", "tpu-v7x", "tpu-inference"), ("vllm", "gaudi3", "vllm-gaudi")],
)
def test_a_plug_in_is_said(engine, chip, through):
    words = ("llama-3.1-8b", chip, "--engine", engine, "--context", "4000", "-tp", "1")
    for verb in ("memory", "explain"):
        done = inferometer(verb, *words, "--json")
        notes = {note["name"]: note["text"] for note in done.rows[0]["diagnostics"]}
        assert through in notes["engine-plugged-in"]
    assert "engine-plugged-in" in inferometer("memory", *words).out


def test_makers_that_rules_name_are_in_the_catalogue():
    makers = {chip.vendor for chip in load_chips().values()} | {"CPU"}
    for rows in load_engine_memory().values():
        for rules in rows:
            assert set(rules.runs_on) <= makers
            begins = [name for name in rules.plugs_in if name not in makers]
            assert all(any(chip.startswith(name) for chip in load_chips()) for name in begins)


def test_an_engine_compared_over_chips_that_it_does_not_run_on():
    done = inferometer("compare", "qwen2.5-7b", "h100,mi300x", "--engine", "trtllm", "--context", "2000", "--json")
    rows = {entry["chip"]: entry for entry in done.rows[0]["rows"]}
    assert rows["h100-sxm"]["status"] in ("fits", "tight")
    assert rows["mi300x"]["status"] == "cannot-run"
    assert "does not run on mi300x" in rows["mi300x"]["reasons"][0]


@pytest.mark.parametrize(
    ("model", "choice", "lacks"),
    [
        ("llama-3.1-8b", "mla=absorbed", "latent attention"),
        ("llama-3.1-8b", "moe-dispatch=gather", "experts"),
        ("gpt-oss-20b", "join-shared=add-split", "shared experts"),
    ],
)
def test_a_choice_that_the_model_does_not_have_is_refused(model, choice, lacks):
    assert f"has no {lacks}" in refused("explain", model, "h100", "--choice", choice)


def test_eager_where_nothing_is_captured_is_said():
    def notes(*words):
        (row,) = inferometer("memory", "llama-3.1-8b", "h100", "--context", "2000", *words, "--json").rows
        return [note["name"] for note in row["diagnostics"]]

    assert notes("--enforce-eager") == notes("--enforce-eager", "--engine", "llama.cpp") == ["eager-for-nothing"]
    assert notes() == notes("--enforce-eager", "--engine", "vllm") == []


def test_kv_beyond_what_the_model_states_is_said():
    done = inferometer("kv", "llama-3.1-8b", "--context", "200000", "--json")
    (note,) = done.rows[0]["diagnostics"]
    assert note["name"] == "beyond-context"
    assert "200000" in note["text"]
    assert "131072" in note["text"]
    assert "beyond-context" in inferometer("kv", "llama-3.1-8b", "--context", "200000").out
    assert not inferometer("kv", "llama-3.1-8b", "--json").rows[0]["diagnostics"]


def test_names_of_models_never_wrap_in_a_pipe(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    names = [row["model"] for row in inferometer("models", "--json").rows]
    first = [line.split()[0] for line in inferometer("models").out.splitlines() if line.strip()]
    assert set(names) <= set(first)


@pytest.mark.parametrize("width", ["60", "80", "110"])
def test_a_verdict_is_always_shown(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    out = inferometer("compare", "qwen2.5-7b", "t4,rtx4090", "--context", "2048", "--backend", "roofline").out
    assert "verdict" in out.split("too narrow")[0]
    assert "does-not-fit" in out
    assert max(len(line) for line in out.splitlines()) <= int(width)


@pytest.mark.parametrize("flag", [("--expert-skew", "0.7"), ("--distinct-prompts", "1"), ("--redundant-experts", "8")])
def test_routing_of_a_model_without_experts_is_refused(flag):
    said = refused("search", "llama-3.1-8b", "h100", *flag)
    assert said.strip() == f"inferometer: {flag[0]}: meta-llama-3.1-8b has no experts; leave it out"


def test_more_chips_hold_the_batch_that_was_asked_for():
    """70e9 fp8 weights and 50 sequences: two H100 hold one, four hold all."""
    words = ("llama-3.1-70b", "h100", "--engine", "vllm", "--batch", "50", "--quant", "fp8")
    done = inferometer("search", *words[:2], "1x1", *words[2:])
    assert done.status == 1
    assert "4 chips would hold it: 4x1" in done.err
    assert inferometer("search", *words[:2], "4x1", *words[2:]).status == 0
    assert inferometer("search", *words[:2], "2x1", *words[2:]).status == 1
