"""Recurrent mixers by loops over tokens, heads and chunks, and against a recurrence run token by token."""

import numpy as np
import pytest
from blocks.made_up import axis, decode, machine, model, prefill
from hypothesis import given
from hypothesis import strategies as st

from inferometer.blocks.recurrent import chunk_pairs
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention, Beside
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv

FFN = Ffn(width=256)
B = 3


def gdn(**more):
    fields = {"heads": 8, "key_heads": 4, "key_dim": 16, "value_dim": 32, "decay": "head", "conv": 4}
    return LinearAttention(**(fields | more))


LIGHTNING = gdn(key_heads=8, decay="fixed", delta=False, conv=0, out_norm_groups=1)
MAMBA2 = Mamba2(heads=8, head_dim=32, groups=2, state=16, conv=4)
MAMBA1 = Mamba1(inner=512, state=16, dt_rank=8, conv=4, inner_norms=True)


def priced(block, workload, sizes=None, batch=B, axes=()):
    problem = make_problem(model(block, FFN), machine(*axes), workload, backend="roofline")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch))


def scan(block, workload, **more):
    (op,) = (op for op in priced(block, workload, **more).ops if op.kind == "scan")
    return op


def products(*shapes):
    """Return FLOPs of matrix products [m, k] x [k, n]."""
    return sum(2 * m * k * n for m, k, n in shapes)


def chunks(tokens, size):
    return [min(size, tokens - start) for start in range(0, tokens, size)]


def by_chunks(block, tokens):
    """Return FLOPs of one sequence of a linear attention, product by product and head by head."""
    key, value, total = block.key_dim, block.value_dim, 0
    for _ in range(block.heads):
        for c in chunks(tokens, block.chunk):
            total += products((c, key, c), (c, key, value), (c, c, value), (key, c, value))
            if block.delta:
                total += products((c, key, c), (c, c, value), (c, c, key), (c, key, value))
                total += c**3 / 3
    return total


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
@pytest.mark.parametrize(
    "block", [gdn(), gdn(decay="channel", key_heads=8), LIGHTNING], ids=["gdn", "kda", "lightning"]
)
def test_a_prefill_costs_its_products_chunk_by_chunk(block, tokens):
    assert scan(block, prefill(tokens)).flops == pytest.approx(B * by_chunks(block, tokens), rel=1e-12)


@pytest.mark.parametrize("tokens", [1, 100, 128, 300])
def test_mamba_2_scores_a_chunk_once_a_group(tokens):
    block, total = MAMBA2, 0
    for c in chunks(tokens, block.chunk):
        total += block.groups * products((c, block.state, c))
        for _ in range(block.heads):
            total += products(
                (c, c, block.head_dim), (block.head_dim, c, block.state), (c, block.state, block.head_dim)
            )
    assert scan(block, prefill(tokens)).flops == pytest.approx(B * total, rel=1e-12)


@pytest.mark.parametrize(("block", "rounds"), [(gdn(), 7), (LIGHTNING, 5)])
def test_decode_touches_each_element_of_a_state_so_often(block, rounds):
    flops = sum(rounds for _ in range(block.heads) for _ in range(block.key_dim) for _ in range(block.value_dim))
    assert scan(block, decode(100)).flops == B * flops
    assert scan(MAMBA2, decode(100)).flops == B * 8 * 32 * 16 * 5
    steps = {"dt A": 1, "exp": 1, "dt B": 1, "times x": 1, "decay": 1, "update": 1, "h . C": 2}
    assert scan(MAMBA1, decode(100)).flops == B * 512 * 16 * sum(steps.values())


def test_a_decode_reads_and_writes_every_state_and_a_prefill_writes_it_once():
    for block, elements, kept in (
        (gdn(), 8 * 16 * 32, 3 * (2 * 4 * 16 + 8 * 32)),
        (MAMBA2, 8 * 32 * 16, 3 * (8 * 32 + 2 * 2 * 16)),
        (MAMBA1, 512 * 16, 3 * 512),
    ):
        for workload, times in ((decode(100), 2), (prefill(50), 1)):
            ops = priced(block, workload).ops
            assert scan(block, workload).traffic_bytes["state"] == times * B * elements * 4
            (conv,) = (op for op in ops if op.name == "conv")
            assert conv.traffic_bytes["state"] == times * B * kept * 2


def test_a_state_s_cost_does_not_grow_with_the_context():
    for block in (gdn(), LIGHTNING, MAMBA2, MAMBA1, ShortConv(width=256, conv=3)):
        assert priced(block, decode(100)).step_s == priced(block, decode(50_000)).step_s


@given(st.integers(1, 2000), st.integers(1, 300))
def test_pairs_are_squares_of_chunks(tokens, size):
    assert chunk_pairs(float(tokens), size) == sum(c * c for c in chunks(tokens, size))


def recurrent(q, k, v, beta, decay):
    """Return outputs token by token: S <- a S; v <- b (v - S^T k); S <- S + k v^T; o = S^T q."""
    state, out = np.zeros((q.shape[1], v.shape[1])), []
    for t in range(len(q)):
        state = decay[t] * state
        state = state + np.outer(k[t], beta[t] * (v[t] - state.T @ k[t]))
        out.append(state.T @ q[t])
    return np.array(out), state


def chunked(tokens, size):
    """Return the same by the products that are counted, and how many FLOPs those take."""
    q, k, v, beta, decay = tokens
    key, value = q.shape[1], v.shape[1]
    state, out, flops = np.zeros((key, value)), [], 0.0
    for start in range(0, len(q), size):
        part = slice(start, start + size)
        qc, kc, vc, bc = q[part], k[part], v[part], beta[part, None]
        c = len(qc)
        log = np.cumsum(np.log(decay[part]))
        between = np.tril(np.exp(log[:, None] - log[None, :]))
        mixed = np.tril((bc * kc) @ kc.T * between, -1)
        inverse = np.linalg.inv(np.eye(c) + mixed)
        fresh = inverse @ (bc * vc) - (inverse @ (bc * kc * np.exp(log)[:, None])) @ state
        out.append((qc * np.exp(log)[:, None]) @ state + (qc @ kc.T * between) @ fresh)
        state = np.exp(log[-1]) * state + (kc * np.exp(log[-1] - log)[:, None]).T @ fresh
        flops += products((c, key, c), (c, c, value), (c, c, key), (c, key, value))
        flops += products((c, key, value), (c, key, c), (c, c, value), (key, c, value)) + c**3 / 3
    return np.concatenate(out), state, flops


def test_the_products_that_are_counted_compute_the_recurrence():
    rng, tokens = np.random.default_rng(0), 150
    block = gdn(heads=1, key_heads=1)
    q, k = (rng.normal(size=(tokens, block.key_dim)) / 4 for _ in range(2))
    v = rng.normal(size=(tokens, block.value_dim))
    beta, decay = rng.uniform(0, 1, tokens), rng.uniform(0.8, 1, tokens)
    out, state = recurrent(q, k, v, beta, decay)
    again, last, flops = chunked((q, k, v, beta, decay), block.chunk)
    assert again == pytest.approx(out, abs=1e-9)
    assert last == pytest.approx(state, abs=1e-9)
    assert scan(block, prefill(tokens), batch=1).flops == pytest.approx(flops, rel=1e-12)


def ops_of(block, tp, workload=None):
    return priced(block, workload or decode(100), sizes=Sizes(tp=tp), axes=(axis(tp),)).ops


def test_a_norm_over_groups_is_summed_over_the_ranks_of_a_group_only_where_there_are_more_ranks():
    def summed(block, tp):
        return any(op.name == "norm-sums(tp)" for op in ops_of(block, tp))

    assert [summed(MAMBA2, tp) for tp in (1, 2, 4)] == [False, False, True]
    assert [summed(LIGHTNING, tp) for tp in (1, 2)] == [False, True]
    assert not summed(gdn(), 8)


def test_mamba_reduces_what_selects_before_it_steps():
    names = [op.name for op in ops_of(MAMBA1, 2)]
    assert names.index("select") < names.index("select(tp)") < names.index("dt") < names.index("state-scan")


def test_mixers_beside_each_other_are_gathered_and_reduced_once():
    attention = Attention(heads=8, kv_heads=2, head_dim=32, pre_norm=False)
    mamba = Mamba2(heads=8, head_dim=32, groups=2, state=16, conv=4, pre_norm=False)
    alone = [[op.name for op in ops_of(block, 2)] for block in (Attention(heads=8, kv_heads=2, head_dim=32), MAMBA2)]
    both = [op.name for op in ops_of(Beside(parts=(attention, mamba)), 2)]
    for name in ("all-reduce(tp)", "mixer.norm"):
        assert both.count(name) == alone[0].count(name) == alone[1].count(name)
    assert {"attention-core", "state-scan"} < set(both)
    inside = {name for names in alone for name in names[: names.index("gate+up")]}
    assert inside <= set(both)


@pytest.mark.parametrize(
    "parts",
    [
        (Attention(heads=8, kv_heads=2, head_dim=32, pre_norm=False),),
        (gdn(pre_norm=False), gdn(pre_norm=False)),
        (gdn(pre_norm=False), MAMBA2),
    ],
    ids=["one", "two of a kind", "a norm"],
)
def test_parts_beside_each_other_differ_and_have_no_norms(parts):
    with pytest.raises(ValueError, match="mixers beside each other"):
        Beside(parts=parts)


def names(notes):
    return [note.name for note in notes]


def test_copies_of_groups_are_said():
    assert "state-replicated" not in names(priced(MAMBA2, decode(100), Sizes(tp=2), axes=(axis(2),)).diagnostics)
    noted = priced(MAMBA2, decode(100), Sizes(tp=8), axes=(axis(8),)).diagnostics
    (text,) = [note.text for note in noted if note.name == "state-replicated"]
    assert "TP=8 exceeds the 2 groups" in text
    assert "4 times" in text


def test_rules_of_heads_and_groups():
    def broken(block, tp):
        got = priced(block, decode(100), Sizes(tp=tp), axes=(axis(tp),))
        return [reason.partition(":")[0] for reason in got.reasons]

    assert broken(MAMBA2, 16)[:2] == ["tp-exceeds-heads", "heads-not-divisible"]
    assert "groups-not-divisible" in broken(gdn(heads=12, key_heads=4), 6)
    assert not {"groups-not-divisible", "heads-not-divisible"} & set(broken(gdn(heads=12, key_heads=4), 12))


def test_context_parallel_of_a_model_that_caches_nothing_along_the_sequence_is_refused():
    got = priced(MAMBA2, decode(100), Sizes(tp=2, dcp=2), axes=(axis(2),))
    assert [reason.partition(":")[0] for reason in got.reasons] == ["dcp-without-kv"]
    beside = Beside(
        parts=(
            Attention(heads=8, kv_heads=2, head_dim=32, pre_norm=False),
            Mamba2(heads=8, head_dim=32, groups=2, state=16, conv=4, pre_norm=False),
        )
    )
    assert priced(beside, decode(100), Sizes(tp=2, dcp=2), axes=(axis(2),)).reasons == ()
