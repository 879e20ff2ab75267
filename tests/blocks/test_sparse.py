"""Sparse attention by hand: what an indexer weighs, keeps, reads and costs, against loops over tokens."""

import msgspec
import pytest
from blocks.made_up import ROOMY, axis, decode, machine, model, prefill
from hypothesis import given
from hypothesis import strategies as st

from inferometer.blocks.causal import simpson, split_at
from inferometer.blocks.params import count_params
from inferometer.blocks.reads import chosen_pairs, entry_pairs, limit
from inferometer.estimate.diagnose import diagnose
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.deployment import Deployment, Sizes, Workload
from inferometer.specs.feedforward import Ffn
from inferometer.specs.indexer import Indexer
from inferometer.specs.mixers import Attention, Mla

H, N, Q, C, R, DN, DV = 256, 8, 96, 64, 16, 32, 32
n, d, TOP = 4, 128, 50
FFN = Ffn(width=512)
INDEX = Indexer(heads=n, dim=d, top_k=TOP)
BLOCKS = Indexer(
    heads=2, dim=d, top_k=64, block=16, lists=2, weighted=False, q_norm=True, k_norm="rms", key_format=None
)


def mla(**more):
    return Mla(**({"heads": N, "q_rank": Q, "kv_rank": C, "nope_dim": DN, "rope_dim": R, "v_dim": DV} | more))


def grouped(**more):
    return Attention(heads=N, kv_heads=2, head_dim=32, **more)


def replaced(indexer, **more):
    return msgspec.structs.replace(indexer, **more)


def read_by(query, indexer):
    """Return how many of tokens 1..query a query reads: whole pools, then the unfinished one."""
    pools = [range(first, first + indexer.pool) for first in range(1, query + 1, indexer.pool)]
    whole = [pool for pool in pools if pool[-1] <= query]
    kept = whole[: indexer.top_k // indexer.pool]
    rest = query - len(whole) * indexer.pool
    return sum(len(pool) for pool in kept) + rest


@given(st.integers(1, 120), st.integers(1, 60), st.sampled_from((1, 2, 4, 16)))
def test_a_prompt_s_chosen_pairs_are_counted_one_by_one(new, top_k, pool):
    indexer = replaced(INDEX, top_k=top_k * pool, pool=pool)
    assert chosen_pairs(indexer, new) == sum(read_by(query, indexer) for query in range(1, new + 1))


@given(st.integers(1, 300), st.sampled_from((1, 2, 4, 128)), st.one_of(st.none(), st.integers(1, 40)))
def test_a_prompt_s_pairs_with_entries_are_counted_one_by_one(new, tokens, most):
    kept = [query // tokens if most is None else min(query // tokens, most) for query in range(1, new + 1)]
    assert entry_pairs(new, tokens, most) == sum(kept)


@given(st.integers(2, 40), st.sampled_from((2, 4, 16)))
def test_the_limit_is_what_queries_read_on_average(pools, pool):
    indexer = replaced(INDEX, top_k=pool * pools, pool=pool)
    far = range(10_000 * pool, 10_001 * pool)
    assert sum(read_by(query, indexer) for query in far) / pool == limit(indexer)


@given(st.integers(1, 1000), st.integers(1, 1000), st.lists(st.integers(1, 2000), max_size=3))
def test_a_cut_range_averages_functions_that_bend_there_exactly(low, more, kinks):
    """The mean of min(x, W) over [a, b] by its antiderivative: x^2 / 2 up to W, then W x - W^2 / 2."""
    high = low + more

    def whole(x, kink):
        return x * x / 2 if x <= kink else kink * x - kink * kink / 2

    nodes = split_at(simpson(float(low), float(high)), *map(float, kinks), flat=False)
    got = sum(share * sum(min(x, kink) for kink in kinks) for x, share in nodes)
    assert sum(share for _, share in nodes) == pytest.approx(1.0, rel=1e-12)
    assert got == pytest.approx(sum(whole(high, k) - whole(low, k) for k in kinks) / more, rel=1e-9)


DSA_WEIGHTS = n * d * Q + d * H + n * H + 2 * d
"""Queries from the latent, a key and a weight a head from the input, and the key's LayerNorm."""


@pytest.mark.parametrize(
    ("indexer", "weights"),
    [
        (INDEX, DSA_WEIGHTS),
        (replaced(INDEX, shared=True), 0),
        (replaced(INDEX, pool=2, pool_gate=True), DSA_WEIGHTS + d * H + 2 * d),
        (replaced(INDEX, input_norm=True, head_scales=True), DSA_WEIGHTS + 2 * Q + 2 * n),
        (replaced(INDEX, weighted=False, k_norm="none"), n * d * Q + d * H),
    ],
)
def test_what_an_indexer_weighs(indexer, weights):
    plain, sparse = (count_params(model(mla(indexer=own), FFN, layers=1)) for own in (None, indexer))
    assert sparse.total - plain.total == weights == sparse.by_kind.get("indexer", 0)


def test_queries_come_from_the_input_where_there_is_no_latent():
    direct = [count_params(model(mla(q_rank=None, indexer=own), FFN, layers=1)).total for own in (None, INDEX)]
    assert direct[1] - direct[0] == n * d * H + d * H + n * H + 2 * d
    blocks = [count_params(model(grouped(indexer=own), FFN, layers=1)).total for own in (None, BLOCKS)]
    assert blocks[1] - blocks[0] == 2 * d * H + d * H + 2 * d


@pytest.mark.parametrize(
    ("fields", "weights"),
    [
        ({"gate": "head"}, N * H),
        ({"gate": "wide"}, N * DV * H),
        ({"sinks": True}, N),
        ({"head_scales": True}, 2 * N),
        ({"rope_norm": True}, R),
        ({"kv_shared": True}, -(C + R) * H - C),
        ({"kv_shared": True, "bias": True}, -(C + R) * H - C + H + Q),
        ({"window": 8}, 0),
    ],
    ids=str,
)
def test_what_latent_attention_may_have_beside(fields, weights):
    plain, more = (count_params(model(mla(**own), FFN, layers=1)).total for own in ({}, fields))
    assert more - plain == weights


@pytest.mark.parametrize(
    ("mixer", "kv_format", "each"),
    [
        (mla(indexer=INDEX), "bf16", (C + R) * 2 + d + 4),
        (mla(indexer=INDEX), "fp8", C + 4 * C / 128 + 2 * R + d + 4),
        (mla(), "fp8", C + R),
        (mla(indexer=replaced(INDEX, pool=2)), "bf16", (C + R) * 2 + (d + 4) / 2),
        (mla(indexer=replaced(INDEX, shared=True)), "bf16", (C + R) * 2),
        (mla(indexer=INDEX, kv_shared=True), "bf16", d + 4),
        (grouped(indexer=BLOCKS), "bf16", 2 * 2 * 32 * 2 + 2 * d),
        (grouped(indexer=BLOCKS), "fp8", 2 * 2 * 32 + d + 4),
    ],
    ids=str,
)
def test_what_a_token_keeps(mixer, kv_format, each):
    assert kv_bytes_per_token(model(mixer, FFN, layers=3, kv_format=kv_format)) == 3 * each


def test_released_shapes_keep_the_published_bytes():
    """GLM-5.3-Flash: 11 layers without rotation, keys pooled by four; Qwen3.8-Flash-Next: 12 layers of QSA."""
    pooled = Indexer(heads=32, dim=128, top_k=2048, pool=4, pool_gate=True)
    flash = Mla(heads=64, q_rank=1536, kv_rank=512, nope_dim=256, rope_dim=0, v_dim=256, indexer=pooled)
    assert kv_bytes_per_token(model(flash, FFN, layers=11)) == 11_627
    qsa = Indexer(heads=4, dim=128, top_k=2048, pool=4, weighted=False, q_norm=True, k_norm="rms", key_format=None)
    gated = Attention(heads=24, kv_heads=2, head_dim=256, gate="wide", indexer=qsa)
    assert kv_bytes_per_token(model(gated, FFN, layers=12)) == 25_344


def ops(spec, workload, *, sizes=None, axes=(), batch=8, chip=ROOMY):
    problem = make_problem(spec, machine(*axes, chip=chip), workload, backend="roofline", scheduler="serial")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch))


def of(got, name):
    return [op for op in got.ops if op.name == name]


def total(got, name, what="flops"):
    values = [op.flops if what == "flops" else op.traffic_bytes.get(what, 0.0) for op in of(got, name)]
    return sum(value * op.share for value, op in zip(values, of(got, name), strict=True))


B, S = 8, 1000


def test_a_decode_scores_every_key_and_reads_what_it_picks():
    got = ops(model(mla(indexer=INDEX), FFN, layers=1), decode(S), batch=B)
    assert total(got, "index-scores") == B * 2 * n * d * S
    assert total(got, "index-scores", "kv") == B * S * (d + 4)
    assert [op.dtype for op in of(got, "index-scores")] == ["fp8"]
    latents = TOP * (C + R) * 2
    if "absorbed" in of(got, "attention-core")[0].plan:
        assert total(got, "attention-core") == B * 2 * N * (2 * C + R) * TOP
        assert total(got, "attention-core", "kv") == B * latents
    else:
        assert total(got, "kv_b", "kv") == B * latents


def test_a_chip_without_fp8_scores_wider():
    plain = msgspec.structs.replace(ROOMY, peak_flops_per_s={"bf16": 1e15})
    got = ops(model(mla(indexer=INDEX), FFN, layers=1), decode(S), chip=plain)
    assert [op.dtype for op in of(got, "index-scores")] == ["bf16"]
    assert got.widened == ()


def test_a_layer_that_shares_a_choice_does_no_index_work_and_reads_as_little():
    own, shared = (
        ops(model(mla(indexer=replaced(INDEX, shared=flag)), FFN, layers=1), decode(S)) for flag in (False, True)
    )
    assert not any(op.name.startswith("index") for op in shared.ops)
    assert [op.flops for op in of(own, "attention-core")] == [op.flops for op in of(shared, "attention-core")]


def test_blocks_are_chosen_for_each_kv_head():
    got = ops(model(grouped(indexer=BLOCKS), FFN, layers=1), decode(S), batch=B)
    assert total(got, "index-scores") == B * 2 * 2 * d * S
    assert total(got, "attention-core") == B * N * 2 * 64 * 64
    assert total(got, "attention-core", "kv") == B * 2 * 64 * 2 * 64
    written = B * 2 * 4 * (S / 16)
    assert total(got, "index-top-k", "activations") == written + B * 2 * 4 * (64 / 16)


def test_a_prompt_scores_every_pair_and_works_out_those_picked():
    new = 200
    got = ops(model(mla(indexer=INDEX), FFN, layers=1), prefill(new), batch=B)
    assert total(got, "index-scores") == B * 2 * n * d * sum(range(1, new + 1))
    core = total(got, "attention-core")
    picked = sum(min(i, TOP) for i in range(1, new + 1))
    forms = (2 * N * (2 * C + R) * picked, 2 * N * (DN + R + DV) * sum(range(1, new + 1)))
    assert core in [B * form for form in forms]
    grown = ops(model(grouped(indexer=replaced(BLOCKS, block=1, top_k=TOP)), FFN, layers=1), prefill(new), batch=B)
    assert total(grown, "attention-core") == B * N * 2 * 64 * picked


@pytest.mark.parametrize("mixer", [mla(indexer=INDEX), grouped(indexer=BLOCKS)], ids=["mla", "gqa"])
def test_the_mean_over_a_growing_context_is_the_sum_over_its_steps(mixer):
    spec, low, more = model(mixer, FFN, layers=1), 20, 100

    def flops(workload):
        return sum(op.flops * op.share for op in ops(spec, workload).ops if op.kind == "attention")

    each = [flops(decode(context)) for context in range(low, low + more + 1)]
    mean = (sum(each) - (each[0] + each[-1]) / 2) / more
    assert flops(Workload(isl=low, osl=more)) == pytest.approx(mean, rel=1e-12)


def test_index_work_is_whole_on_every_rank_and_its_keys_are_copied():
    spec = model(mla(indexer=INDEX), FFN, layers=1)
    one, four = ops(spec, decode(S)), ops(spec, decode(S), sizes=Sizes(tp=4), axes=(axis(4),))
    for name in ("index-scores", "index_q", "index_k+index_weights"):
        assert total(one, name) == total(four, name)
        assert [op.replication for op in of(four, name)] == [4.0]
    split = ops(spec, decode(S), sizes=Sizes(tp=4, dcp=2), axes=(axis(4),))
    assert total(split, "index-scores") == total(one, "index-scores") / 2
    assert [op.replication for op in of(split, "index-scores")] == [2.0]
    assert of(split, "gather-top-k(dcp)")


def test_copies_of_index_keys_are_named():
    spec = model(mla(indexer=INDEX), FFN)
    problem = make_problem(spec, machine(axis(4)), decode(S), backend="roofline")
    memory = ops(spec, decode(S), sizes=Sizes(tp=4), axes=(axis(4),)).memory
    names = {note.name for note in diagnose(problem, Sizes(tp=4), memory, 1)}
    assert {"latent-replicated", "index-replicated"} <= names


@pytest.mark.parametrize("limits", [{"window": 4}, {"chunk": 4}])
def test_a_query_has_one_limit(limits):
    with pytest.raises(ValueError, match="one of window, chunk and indexer"):
        grouped(indexer=INDEX, **limits)
