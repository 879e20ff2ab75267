"""Laws of memory plans, over models, engines and shardings."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from memory.questions import GIB, asked
from strategies import models

from inferometer.blocks.kinds import is_moe
from inferometer.blocks.model import unit_count
from inferometer.catalog.engine_memory import load_engine_memory
from inferometer.estimate.candidates import make_shardings
from inferometer.memory.asked import columns_of
from inferometer.memory.footprint import footprint
from inferometer.memory.plan import Divider, Sharding, plan
from inferometer.memory.solve import max_batch, max_context, with_context
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention
from inferometer.specs.model import Layer, ModelSpec

RULES = [row for rows in load_engine_memory().values() for row in rows]
SMALL = 1e-6


@st.composite
def questions(draw):
    """A made-up model under an engine's rules, memory scaled to it."""
    spec = draw(models())
    sizes = {"pp": draw(st.integers(1, min(3, unit_count(spec)))), "tp": draw(st.sampled_from((1, 2, 4)))}
    if is_moe(spec):
        sizes |= {"dpa": draw(st.sampled_from((1, 2)))}
    else:
        sizes |= {"r": draw(st.sampled_from((1, 2)))}
    rules = msgspec.structs.replace(
        draw(st.sampled_from(RULES)),
        runtime_bytes=1e6,
        collective_bytes=1e6,
        context_bytes=1e6,
        graph_bytes_per_layer=1e5,
    )
    length = draw(st.integers(1, 20_000))
    return asked(
        spec,
        rules=rules,
        gib=draw(st.sampled_from((0.25, 1.0, 4.0))),
        sizes=sizes,
        context=draw(st.integers(1, length)),
        max_model_len=length,
        batch=draw(st.integers(1, 50)),
        max_num_batched_tokens=draw(st.one_of(st.none(), st.integers(64, 4096))),
        max_num_seqs=draw(st.one_of(st.none(), st.integers(1, 64))),
        share=draw(st.one_of(st.none(), st.floats(0.3, 1.0))),
        eager=draw(st.booleans()),
        cached_prefixes=draw(st.booleans()),
    )


@given(questions())
def test_the_lines_sum_to_the_visible_bytes(question):
    found = plan(question)
    assert sum(line.bytes for line in found.lines) == pytest.approx(question.visible_bytes, rel=1e-9)


@given(questions(), st.integers(1, 100), st.integers(0, 5000))
def test_what_fits_also_fits_with_less(question, fewer, shorter):
    """Fewer sequences, shorter ones, and an engine started for shorter ones."""
    assume(plan(question).fits)
    less = replace(question, batch=max(question.batch - fewer, 1), context=max(question.context - shorter, 1))
    assert plan(less).fits
    length = max(less.max_model_len - shorter, less.context)
    assert plan(replace(less, max_model_len=length)).fits


@given(questions(), st.floats(0.3, 1.0), st.floats(0.3, 1.0))
def test_a_larger_share_leaves_more_room(question, low, high):
    low, high = sorted((low, high))
    rooms = [plan(replace(question, share=share)) for share in (low, high)]
    assert rooms[0].tightest.room_bytes <= rooms[1].tightest.room_bytes + SMALL
    assert rooms[0].concurrency <= rooms[1].concurrency * (1 + SMALL)


@given(questions(), st.booleans())
def test_the_most_sequences_fit_and_one_round_more_does_not(question, capped):
    if not capped:
        question = replace(question, max_num_seqs=None)
    most = max_batch(question)
    assert most % question.ranks == 0
    assert most == 0 or plan(replace(question, batch=most)).fits
    assert not plan(replace(question, batch=most + 1)).fits


@given(questions(), st.booleans())
def test_the_longest_sequence_fits_and_one_token_more_does_not(question, serve):
    def fits(length):
        return plan(replace(question, context=length, max_model_len=length if serve else question.max_model_len)).fits

    most = max_context(question, serve=serve)
    limit = question.model.max_context if serve else min(question.max_model_len, question.model.max_context)
    assert most == 0 or fits(most)
    assert most == limit or not fits(most + 1)


@given(questions())
def test_what_does_not_fit_lacks_bytes_and_says_why(question):
    found = plan(question)
    named = [reason.partition(":")[0] for reason in found.reasons]
    bytes_lack = {"weights-do-not-fit", "no-room-for-kv", "batch-does-not-fit", "reserve-too-small"} & set(named)
    assert (found.deficit_bytes > 0) == bool(bytes_lack)


@settings(max_examples=60)
@given(questions())
def test_with_what_it_lacks_it_fits(question):
    """The deficit is what is missing: with as much more for caches, and what lies outside the share, it fits.

    The engine is started alike: on a larger chip it would take larger passes where nobody says.
    """
    small = question.visible_bytes / 256
    question = replace(question, share=None, visible_bytes=small, reserve_bytes=0.1 * small, batch=question.batch * 100)
    usual = question.defaults
    question = replace(
        question,
        max_num_seqs=max(usual.max_num_seqs or 0, question.sequences),
        max_num_batched_tokens=question.max_num_batched_tokens or usual.max_num_batched_tokens,
    )
    found = plan(question)
    assume(not found.fits and found.deficit_bytes > 0)
    more = replace(question, visible_bytes=question.visible_bytes + found.deficit_bytes * (1 + SMALL) + 1)
    again = plan(replace(more, reserve_bytes=question.reserve_bytes))
    assert not [r for r in again.reasons if not r.startswith(("beyond", "max-num"))]


@given(questions())
def test_concurrency_of_one_or_more_is_what_the_engine_starts_with(question):
    """A vLLM that holds fewer than one sequence of full length refuses to start."""
    found = plan(replace(question, batch=1, context=1))
    if found.fits and question.rules.caches == "grouped":
        assert found.concurrency >= 1


@settings(max_examples=60)
@given(questions(), st.integers(1, 20_000))
def test_ideal_holds_what_a_search_holds(question, length):
    """`memory` on `ideal` and the footprint of a search are one arithmetic."""
    ideal = load_engine_memory()["ideal"][0]
    question = replace(question, rules=ideal, context=length, max_model_len=length, share=None, max_num_seqs=None)
    columns = columns_of(question)
    made = make_shardings(question.model, columns, "vllm")
    room = 0.9 * question.visible_bytes
    held = footprint(question.model, columns, made.multiplicities, length=length, room_bytes=room)
    weights = max(sum(stage.weights_bytes.values()) for stage in plan(question).stages)
    assert weights == pytest.approx(float(held.weights_bytes.max()), rel=1e-12)
    tokens = np.floor(0.1 * question.visible_bytes / held.activation_bytes_per_token)
    most = min(float(held.sequences()[0]), float(tokens[0]) * (1 if question.sizes.pp == 1 else 1 << 40))
    if question.sizes.pp == 1:
        assert max_batch(replace(question, max_num_batched_tokens=None)) == max(most, 0) * question.ranks


def test_engines_divide_a_chip_by_their_own_rules():
    pools = {}
    for name in ("vllm@0.24", "sglang", "trtllm", "ideal", "llama.cpp"):
        found = plan(asked("meta-llama-3.1-8b", name, gib=79.6, context=8192))
        pools[name] = found.tightest.room_bytes / GIB
        assert found.fits
    # SGLang: (1 - 10 GiB / 79.65) x (visible - context) - weights; TensorRT-LLM: 0.9 x all that is left.
    assert pools["sglang"] < pools["vllm@0.24"] < pools["llama.cpp"]
    assert len(set(pools.values())) == len(pools)


@given(questions(), st.integers(1, 20_000), st.integers(1, 64))
def test_a_divider_of_another_length_is_as_one_made_for_it(question, length, batch):
    shardings = (Sharding(question.sizes, question.splits),)
    made = Divider(with_context(question, length, serve=True), shardings).plan(0, batch)
    found = Divider(question, shardings).at_length(length).plan(0, batch)
    assert (found.lines, found.fits, found.holds) == (made.lines, made.fits, made.holds)


def test_tensorrt_llm_makes_logits_of_the_prompts_that_fill_a_pass():
    """8,192 tokens are one prompt of a model that takes as many, 2,048 sequences at once or not; two of 4,096."""
    question = asked("meta-llama-3.1-8b", "trtllm", gib=79.6, context=8192)
    short = replace(question, model=msgspec.structs.replace(question.model, max_context=4096))
    assert (question.logit_rows, short.logit_rows) == (1, 2)
    assert asked("meta-llama-3.1-8b", "vllm@0.24", gib=79.6, context=8192).logit_rows > 1


@given(questions(), st.integers(0, 12), st.floats(0, 1e9))
def test_what_the_host_keeps_leaves_more_room(question, layers, kept):
    question = replace(
        question, sizes=msgspec.structs.replace(question.sizes, pp=1), splits=(len(question.model.layers),)
    )
    whole = plan(question)
    fewer, more = (plan(replace(question, gpu_layers=n)) for n in (layers, layers + 1))
    assert fewer.tightest.room_bytes >= more.tightest.room_bytes >= whole.tightest.room_bytes - SMALL
    assert not more.fits or fewer.fits
    assert plan(replace(question, offload_bytes=kept)).tightest.room_bytes >= whole.tightest.room_bytes - SMALL
    everything = plan(replace(question, gpu_layers=len(question.model.layers) + 1))
    assert everything.tightest.room_bytes == whole.tightest.room_bytes


def test_adapters_are_two_thin_matrices_a_linear_layer():
    """R (rows + columns) x 2 B x N: Llama-3.1-8B of 32 layers, H 4096, 8 kv heads of 128, F 14336."""
    question = asked("meta-llama-3.1-8b", adapters=3, adapter_rank=16)
    attention = 2 * (4096 + 4096) + 2 * (4096 + 1024)
    ffn = 3 * (4096 + 14_336)
    assert plan(question).tightest.weights_bytes["LoRA adapters"] == 3 * 32 * 16 * 2 * (attention + ffn)


@st.composite
def hybrids(draw):
    """Layers of full and windowed attention with equal heads, and a vLLM."""
    full = Attention(heads=8, kv_heads=draw(st.sampled_from((2, 4))), head_dim=64)
    local = msgspec.structs.replace(full, window=draw(st.integers(1, 600)))
    kinds = [0, 1, *draw(st.lists(st.integers(0, 1), max_size=8))]
    spec = ModelSpec(
        name="made-up",
        architecture="made-up",
        hidden=256,
        vocab=512,
        max_context=1 << 17,
        mixers=(full, local),
        ffns=(Ffn(width=256),),
        layers=tuple(Layer(mixer=kind, ffn=0) for kind in kinds),
        tied=True,
        dtype="bf16",
        source="made up by the tests",
    )
    engine = draw(st.sampled_from(("vllm@0.11", "vllm@0.24", "vllm@0.26")))
    return asked(spec, engine, context=draw(st.integers(1, 3000)), max_num_batched_tokens=draw(st.integers(1, 500)))


@given(hybrids())
def test_blocks_hold_every_token_that_a_sequence_keeps(question):
    """Counted token by token: each layer's kept tokens lie in blocks that start anywhere a window may start."""
    pools = plan(question).tightest.pools
    length, ahead = question.context, question.rules.in_flight_passes * question.pass_tokens
    layers = [question.model.mixers[layer.mixer] for layer in question.model.layers]
    kept, counts = {}, {}
    for mixer in layers:
        tokens = length if mixer.window is None else min(mixer.window - 1 + ahead, length)
        starts = [0] if tokens == length else range(16)
        kept[mixer.window] = max(len({(start + token) // 16 for token in range(tokens)}) for start in starts)
        counts[mixer.window] = counts.get(mixer.window, 0) + 1
    least, most = min(counts.values()), max(counts.values())
    size = most if most < least * question.rules.group_ratio else least
    groups = {window: -(-n // size) for window, n in counts.items()}
    exact = sum(groups[window] * kept[window] for window in groups)
    assert exact <= pools.blocks(length) <= exact + groups.get(layers[1].window, 0)
    assert pools.groups == sum(groups.values())
    assert pools.unit_bytes == size * 16 * 2 * layers[0].kv_heads * 64 * 2
