"""Tiers of the prefix cache: by hand for models that are known, and laws over models and engines."""

from dataclasses import replace

import msgspec
import pytest
from cli.command import inferometer, refused
from cli.test_rows import check, schema
from hypothesis import given, settings
from hypothesis import strategies as st
from memory.questions import GIB, asked
from memory.test_plan_laws import questions

from inferometer.api.memory import memory
from inferometer.catalog.engine_memory import load_engine_memory
from inferometer.errors import InferometerError
from inferometer.memory.plan import plan
from inferometer.memory.tiers import tiers_of
from inferometer.report.schema import MEMORY, TIER

CONTEXT = 16_000


def tier(name, where, engine, sizes, *, host=None, disk=None):
    """Return the one tier asked for, on H200s."""
    chips = f"h200 {sizes.get('tp', 1) * sizes.get('pp', 1) * sizes.get('dpa', 1)}x1"
    found = memory(name, chips, sizes, engine=engine, kv_cpu_gb=host, kv_disk_gb=disk, context=CONTEXT).tiers
    return next(one for one in found if one.rule.where == where)


def test_gqa_over_eight_ranks_of_vllm():
    """Llama 3.1 8B: 32 layers, 8 kv heads of 128, K and V in bf16; the flag is of all ranks together."""
    token = 2 * 32 * 8 * 128 * 2
    found = tier("llama-3.1-8b", "host", "vllm@0.24", {"tp": 8}, host=64)
    assert found.flag == "--kv-offloading-size 512"
    assert found.tokens == 512 * 2**30 // (16 * token) * 16
    assert found.prefixes == 512 * 2**30 // (16 * token) // (CONTEXT // 16)
    assert found.prefix_bytes == CONTEXT * token
    assert found.restore_bytes == CONTEXT * token / 8


@pytest.mark.parametrize(
    ("engine", "copies", "rounded"), [("vllm@0.24", 8, 1), ("vllm@0.27", 1, 4096), ("sglang", 8, 1), ("trtllm", 8, 1)]
)
def test_latents_are_kept_as_often_as_the_engine_does(engine, copies, rounded):
    """DeepSeek-V3: 61 layers of 512 + 64 in bf16, a copy on each of 8 ranks; blocks of 64, 1 and 32 tokens."""
    token = 61 * (512 + 64) * 2
    found = tier("deepseek-v3", "host", engine, {"tp": 8}, host=100)
    size = {"sglang": 107 * 10**9}.get(engine, 100 * 2**30)
    block = {"sglang": 1, "trtllm": 32}.get(engine, 64)
    taken = -(-block * token * copies // rounded) * rounded
    assert found.copies == copies
    assert found.chip_bytes == size
    assert found.tokens == 8 * size // taken * block
    assert found.restore_bytes == CONTEXT // block * block * token


def test_lmcache_keeps_latents_on_the_first_rank_and_chunks_of_256_tokens():
    token = 61 * (512 + 64) * 2
    found = tier("deepseek-v3", "disk", "vllm@0.24", {"tp": 8}, disk=1000)
    assert (found.flag, found.block_tokens, found.copies) == ("LMCache max_local_disk_size: 1000", 256, 1)
    assert found.rank_bytes == found.chip_bytes == 1000 * GIB
    assert found.tokens == 1000 * 2**30 // (256 * token) * 256
    both = memory("deepseek-v3", "h200 8x1", {"tp": 8}, engine="vllm@0.24", kv_cpu_gb=8, kv_disk_gb=8, context=CONTEXT)
    assert [one.rule.through for one in both.tiers] == ["LMCache", "LMCache"]


def test_windows_of_gemma_are_kept_whole_and_brought_back_in_part():
    """Gemma 3 27B: 62 layers, every sixth full (10), the others windows of 1024: groups of 10, so 1 and 6 of them.

    16 kv heads of 128 over 2 ranks. A chunk keeps a block of each group; back come ceil(1024 / 16) blocks of windows.
    """
    layer_block, size = 16 * 2 * 8 * 128 * 2, 2 * 64 * 2**30
    found = tier("gemma-3-27b-it", "host", "vllm@0.24", {"tp": 2}, host=64)
    blocks = size // (2 * 10 * layer_block)
    assert found.tokens == blocks // 7 * 16
    assert found.prefixes == blocks // (7 * 1000)
    assert found.restore_bytes == 10 * layer_block * (1000 + 6 * 64)
    late = tier("gemma-3-27b-it", "host", "vllm@0.29", {"tp": 2}, host=64)
    assert late.prefixes == blocks // (1000 + 6 * 64)
    assert late.restore_bytes == found.restore_bytes


def test_a_hybrid_keeps_a_state_a_block_under_vllm_and_one_a_prefix_under_sglang():
    """Qwen3-Next 80B: 12 full layers of 2 kv heads of 256, 36 states; groups of 12, 1 and 3 of them, pages equal.

    A block of 528 tokens holds a state of a layer (measured against the block that the engine prints).
    """
    found = tier("qwen3-next-80b-a3b", "host", "vllm@0.24", {"tp": 4}, host=64)
    token = 12 * 2 * 1 * 256 * 2
    assert found.block_tokens == 528
    block = 528 * token
    assert found.tokens == 4 * 64 * 2**30 // (4 * block) // 4 * 528
    assert found.prefix_tokens == 30 * 528
    assert found.restore_bytes == (30 + 3) * block
    whole = tier("qwen3-next-80b-a3b", "host", "sglang", {"tp": 4}, host=64)
    states = 36 * (32 / 4 * 128 * 128 * 4 + 3 * (16 / 4 * 128 * 2 + 32 / 4 * 128) * 2)
    assert whole.restore_bytes == CONTEXT * token + states
    assert whole.tokens == pytest.approx(68e9 / 1.9 // token, abs=1)


def test_ranks_of_data_parallel_attention_have_tiers_of_their_own():
    one = tier("deepseek-v3", "host", "vllm@0.24", {"dpa": 8}, host=64)
    assert one.flag == "--kv-offloading-size 64"
    assert one.tokens == 64 * 2**30 // (64 * 61 * 576 * 2) * 64


def test_stages_share_the_pool_by_the_widest():
    found = tier("llama-3.1-8b", "host", "vllm@0.24", {"tp": 2, "pp": 2}, host=10)
    assert found.tokens == 40 * 2**30 // (4 * 16 * 2 * 16 * 4 * 128 * 2) * 16
    assert found.prefix_bytes == CONTEXT * 2 * 32 * 8 * 128 * 2


RULED = [(row, one) for rows in load_engine_memory().values() for row in rows for one in row.tiers]


@st.composite
def tiered(draw):
    """A made-up question under an engine with tiers, and one of its tiers alone that keeps such a model."""
    found = draw(questions())
    alike = all(stage.pools.alike for stage in plan(replace(found, rules=RULED[0][0])).stages)
    rules, one = draw(st.sampled_from([(row, one) for row, one in RULED if alike or not one.alike]))
    own = msgspec.structs.replace(rules, tiers=(one,))
    return replace(found, rules=own, host_tier_bytes=0.0, disk_tier_bytes=0.0), one


def held(question, one, size):
    field = {"host": "host_tier_bytes", "disk": "disk_tier_bytes"}[one.where]
    (found,) = tiers_of(plan(replace(question, **{field: size})))
    return found


@settings(max_examples=40, deadline=None)
@given(tiered(), st.floats(1, 64 * GIB), st.floats(1, 64 * GIB))
def test_a_larger_tier_holds_no_less(question, a, b):
    less, more = sorted((a, b))
    small, large = held(*question, less), held(*question, more)
    assert small.tokens <= large.tokens
    assert small.prefixes <= large.prefixes
    assert small.restore_bytes == large.restore_bytes


@settings(max_examples=40, deadline=None)
@given(tiered(), st.floats(1, 64 * GIB))
def test_what_is_held_fits_in_its_bytes(question, size):
    """The longest prefix, and all prefixes together, of every stage; a longer prefix or one more does not fit."""
    asked_of, one = question
    found = held(asked_of, one, size)
    assert found.chip_bytes <= size
    pools = [stage.pools for stage in plan(asked_of).stages]
    world = asked_of.sizes.tp * asked_of.sizes.pp
    single = one.one_copy and world == asked_of.sizes.tp and asked_of.sizes.dcp == 1 and all(p.latent for p in pools)
    room = size * world if one.shared and single else size
    for pool in pools:
        if found.tokens < float("inf"):
            assert sum(pool.prefix_bytes(int(found.tokens), one.every)) <= room * (1 + 1e-12)
        if found.prefixes < float("inf"):
            assert found.prefixes * sum(pool.prefix_bytes(found.prefix_tokens, one.every)) <= room * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(tiered(), st.floats(1, 64 * GIB))
def test_a_prefix_brought_back_is_at_most_what_is_kept_of_it(question, size):
    asked_of, one = question
    found = held(asked_of, one, size)
    kept = max(sum(s.pools.prefix_bytes(found.prefix_tokens, True)) for s in plan(asked_of).stages)
    assert found.restore_bytes <= kept
    assert found.prefix_tokens <= asked_of.context


def test_the_row_the_page_and_the_note():
    words = ("memory", "llama-3.1-8b", "h100", "--engine", "vllm@0.24", "--context", "16000", "--kv-cpu-gb", "10")
    (row,) = inferometer(*words, "--json").rows
    check(row, schema("memory"))
    assert list(row) == [field.name for field in MEMORY]
    (found,) = row["tiers"]
    assert list(found) == [field.name for field in TIER]
    assert found["break_even_bytes_per_s"] == found["restore_bytes_per_chip"] / found["recompute_s"]
    assert "tier-below-pool" in {note["name"] for note in row["diagnostics"]}
    page = " ".join(inferometer(*words).out.split())
    assert "prefixes in host memory: 10.00 GiB a chip (--kv-offloading-size 10)" in page
    assert f"{found['kv_tokens']:,.0f} tokens a rank, {found['prefixes']:,.0f} prefixes of 16,000 tokens" in page
    (plain,) = inferometer(*words[:-2], "--json").rows
    assert plain["tiers"] == []
    assert plain["lines"] == row["lines"]


def test_engines_and_models_without_a_tier_are_refused():
    words = ("memory", "llama-3.1-8b", "h100", "--context", "2000", "--kv-cpu-gb", "10")
    assert "keeps no prefixes there; these do: sglang@0.5, trtllm@1.0, vllm@0.12 on" in refused(*words)
    assert "trtllm@1.0 keeps no prefixes" in refused(*words[:-2], "--engine", "trtllm@1.0", "--kv-disk-gb", "1")
    said = refused("memory", "gemma-3-27b-it", "h200", "--engine", "vllm@0.24", "--kv-disk-gb", "1")
    assert "LMCache keeps prefixes of one kind of cache" in said
    assert "must be from 0 to" in refused(*words[:-1], "nan")
    assert "counts in steps of 0.9313 GiB" in refused(*words[:-1], "0.5", "--engine", "sglang")
    with pytest.raises(InferometerError, match="keeps prefixes of one kind"):
        memory("qwen3-next-80b-a3b", "h200 4x1", engine="vllm@0.19", kv_cpu_gb=1, context=1000)


def test_a_tier_of_prefixes_keeps_the_copies_of_states_that_prefix_caching_does():
    words = {"engine": "vllm@0.24", "context": 4000}
    tiered_one = memory("qwen3-next-80b-a3b", "h200 4x1", **words, kv_cpu_gb=1)
    assert (
        tiered_one.plan.lines
        == memory("qwen3-next-80b-a3b", "h200 4x1", **words, enable_prefix_caching=True).plan.lines
    )
    assert "prefix caching" in tiered_one.assumed


def test_a_prefix_of_windows_alone_has_no_end():
    spec = asked("gemma-3-27b-it", "trtllm").model
    local = next(m for m, block in enumerate(spec.mixers) if block.window)
    layers = tuple(msgspec.structs.replace(layer, mixer=0) for layer in spec.layers if layer.mixer == local)
    only = msgspec.structs.replace(spec, mixers=(spec.mixers[local],), layers=layers)
    question = asked(only, "trtllm", context=5000, host_tier_bytes=10 * GIB)
    (found,) = tiers_of(plan(question))
    assert found.tokens == float("inf")
    assert found.prefixes < float("inf")
