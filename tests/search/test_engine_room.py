"""Under an engine, search and explain admit exactly the batches that `memory` and `max-batch` admit."""

import numpy as np
import pytest
from cli.command import inferometer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import models

from inferometer.api import estimate, search
from inferometer.api.load import load_machine, load_model
from inferometer.api.memory import max_batch, memory
from inferometer.api.memory_ask import ask, broken
from inferometer.api.settings import settle
from inferometer.errors import InferometerError
from inferometer.estimate.estimate import find_candidates
from inferometer.memory.plan import plan
from inferometer.specs.deployment import ROLES

ISL, OSL = 3000, 500
LENGTH = ISL + OSL
WORK = {"isl": ISL, "osl": OSL, "backend": "roofline"}

MODELS = ("llama-3.1-8b", "deepseek-v2-lite", "qwen3-next-80b-a3b", "gpt-oss-20b", "gemma-3-27b-it")
"""Dense GQA, latent attention with experts, recurrent states beside attention, windows, windows and a tower."""

ENGINES = ("vllm@0.24", "sglang", "trtllm", "llama.cpp")


def rounds(model, where, sizes, engine):
    """Most sequences a rank by brute force: the question of `memory` asked batch by batch, in both directions."""
    question = ask(model, where, sizes, {"engine": engine, "context": LENGTH})
    if broken(question):
        return None
    return max_batch(model, where, sizes, engine=engine, context=LENGTH).value // question.asked.ranks


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_every_sharding_of_a_search_has_the_room_that_max_batch_says(name, engine):
    """All shardings of four chips, one by one: what the search took over columns is what each question says alone."""
    model, where = load_model(name), load_machine("h200", "4x1")
    problem = settle({**WORK, "engine": engine}).problem(_served(name, engine), where)
    space, rules = find_candidates(problem)
    legal = ~np.logical_or.reduce([rule.broken for rule in rules])
    assert legal.any()
    roles = [role for role in ROLES if role not in ("ep", "etp") or space.shardings.sizes["ep"].max() > 1]
    for index in np.flatnonzero(legal):
        sizes = {role: int(space.shardings.sizes[role][index]) for role in roles}
        assert space.most[index] == (rounds(model, where, sizes, engine) or 0), sizes
    assert (space.most[~legal] == -1).all()


def _served(name, engine):
    """Return a model in the format of the engine's cache."""
    return load_model(name) if engine != "llama.cpp" else ask(name, "h200 1x1", {}, {"engine": engine}).asked.model


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "sizes"), [*((name, "TP=4") for name in MODELS), ("llama-3.1-8b", "R=2,PP=2")])
def test_explain_takes_the_most_and_refuses_one_more_in_the_same_words(name, sizes, engine):
    """The next batch that gives some rank one more sequence is refused, with the reasons and the deficit of memory."""
    priced = estimate(name, "h200 4x1", sizes, engine=engine, **WORK).estimate
    if any(reason.partition(":")[0].endswith("divisible") for reason in priced.reasons):
        pytest.skip("the engine refuses the sharding")
    given_sizes = {role: getattr(priced.sizes, role) for role in ("r", "pp", "tp")}
    most = max_batch(name, "h200 4x1", given_sizes, engine=engine, context=LENGTH).value
    assert priced.feasible
    assert priced.batch == most
    more = estimate(name, "h200 4x1", sizes, engine=engine, batch=most + 1, **WORK).estimate
    said = memory(name, "h200 4x1", given_sizes, engine=engine, context=LENGTH, batch=most + 1)
    assert more.reasons == said.reasons
    assert more.reasons
    assert more.memory.deficit_bytes == said.plan.deficit_bytes > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_lines_are_those_of_memory(engine):
    """The lines, and what they sum to; what is neither weights nor caches nor free is the reserve."""
    got = estimate("llama-3.1-8b", "h100 2x1", "TP=2", engine=engine, batch=7, **WORK).estimate.memory
    said = memory("llama-3.1-8b", "h100 2x1", {"tp": 2}, engine=engine, batch=7, context=LENGTH).plan
    assert got.lines == said.lines
    assert sum(line.bytes for line in got.lines) == pytest.approx(got.visible_bytes, rel=1e-12)
    free = next(line.bytes for line in got.lines if line.name == "free")
    assert got.free_bytes == pytest.approx(free, rel=1e-9)


@given(model=models(), tp=st.sampled_from((1, 2)), engine=st.sampled_from(("vllm@0.24", "sglang", "trtllm")))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_models_that_nobody_wrote_down_have_one_room_too(model, tp, engine):
    """Whatever the mixers: estimate's most is memory's, and one more sequence does not fit by memory's own plan."""
    try:
        priced = estimate(model, "h100 2x1", {"tp": tp, "r": 2 // tp}, engine=engine, **WORK).estimate
    except InferometerError:
        return
    question = ask(model, "h100 2x1", {"tp": tp, "r": 2 // tp}, {"engine": engine, "context": LENGTH})
    if broken(question):
        return
    most = max_batch(model, "h100 2x1", {"tp": tp, "r": 2 // tp}, engine=engine, context=LENGTH).value
    assert priced.memory.fits_sequences == most // question.asked.ranks
    if 0 < most < 1 << 24:
        assert priced.batch == most
        assert plan(question.asked).fits


def test_search_finds_nothing_that_the_engine_refuses():
    """Every row of a search, asked again of memory: it fits, and breaks no rule."""
    for name, where in (
        ("gpt-oss-20b", "h100 4x1"),
        ("qwen3-next-80b-a3b", "h200 4x1"),
        ("gemma-3-27b-it", "l40s 8x1"),
    ):
        for engine in ("vllm@0.24", "sglang"):
            found = search(name, where, engine=engine, top=40, **WORK).answers
            assert found
            for one in found:
                sizes = {role: getattr(one.estimate.sizes, role) for role in ROLES}
                sizes = (
                    sizes
                    if one.estimate.sizes.ep * one.estimate.sizes.etp > 1
                    else {role: size for role, size in sizes.items() if role not in ("ep", "etp")}
                )
                asked = {"engine": engine, "context": LENGTH, "batch": one.estimate.batch}
                assert memory(name, where, sizes, **asked).fits, (name, engine, sizes)


def test_a_search_of_one_batch_keeps_to_the_room():
    """8B at TP=1 holds `most` sequences a rank; a batch of one more than all replicas hold finds fewer shardings."""
    most = max_batch("llama-3.1-8b", "h100 2x1", {"r": 2, "tp": 1}, engine="vllm@0.24", context=LENGTH).value
    for batch, there in ((most, True), (most + 1, False)):
        found = search("llama-3.1-8b", "h100 2x1", engine="vllm@0.24", batch=batch, **WORK).answers
        assert any(one.estimate.sizes.r == 2 for one in found) == there


def test_what_does_not_fit_says_what_lacks_and_what_would_fit():
    words = ("llama-3.1-8b", "h100", "1x1", "--engine", "vllm@0.24", "--context", "16000", "--batch-size", "40")
    said, done = inferometer("memory", *words), inferometer("explain", *words)
    assert said.status == done.status == 1
    lacks = [line for line in said.out.splitlines() if line.startswith(("a chip lacks", "would fit"))]
    assert len(lacks) > 2
    assert set(lacks) <= set(done.err.splitlines())
    assert "a chip lacks" in inferometer("cost", *words).err
    ranked = inferometer("search", "llama-3.1-70b", "h100", "1x1", "--engine", "vllm@0.24")
    assert ranked.status == 1
    assert "weights-do-not-fit" in ranked.err
    assert "a chip lacks" in ranked.err
    assert "chips would hold it" in ranked.err


def test_the_ideal_engine_keeps_the_simple_footprint():
    got = estimate("llama-3.1-8b", "h100 1x1", **WORK).estimate.memory
    assert got.lines == ()
    assert got.reserve_bytes == pytest.approx(0.1 * got.visible_bytes)


def test_an_engine_of_an_unknown_version_is_not_priced():
    """Memory's rules are known by first version; the plans that a version runs are not."""
    with pytest.raises(InferometerError, match=r"vllm@0\.24"):
        estimate("llama-3.1-8b", "h100 1x1", engine="vllm@9")
    assert memory("llama-3.1-8b", "h100 1x1", engine="vllm@9", context=LENGTH).engine == "vllm@9"


ASKED = (
    {"max_num_seqs": 3},
    {"max_num_batched_tokens": 16384},
    {"max_model_len": 20_000},
    {"enforce_eager": True},
    {"enable_prefix_caching": True},
    {"cpu_offload_gb": 5.0},
    {"lora_adapters": 8, "lora_rank": 64},
    {"max_num_seqs": 64, "max_num_batched_tokens": 4096, "cpu_offload_gb": 2.5, "enforce_eager": True},
)
"""Settings of an allocator that change what fits, alone and together."""


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("engine", ["vllm@0.24", "sglang", "trtllm"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-next-80b-a3b"])
def test_explain_and_search_admit_what_max_batch_admits_with_the_same_flags(name, engine, asked):
    sizes = {"tp": 4}
    most = max_batch(name, "h200 4x1", sizes, engine=engine, context=LENGTH, **asked).value
    priced = estimate(name, "h200 4x1", "TP=4", engine=engine, **WORK, **asked).estimate
    assert priced.batch == most > 0
    assert (
        priced.memory.lines
        == memory(name, "h200 4x1", sizes, engine=engine, context=LENGTH, batch=most, **asked).plan.lines
    )
    more = estimate(name, "h200 4x1", "TP=4", engine=engine, batch=most + 1, **WORK, **asked).estimate
    assert (
        more.reasons == memory(name, "h200 4x1", sizes, engine=engine, context=LENGTH, batch=most + 1, **asked).reasons
    )
    assert more.reasons
    found = search(name, "h200 4x1", sizes=sizes, engine=engine, by="tok_per_s", top=1, **WORK, **asked)
    best = found.answers[0].estimate
    own = {role: getattr(best.sizes, role) for role in ROLES if role not in ("ep", "etp") or best.sizes.ep > 1}
    assert best.memory.fits_sequences == max_batch(name, "h200 4x1", own, engine=engine, context=LENGTH, **asked).value


@pytest.mark.parametrize("asked", ASKED)
def test_without_an_engine_they_would_change_nothing_and_are_refused(asked):
    with pytest.raises(InferometerError, match="would change nothing without an engine"):
        estimate("llama-3.1-8b", "h100", **asked)
    flag = "--" + next(iter(asked)).replace("_", "-")
    with pytest.raises(InferometerError, match=flag):
        search("llama-3.1-8b", "h100", engine="ideal", **asked)


def test_the_command_of_a_row_keeps_them_and_the_server_is_started_with_them():
    words = ("llama-3.1-8b", "h100", "--isl", "2000", "--osl", "200", "--engine", "vllm@0.24")
    flags = (
        "--max-num-seqs",
        "12",
        "--max-num-batched-tokens",
        "4096",
        "--cpu-offload-gb",
        "3.0",
        "--lora-adapters",
        "4",
    )
    flags = (*flags, "--lora-rank", "16", "--enforce-eager")
    found = inferometer("search", *words, *flags)
    command = next(line for line in found.out.splitlines() if "inferometer explain" in line)
    for word in flags:
        assert word in command
    row = inferometer("explain", *words, *flags, "--json").rows[0]
    assert row["batch"] == 12
    assert "not-in-time" in {note["name"] for note in row["diagnostics"]}
    started = next(one["command"] for one in row["flags"] if one["engine"] == "vllm")
    for flag in ("--max-num-seqs 12", "--max-num-batched-tokens 4096", "--cpu-offload-gb 3", "--enforce-eager"):
        assert flag in started
    assert "--enable-lora --max-loras 4 --max-lora-rank 16" in started


def test_what_would_fit_is_asked_with_the_same_flags():
    words = ("llama-3.1-70b", "h100", "-tp", "1", "--isl", "2000", "--osl", "200", "--engine", "vllm@0.24")
    done = inferometer("explain", *words, "--batch-size", "1", "--max-num-batched-tokens", "2048")
    memory_words = ("llama-3.1-70b", "h100", "-tp", "1", "--context", "2200", "--engine", "vllm@0.24")
    said = inferometer("memory", *memory_words, "--batch-size", "1", "--max-num-batched-tokens", "2048")
    wanted = [line for line in said.out.splitlines() if line.startswith("would fit")]
    assert wanted
    assert [line for line in done.err.splitlines() if line.startswith("would fit")] == wanted
