"""Extend and verify of every kind of block, against loops over tokens: what is picked, compressed, scanned, shown."""

import numpy as np
import pytest
from blocks.made_up import axis, extend, lone_pass, machine, model, prefill, verify
from hypothesis import given
from hypothesis import strategies as st

from inferometer.blocks.causal import simpson
from inferometer.blocks.reads import chosen, entries_seen, limit
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, Sizes, Workload
from inferometer.specs.feedforward import Ffn
from inferometer.specs.indexer import Indexer
from inferometer.specs.mixers import Attention, Compressed, CrossAttention, Mla
from inferometer.specs.model import LayerInputs
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv

FFN = Ffn(width=512)
B, NEW, PREFIX = 3, 20, 100


def priced(mixer, workload, *, sizes=None, axes=(), **fields):
    spec = model(mixer, FFN, layers=1, **fields)
    problem = make_problem(spec, machine(*axes), workload, backend="roofline", scheduler="serial")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=B))


def total(got, name, what="flops"):
    found = [one for one in got.ops if one.name == name]
    return sum((one.flops if what == "flops" else one.traffic_bytes.get(what, 0.0)) * one.share for one in found)


def picking(top_k, pool=1, **more):
    return Indexer(heads=4, dim=128, top_k=top_k, pool=pool, **more)


def read_by(query, indexer):
    """Return how many of tokens 1..query a query reads: the pools it picks, then the unfinished one."""
    whole, rest = divmod(query, indexer.pool)
    return min(whole, indexer.top_k // indexer.pool) * indexer.pool + rest


prefixes, rows = st.integers(0, 100), st.integers(1, 50)
drafts = st.integers(1, 5)


@given(rows, prefixes, st.integers(1, 60), st.sampled_from((1, 2, 4)))
def test_an_extend_picks_row_by_row(new, prefix, top_k, pool):
    own, end = picking(top_k * pool, pool), float(prefix + new)
    ((pairs, keys, share),) = chosen(lone_pass("extend", new, ((end, 1.0),)), own)
    each = [read_by(query, own) for query in range(prefix + 1, prefix + new + 1)]
    assert (pairs, keys, share) == (sum(each), min(end, sum(each)), 1.0)


@given(rows, prefixes, st.sampled_from((1, 2, 4, 16)), st.one_of(st.none(), st.integers(1, 30)))
def test_an_extend_reads_complete_entries_row_by_row(new, prefix, tokens, most):
    ((pairs, entries, _),) = entries_seen(lone_pass("extend", new, ((float(prefix + new), 1.0),)), tokens, most)
    each = [min(query // tokens, most or query) for query in range(prefix + 1, prefix + new + 1)]
    assert (pairs, entries) == (sum(each), min((prefix + new) // tokens, sum(each)))


def means(low, more, count):
    """Return the mean of `count` over evenly spread passes that end at low..low + more."""
    values = np.array([count(end) for end in range(low, low + more + 1)])
    return (values.sum(axis=0) - (values[0] + values[-1]) / 2) / more


def mean_of(found):
    assert sum(one.share for one in found) == pytest.approx(1.0, rel=1e-12)
    return [sum(one.pairs * one.share for one in found), sum(one.keys * one.share for one in found)]


@given(drafts, st.integers(0, 80), st.integers(1, 60), st.integers(1, 70))
def test_a_verify_picks_row_by_row_on_average_over_a_growing_context(new, prefix, more, top_k):
    own, low = picking(top_k), prefix + new

    def count(end):
        pairs = sum(min(end - back, limit(own)) for back in range(new))
        return pairs, min(end, pairs)

    got = chosen(lone_pass("verify", new, simpson(float(low), float(low + more))), own)
    assert mean_of(got) == pytest.approx(means(low, more, count), rel=1e-9)


@given(drafts, st.integers(0, 80), st.integers(1, 60), st.sampled_from((1, 4)), st.one_of(st.none(), st.integers(1, 9)))
def test_a_verify_reads_entries_row_by_row_on_average(new, prefix, more, tokens, most):
    low = prefix + new

    def count(end):
        pairs = sum(min((end - back) / tokens, most or end) for back in range(new))
        return pairs, min(end / tokens, pairs)

    got = entries_seen(lone_pass("verify", new, simpson(float(low), float(low + more))), tokens, most)
    assert mean_of(got) == pytest.approx(means(low, more, count), rel=1e-9)


def mla(**more):
    return Mla(heads=8, q_rank=96, kv_rank=64, nope_dim=32, rope_dim=16, v_dim=32, **more)


@pytest.mark.parametrize("workload", [extend(NEW, PREFIX), verify(NEW - 1, PREFIX)], ids=("extend", "verify"))
def test_an_indexer_behind_a_prefix(workload):
    """Every row scores all tokens up to itself; their keys are read once a sequence."""
    got = priced(mla(indexer=picking(50)), workload)
    scored = sum(range(PREFIX + 1, PREFIX + NEW + 1))
    assert total(got, "index-scores") == B * 2 * 4 * 128 * scored
    assert total(got, "index-scores", "kv") == B * (PREFIX + NEW) * (128 + 4)
    grouped = priced(Attention(heads=8, kv_heads=2, head_dim=32, indexer=picking(50)), workload)
    assert total(grouped, "attention-core") == B * 8 * 2 * 64 * NEW * 50
    assert total(grouped, "attention-core", "kv") == B * (PREFIX + NEW) * 2 * 64 * 2


def compressed(ratio, top_k=None):
    own = None if top_k is None else picking(top_k, ratio, k_norm="none", key_format=None)
    fields = {"head_dim": 64, "rope_dim": 32, "q_rank": 96, "out_groups": 4, "out_rank": 64, "window": 16}
    return Compressed(heads=16, ratio=ratio, indexer=own, **fields)


@pytest.mark.parametrize(("ratio", "top_k"), [(0, None), (4, None), (4, 7)])
def test_entries_behind_a_prefix(ratio, top_k):
    got = priced(compressed(ratio, top_k), extend(NEW, PREFIX))
    queries = range(PREFIX + 1, PREFIX + NEW + 1)
    entries = [min(query // ratio, top_k or query) if ratio else 0 for query in queries]
    assert total(got, "attention-core") == B * 4 * 16 * 64 * (NEW * 16 + sum(entries))
    read = min((PREFIX + NEW) // ratio, sum(entries)) if ratio else 0
    assert total(got, "attention-core", "kv") == B * (15 + NEW + read) * 64 * 2
    checked = priced(compressed(ratio, top_k), verify(NEW - 1, PREFIX))
    smooth = [min(query / ratio, top_k or query) if ratio else 0 for query in queries]
    assert total(checked, "attention-core") == pytest.approx(B * 4 * 16 * 64 * (NEW * 16 + sum(smooth)), rel=1e-12)


def test_a_verify_keeps_a_row_a_token_of_what_waits_for_its_entry():
    drafted, plain = (priced(compressed(4), verify(k, PREFIX)) for k in (3, 0))
    assert total(drafted, "compress", "state") == 4 * total(plain, "compress", "state") > 0


SIZES, RING = Sizes(tp=4, dcp=2), (axis(4),)


@pytest.mark.parametrize(
    ("mixer", "gathers"),
    [
        (mla(window=30), [29 * (64 + 16) * 2]),
        (mla(indexer=picking(50)), [PREFIX * (128 + 4), PREFIX * (64 + 16) * 2]),
        (compressed(4, 7), [(PREFIX // 4) * 128 * 2, (15 + PREFIX // 4) * 64 * 2]),
        (compressed(0), [15 * 64 * 2]),
    ],
    ids=("window", "indexer", "entries", "window alone"),
)
def test_context_ranks_hand_an_extend_what_is_cached(mixer, gathers):
    got = priced(mixer, extend(NEW, PREFIX), sizes=SIZES, axes=RING)
    messages = [one.traffic_bytes["message"] for one in got.ops if one.name == "gather-prefix(dcp)"]
    assert messages == [B * size for size in gathers]
    for other in (prefill(NEW), verify(3, PREFIX)):
        split = priced(mixer, other, sizes=SIZES, axes=RING)
        assert not [one for one in split.ops if one.name == "gather-prefix(dcp)"]


HEADS, KEY, VALUE, K = 8, 16, 32, 4
LINEAR = LinearAttention(heads=HEADS, key_heads=4, key_dim=KEY, value_dim=VALUE, decay="head", conv=K)
MAMBA2 = Mamba2(heads=HEADS, head_dim=32, groups=2, state=16, conv=K)
MAMBA1 = Mamba1(inner=256, state=16, dt_rank=8, conv=K)
STATES = {"linear": (LINEAR, HEADS * KEY * VALUE), "mamba2": (MAMBA2, HEADS * 32 * 16), "mamba1": (MAMBA1, 256 * 16)}
STEPS = {"linear": 7 * HEADS * KEY * VALUE, "mamba2": 5 * HEADS * 32 * 16, "mamba1": 8 * 256 * 16}


@pytest.mark.parametrize("name", STATES)
def test_an_extend_scans_its_own_tokens_from_a_state(name):
    """As a prefill of as many tokens, but that the state before is read."""
    mixer, state = STATES[name]
    behind, whole = priced(mixer, extend(NEW, PREFIX)), priced(mixer, prefill(NEW))
    assert total(behind, "state-scan") == total(whole, "state-scan")
    assert total(whole, "state-scan", "state") == B * state * 4
    assert total(behind, "state-scan", "state") == 2 * B * state * 4
    assert total(behind, "conv", "state") == 2 * total(whole, "conv", "state") > 0
    assert total(priced(mixer, extend(NEW, 0)), "state-scan", "state") == B * state * 4


@pytest.mark.parametrize("name", STATES)
def test_a_verify_is_recurrent_steps_that_each_write_their_state(name):
    """Read once, written after each of the k + 1 rows, whatever the prefix."""
    mixer, state = STATES[name]
    got = priced(mixer, verify(3, PREFIX))
    assert total(got, "state-scan") == B * 4 * STEPS[name]
    assert total(got, "state-scan", "state") == B * (1 + 4) * state * 4
    far = priced(mixer, verify(3, 10 * PREFIX))
    assert total(far, "state-scan") == total(got, "state-scan")
    assert total(far, "state-scan", "state") == total(got, "state-scan", "state")


def test_a_convolution_keeps_a_token_more_for_each_draft():
    channels = 256
    for drafted in (0, 3):
        got = priced(ShortConv(width=channels, conv=K), verify(drafted, PREFIX))
        assert total(got, "conv", "state") == B * channels * (2 * (K - 1) + drafted) * 2


def test_convolutions_of_attention_keep_a_token_more_for_each_draft():
    """Those of k and v, and that of a block's output: w - 1 tokens before, and the new ones."""
    kv, taps = 2 * (32 + 32), 4
    mixer = Attention(heads=8, kv_heads=2, head_dim=32, conv=taps, out_conv=taps)
    for new, workload in ((1, verify(0, PREFIX)), (4, verify(3, PREFIX))):
        got = priced(mixer, workload)
        moved = B * (2 * new + taps - 1 + new)
        assert total(got, "kv-conv", "activations") == moved * kv * 2
        assert total(got, "mixer.conv", "activations") == pytest.approx(moved * 256 * 2, rel=1e-12)


CROSS = CrossAttention(heads=8, kv_heads=2, head_dim=32, qk_norm=True)
IMAGE = 600


def test_images_are_made_into_keys_with_the_tokens_that_bring_them():
    """An extend given images brings them; a verify sees what is kept; without images the layer is skipped."""
    shown = {"cross_tokens": IMAGE}
    core = B * 4 * 8 * 32 * IMAGE
    brought = priced(CROSS, extend(NEW, PREFIX, **shown))
    assert total(brought, "cross-attention-core") == NEW * core
    assert total(brought, "image-k+v") == 2 * B * IMAGE * 256 * 2 * 2 * 32
    kept = priced(CROSS, verify(3, PREFIX, **shown))
    assert total(kept, "cross-attention-core") == 4 * core
    assert total(kept, "cross-attention-core", "kv") == B * IMAGE * 2 * 2 * 32 * 2
    assert not [one for one in kept.ops if one.name.startswith("image-k")]
    for bare in (extend(NEW, PREFIX), verify(3, PREFIX)):
        assert not [one for one in priced(CROSS, bare).ops if one.segment == "layer-0"]


def test_every_row_brings_its_layer_inputs():
    inputs = LayerInputs(width=32, rows=500)
    mixer = Attention(heads=8, kv_heads=2, head_dim=32)
    for workload, each in ((extend(NEW, PREFIX), NEW), (verify(3, PREFIX), 4), (Workload(context=PREFIX), 1)):
        got = priced(mixer, workload, layer_inputs=inputs)
        assert total(got, "layer-inputs.gate") == 2 * B * each * 256 * 32
        assert total(got, "layer-inputs", "weights") == B * each * 32 * 2
