"""Extend and verify: rows behind a cached prefix, counted token by token; their plain cases are prefill and decode."""

from dataclasses import replace

import numpy as np
import pytest
from blocks.made_up import axis, decode, extend, lone_pass, machine, model, prefill, verify
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import models

from inferometer.blocks.causal import causal_pairs, keys_seen, seen, simpson
from inferometer.blocks.model import unit_count
from inferometer.estimate.estimate import estimate, find_candidates, make_problem
from inferometer.specs.deployment import Deployment, EngineSpec, Sizes, Workload
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention, Mla

H, V, L, N, K, D, F = 256, 1000, 2, 8, 2, 32, 512
ATTENTION = Attention(heads=N, kv_heads=K, head_dim=D)
MLA = Mla(heads=N, q_rank=None, kv_rank=64, nope_dim=32, rope_dim=16, v_dim=24)
FFN = Ffn(width=F)


def priced(spec, workload, batch=1, *, sizes=None, axes=(), engine=None, scheduler="serial"):
    options = {} if engine is None else {"engine": engine}
    problem = make_problem(spec, machine(*axes), workload, backend="roofline", scheduler=scheduler, **options)
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch))


def only(plan):
    return EngineSpec(name="one", version="", allows={"mla": (plan,)})


def tokens_seen(new, prefix, window, chunk):
    """Return the tokens that each new row sees, one by one."""
    rows = []
    for row in range(prefix, prefix + new):
        first = 0 if window is None else max(row - window + 1, 0)
        rows.append({t for t in range(first, row + 1) if not chunk or t // chunk == row // chunk})
    return rows


kinds = st.one_of(
    st.just((None, None)),
    st.integers(1, 60).map(lambda window: (window, None)),
    st.integers(1, 60).map(lambda chunk: (None, chunk)),
)


@given(st.integers(1, 50), st.integers(0, 100), kinds)
def test_pairs_and_keys_are_those_of_a_loop_over_tokens(new, prefix, kind):
    rows = tokens_seen(new, prefix, *kind)
    assert causal_pairs(new, *kind, prefix=float(prefix)) == sum(len(row) for row in rows)
    assert keys_seen(new, *kind, prefix=float(prefix)) == len(set().union(*rows))


@given(st.integers(1, 5), st.integers(0, 80), st.integers(1, 60), st.one_of(st.none(), st.integers(1, 70)))
def test_a_verify_averages_exactly_over_the_kinks_of_a_window(rows, prefix, more, window):
    """The mean over evenly spread passes: the trapezoid of the counts at every whole prefix."""
    low, high = prefix + rows, prefix + rows + more
    got = seen(lone_pass("verify", rows, simpson(float(low), float(high))), window)
    steps = [tokens_seen(rows, end - rows, window, None) for end in range(low, high + 1)]
    pairs = np.array([float(sum(len(row) for row in step)) for step in steps])
    keys = np.array([float(len(set().union(*step))) for step in steps])
    for counted, name in ((pairs, "pairs"), (keys, "keys")):
        mean = (counted.sum() - (counted[0] + counted[-1]) / 2) / more
        assert sum(getattr(one, name) * one.share for one in got) == pytest.approx(mean, rel=1e-12)
    assert sum(one.share for one in got) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("low", "high"), [(50, 150), (110, 190), (150, 1150)])
def test_a_verify_in_chunks_sees_each_row_s_chunk_so_far(low, high):
    rows, chunk = 3, 100
    (got,) = seen(lone_pass("verify", rows, simpson(float(low), float(high))), None, chunk)
    ends = np.linspace(low, high, 1_000_001)
    assert got.pairs == pytest.approx(sum(np.mean((ends - back) % chunk) for back in range(rows)), rel=1e-4)
    assert got.keys == pytest.approx(np.mean((ends - rows + 1) % chunk) + rows - 1, rel=1e-4)


def test_one_long_verify_stands_anywhere_in_its_chunk():
    assert seen(lone_pass("verify", 3, ((1000.0, 1.0),)), None, 100) == ((3 * 50.0, 50.0 + 2, 1.0),)


some = settings(max_examples=40, deadline=None)
batches = st.integers(1, 60)
shardings = st.sampled_from((Sizes(pp=2, tp=2), Sizes(tp=4), Sizes(tp=4, dcp=2), Sizes(r=2, pp=2)))


def same(spec, one, other, batch, sizes):
    """Hold the estimates of two questions against each other, to the last bit."""
    assume(sizes.pp <= unit_count(spec))
    ours, theirs = (priced(spec, work, batch, sizes=sizes, axes=(axis(4),)) for work in (one, other))
    assert ours == theirs


@some
@given(models(moe=False), st.integers(1, 3000), batches, shardings, st.booleans())
def test_an_extend_of_no_prefix_is_a_prefill(spec, isl, batch, sizes, every):
    more = {"all_token_logits": every}
    same(spec, prefill(isl, **more), extend(isl, 0, **more), batch, sizes)


@some
@given(models(moe=False), st.integers(1, 3000), batches, shardings)
def test_a_verify_of_no_draft_is_a_decode(spec, context, batch, sizes):
    same(spec, decode(context), verify(0, context - 1), batch, sizes)


@some
@given(models(moe=True), st.integers(1, 3000), st.integers(0, 900), batches)
def test_a_verify_of_no_draft_is_a_decode_over_a_growing_context(spec, isl, osl, batch):
    lengths = {"isl": isl, "osl": osl}
    same(spec, Workload(**lengths), Workload(**lengths, phase="verify"), batch, Sizes(dpa=2, tp=2, ep=4))


def test_lengths():
    assert Workload(isl=10, osl=5).ends == (10, 15)
    assert decode(7).ends == (7, 7)
    assert prefill(9).ends == (9, 9)
    assert extend(4, 6).ends == (10, 10)
    assert verify(3, 6).ends == (10, 10)
    assert Workload(isl=10, osl=5, phase="verify", draft_tokens=3).ends == (13, 18)


@pytest.mark.parametrize("fields", [{"phase": "extend"}, {"draft_tokens": 1}, {"phase": "prefill", "draft_tokens": 2}])
def test_a_workload_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ValueError, match=r"needs a context|has no drafted tokens"):
        Workload(**fields)


def op(got, name):
    return [one for one in got.ops if one.name == name]


B, NEW, PREFIX = 3, 20, 100
PAIRS = sum(PREFIX + row for row in range(1, NEW + 1))


def test_what_an_extend_reads_and_multiplies():
    got = priced(model(ATTENTION, FFN, layers=L, hidden=H, vocab=V), extend(NEW, PREFIX), B)
    (core,) = op(got, "attention-core")
    assert core.flops == B * 2 * N * (D + D) * PAIRS
    assert core.traffic_bytes["kv"] == B * (PREFIX + NEW) * K * 2 * D * 2
    (write,) = op(got, "rope+kv-write")
    assert write.traffic_bytes["kv"] == B * NEW * K * 2 * D * 2
    (head,) = op(got, "head")
    assert head.flops == 2 * B * H * V
    assert got.memory.kv_bytes_per_sequence == L * (PREFIX + NEW) * K * 2 * D * 2


def test_what_an_extend_in_a_window_reads():
    spec = model(Attention(heads=N, kv_heads=K, head_dim=D, window=30), FFN)
    (core,) = op(priced(spec, extend(NEW, PREFIX), B), "attention-core")
    assert core.flops == B * 2 * N * 2 * D * NEW * 30
    assert core.traffic_bytes["kv"] == B * (29 + NEW) * K * 2 * D * 2


@pytest.mark.parametrize("workload", [extend(NEW, PREFIX), verify(NEW - 1, PREFIX)], ids=("extend", "verify"))
def test_both_forms_of_latent_attention_behind_a_prefix(workload):
    spec = model(MLA, FFN)
    (core,) = op(priced(spec, workload, B, engine=only("absorbed")), "attention-core")
    assert core.flops == B * 2 * N * (64 + 16 + 64) * PAIRS
    assert core.traffic_bytes["kv"] == B * (PREFIX + NEW) * (64 + 16) * 2
    got = priced(spec, workload, B, engine=only("expanded"))
    (core,), (expand,) = op(got, "attention-core"), op(got, "kv_b")
    assert core.flops == B * 2 * N * (32 + 16 + 24) * PAIRS
    assert expand.flops == B * (PREFIX + NEW) * 2 * 64 * N * (32 + 24)
    assert expand.traffic_bytes["kv"] == B * (PREFIX + NEW) * (64 + 16) * 2


def test_a_verify_makes_the_logits_of_all_of_its_rows():
    (head,) = op(priced(model(ATTENTION, FFN, hidden=H, vocab=V), verify(3, PREFIX), B), "head")
    assert head.flops == 2 * B * 4 * H * V


def test_all_token_logits_of_a_prompt_take_memory_too():
    spec = model(ATTENTION, FFN, hidden=H, vocab=1 << 17)
    few, every = (priced(spec, prefill(NEW, all_token_logits=x), B) for x in (False, True))
    assert op(few, "head")[0].flops == 2 * B * H * (1 << 17)
    assert op(every, "head")[0].flops == 2 * B * NEW * H * (1 << 17)
    assert every.memory.activation_bytes_per_token == 2 * (2 * H + (1 << 17))


@pytest.mark.parametrize(("mixer", "elements"), [(ATTENTION, 1 * 2 * D), (MLA, 64 + 16)], ids=("GQA", "MLA"))
def test_context_ranks_split_a_verify_and_hand_an_extend_its_prefix(mixer, elements):
    spec, sizes = model(mixer, FFN), Sizes(tp=4, dcp=2)
    shared = {"batch": B, "sizes": sizes, "axes": (axis(4),), "engine": only("absorbed")}
    split = priced(spec, verify(3, PREFIX), **shared)
    assert op(split, "gather-q(dcp)")
    assert not op(split, "gather-prefix(dcp)")
    whole = priced(spec, extend(NEW, PREFIX), **shared)
    assert not op(whole, "gather-q(dcp)")
    (gather,) = op(whole, "gather-prefix(dcp)")
    assert gather.traffic_bytes["message"] == B * PREFIX * elements * 2
    assert not op(priced(spec, prefill(NEW), **shared), "gather-prefix(dcp)")


def test_an_engine_s_rule_for_prefill_holds_in_extend_unless_it_has_one():
    allows = {"mla.prefill": ("expanded",), "mla.decode": ("absorbed",)}
    plain = EngineSpec(name="plain", version="", allows=allows)
    own = EngineSpec(name="own", version="", allows=allows | {"mla.extend": ("absorbed",)})
    spec = model(MLA, FFN)
    assert op(priced(spec, extend(NEW, PREFIX), engine=plain), "kv_b")
    assert not op(priced(spec, extend(NEW, PREFIX), engine=own), "kv_b")
    assert op(priced(spec, verify(2, PREFIX), engine=plain), "q-absorb")


def test_microbatches_of_the_new_phases_are_those_of_their_plain_ones():
    spec, sizes = model(ATTENTION, FFN, layers=4), Sizes(pp=2)
    shared = {"batch": 64, "sizes": sizes, "axes": (axis(2),)}
    assert priced(spec, extend(NEW, PREFIX), **shared).microbatches == priced(spec, prefill(NEW), **shared).microbatches
    assert priced(spec, verify(2, PREFIX), **shared).microbatches == priced(spec, decode(NEW), **shared).microbatches


def test_the_batch_that_fits_counts_the_drafted_tokens():
    spec = model(ATTENTION, FFN)
    small = replace(make_problem(spec, machine(), decode(100)), room_bytes=1e8)
    most = {
        work.phase: float(find_candidates(replace(small, workload=work))[0].held.kv_bytes_per_sequence.max())
        for work in (decode(100), verify(3, 99), extend(3, 99))
    }
    assert most["verify"] == most["decode"] * 103 / 100
    assert most["extend"] == most["decode"] * 102 / 100
