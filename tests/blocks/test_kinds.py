"""Parameters, cache and attended tokens of every kind of attention and feed-forward, by hand."""

import numpy as np
import pytest
from blocks.made_up import axis, decode, lone_pass, machine, model, prefill

from inferometer.blocks.causal import causal_pairs, keys_seen, seen
from inferometer.blocks.params import count_params
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.memory.footprint import footprint, kv_bytes_per_token
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Attention
from inferometer.specs.tower import Linear, Tower, TowerPart

H, V, L, N, K, D, F = 256, 1000, 2, 8, 2, 32, 512
FFN = Ffn(width=F)


def attention(**more):
    return Attention(heads=N, kv_heads=K, head_dim=D, **more)


def total(mixer=None, ffn=FFN, **more):
    return count_params(model(mixer or attention(), ffn, layers=L, hidden=H, vocab=V, **more)).total


def added(mixer=None, ffn=FFN, **more):
    """Return parameters a layer more than plain attention and a plain feed-forward have."""
    return (total(mixer, ffn, **more) - total()) / L


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"qk_norm": True}, 2 * D),
        ({"qk_norm": True, "qk_norm_over": "heads"}, (N + K) * D),
        ({"qk_norm": True, "qk_norm_over": "all"}, (N + K) * D),
        ({"qk_norm": True, "qk_norm_bias": True}, 2 * 2 * D),
        ({"qk_norm": True, "qk_norm_over": "heads", "qk_norm_bias": True}, 2 * (N + K) * D),
        ({"qk_norm_bias": True}, 0),
        ({"sinks": True}, N),
        ({"gate": "head"}, H * N),
        ({"gate": "wide"}, H * N * D),
        ({"sub_norm": True}, N * D),
        ({"v_dim": 16}, -16 * H * (K + N)),
        ({"v_from_k": True}, -H * K * D),
        ({"kv_shared": True}, -2 * H * K * D),
        ({"kv_shared": True, "qkv_bias": True}, N * D - 2 * H * K * D),
        ({"v_from_k": True, "qkv_bias": True}, (N + K) * D - H * K * D),
        ({"window": 8}, 0),
        ({"chunk": 8}, 0),
        ({"post_norm": True}, H),
        ({"pre_norm": False, "post_norm": True}, 0),
        ({"norm_bias": True}, H),
        ({"norm_weight": False}, -H),
    ],
    ids=str,
)
def test_attention_parameters(fields, more):
    assert added(attention(**fields)) == more


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"sub_norm": True}, F),
        ({"parallel": True}, 0),
        ({"parallel": True, "pre_norm": False}, -H),
        ({"post_norm": True, "norm_bias": True}, 3 * H),
    ],
    ids=str,
)
def test_feed_forward_parameters(fields, more):
    assert added(ffn=Ffn(width=F, **fields)) == more


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"bias": True}, 8 * (2 * 64 + H)),
        ({"bias": True, "gated": False}, 8 * (64 + H) - 8 * H * 64),
        ({"router_linear_bias": True}, 8),
        ({"router_scales": True}, H + 8),
        ({"branch_norms": 3}, 3 * H),
    ],
    ids=str,
)
def test_expert_parameters(fields, more):
    plain = Moe(experts=8, top_k=2, width=64)
    rich = Moe(experts=8, top_k=2, width=64, **fields)
    assert (total(ffn=rich) - total(ffn=plain)) / L == more


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"positions": 50}, 50 * H),
        ({"embedding_norm": True}, H),
        ({"embedding_norm": True, "norm_bias": True}, 3 * H),
        ({"norm_weight": False}, -H),
        ({"head_bias": True}, V),
    ],
    ids=str,
)
def test_the_ends(fields, more):
    assert total(**fields) - total() == more


def test_a_tower_is_counted_and_listed():
    patches = TowerPart(
        name="patches", over="patches", width=10, linears={"patches": Linear(rows=10, cols=20, bias=10)}
    )
    layers = TowerPart(
        name="layer", layers=3, runs=2, over="positions", width=10, linears={"mlp": Linear(rows=10, cols=10)}
    )
    tower = Tower(name="vision", parts=(patches, layers))
    count = count_params(model(attention(), FFN, layers=L, hidden=H, vocab=V, towers=(tower,)))
    assert count.by_kind["tower"] == 10 * 20 + 10 + 3 * 10 * 10
    assert count.total == total() + count.by_kind["tower"]


def test_an_expert_s_biases_are_idle_with_it():
    block = Moe(experts=8, top_k=2, width=64, bias=True)
    count = count_params(model(attention(), block, layers=L, hidden=H, vocab=V))
    assert count.total - count.active == L * 6 * (3 * H * 64 + 2 * 64 + H)


def test_what_a_layer_caches():
    assert kv_bytes_per_token(model(attention(), FFN)) == 2 * 2 * K * 2 * D
    assert kv_bytes_per_token(model(attention(v_dim=16), FFN)) == 2 * 2 * K * (D + 16)
    assert kv_bytes_per_token(model(attention(v_from_k=True), FFN)) == 2 * 2 * K * 2 * D
    assert kv_bytes_per_token(model(attention(kv_shared=True), FFN)) == 0
    assert keys_seen(1, None, 100, prefix=249.0) == 50
    assert keys_seen(1, None, 100, prefix=49.0) == 50


def test_chunks_attend_to_themselves():
    chunk = 7
    for new in range(1, 40):
        assert causal_pairs(float(new), None, chunk) == sum((i - 1) % chunk + 1 for i in range(1, new + 1))


def decode_pass(contexts):
    return lone_pass("decode", 1, contexts)


def simpson(low, high):
    return ((low, 1 / 6), ((low + high) / 2, 4 / 6), (high, 1 / 6))


@pytest.mark.parametrize(("low", "high"), [(10.0, 90.0), (50.0, 150.0), (110.0, 190.0), (50.0, 5000.0)])
def test_a_decode_sees_its_chunk_so_far_on_average(low, high):
    got = sum(one.keys * one.share for one in seen(decode_pass(simpson(low, high)), None, 100))
    fine = np.linspace(low, high, 1_000_001)
    assert got == pytest.approx(np.mean(np.where(fine <= 100, fine, fine % 100)), rel=1e-4)


def test_one_long_context_stands_anywhere_in_its_chunk():
    assert seen(decode_pass(((90.0, 1.0),)), None, 100) == ((90.0, 90.0, 1.0),)
    assert seen(decode_pass(((1000.0, 1.0),)), None, 100) == ((50.0, 50.0, 1.0),)


def step(spec, workload=None, sizes=None, batch=64):
    problem = make_problem(spec, machine(), workload or decode(1000), backend="roofline")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch))


def core(got):
    return [op for op in got.ops if op.name == "attention-core"]


def test_a_layer_that_shares_k_and_v_reads_them_and_writes_nothing():
    own, shared = (step(model(attention(kv_shared=flag), FFN)) for flag in (False, True))
    assert [op.traffic_bytes["kv"] for op in core(own)] == [op.traffic_bytes["kv"] for op in core(shared)]
    assert not any("kv-write" in op.name for op in shared.ops)
    assert shared.memory.kv_bytes_per_sequence == 0


@pytest.mark.parametrize("workload", [decode(1000), prefill(1000)], ids=["decode", "prefill"])
def test_a_narrow_v_costs_less_in_the_core(workload):
    whole, half = (core(step(model(attention(v_dim=v), FFN), workload))[0] for v in (D, D // 2))
    assert half.flops == whole.flops * 3 / 4
    assert half.traffic_bytes["kv"] == whole.traffic_bytes["kv"] * 3 / 4


def messages(spec, tp):
    problem = make_problem(spec, machine(axis(tp)), decode(1000), backend="roofline")
    got = estimate(problem, Deployment(sizes=Sizes(tp=tp), batch=64))
    return [op.name for op in got.ops if op.name.startswith("qk-norm")]


def test_a_norm_over_all_heads_needs_the_sums_of_every_rank():
    assert messages(model(attention(qk_norm=True, qk_norm_over="all"), FFN), 2) == ["qk-norm(tp)"]
    assert messages(model(attention(qk_norm=True, qk_norm_over="heads"), FFN), 2) == []
    assert messages(model(attention(qk_norm=True), FFN), 2) == []


def test_a_feed_forward_beside_attention_is_reduced_with_it():
    one_after_other, beside = (
        len(step(model(attention(), Ffn(width=F, parallel=p, pre_norm=not p), layers=1)).ops) for p in (False, True)
    )
    assert beside < one_after_other


def test_more_norms_take_more_time():
    plain = step(model(attention(), FFN))
    both = step(model(attention(post_norm=True), Ffn(width=F, post_norm=True)))
    moved = model(attention(pre_norm=False, post_norm=True), Ffn(width=F, pre_norm=False, post_norm=True))
    assert both.step_s > plain.step_s
    assert step(moved).step_s == plain.step_s


def test_memory_holds_what_is_at_the_ends():
    bare = model(attention(), FFN, hidden=H, vocab=V)
    sizes = dict.fromkeys(("r", "pp", "dpa", "tp", "ep", "etp", "dcp"), np.ones(1))
    multiplicities = np.array([[[2.0], [1.0], [1.0], [0.0]]])
    ends = {"positions": 50, "embedding_norm": True, "norm_bias": True, "head_bias": True}
    layers = TowerPart(
        name="layer",
        layers=3,
        over="positions",
        width=10,
        linears={"mlp": Linear(rows=10, cols=10)},
        norms={"norm": 20},
    )
    tower = Tower(name="vision", parts=(layers,))
    rich = model(attention(), FFN, hidden=H, vocab=V, towers=(tower,), **ends)
    held = [
        footprint(spec, sizes, multiplicities, length=10, room_bytes=1e9).weights_bytes[0, 0] for spec in (bare, rich)
    ]
    assert held[0] == 2 * count_params(bare).total
    assert held[1] == 2 * count_params(rich).total
