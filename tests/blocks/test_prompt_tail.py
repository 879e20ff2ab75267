"""Layers that take a prompt's tail alone: work by a loop over layers, what is made of all tokens, and laws."""

import msgspec
import pytest
from blocks.made_up import axis, decode, extend, machine, prefill, verify
from blocks.test_compressed import attention, indexer
from hypothesis import given
from hypothesis import strategies as st

from inferometer.api.load import load_model
from inferometer.estimate.count import Counting, count_ops, default_plans
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.estimate.precision import stored_precision
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Attention
from inferometer.specs.model import Layer, ModelSpec

V41 = load_model("deepseek-v4.1-flash")
W, B = 128, 3
SOURCES, CHOOSERS = (2, 8, 14, 20), (2, 8, 14, 20, 24, 28, 32, 36)
STREAMS = 24 * 4 * 5120 + 24 * 5120
"""Multiply-adds of a token's streams at a block: 24 weights of 4 H, and 24 sums of H."""
H, N, D, Q, GROUPS, RANK, V = 5120, 64, 512, 1280, 8, 1024, 129280


def untailed(spec):
    layers = tuple(msgspec.structs.replace(layer, prompt_tail=None) for layer in spec.layers)
    return msgspec.structs.replace(spec, layers=layers)


def counted(spec, workload, batch=1, sizes=None):
    plans = default_plans(workload)
    of = Counting(model=spec, workload=workload, precision=stored_precision(spec), batch=batch, plans=plans)
    return count_ops(of, sizes or Sizes())


def flops(ops, *kinds):
    return sum(op.flops * op.times for op in ops if not kinds or op.kind in kinds)


def matrices(layer):
    """Return the multiply-adds of a token in a layer of V4.1, without what sources make of it.

    Attention: q_a, q_b, kv, out_a, out_b, and where it chooses index queries and weights. Experts: 6 and a shared one,
    and the router. Streams at both.
    """
    found = Q * H + N * D * Q + D * H + RANK * N * D + H * GROUPS * RANK
    found += (32 * 128 * Q + 32 * H) if layer in CHOOSERS else 0
    found += 7 * 3 * H * 2304 + 384 * H
    return found + 2 * STREAMS


def made(layer):
    """Return the multiply-adds of a token in a source: kv and gate of two tokens an entry, or kv alone; index keys."""
    if layer not in SOURCES:
        return 0
    per_entry = 1 if layer >= 20 else 2
    return per_entry * D * H + 128 * D // per_entry


def reads(layer, token):
    """Return the multiply-adds of token `token`, counted from one, over window and entries, and over index keys."""
    ratio = 0 if layer < 2 else 2 if layer < 20 else 1
    entries = token // ratio if ratio else 0
    scored = min(entries, 2048 * 8 if layer > 20 else entries)
    return 2 * N * D * (min(token, W) + min(entries, 512)) + (32 * 128 * scored if layer in CHOOSERS else 0)


def by_layer(new, prefix):
    """Return the arithmetic of a prompt behind a prefix: head, n-gram tables, and layer by layer."""
    work = H * V + 2 * new * (5 * H * 24 * 256)
    for layer in range(40):
        stopped = 0 if layer < 20 else max(new - W, 0)
        rows = range(prefix + stopped + 1, prefix + new + 1)
        work += len(rows) * matrices(layer) + new * made(layer) + sum(reads(layer, token) for token in rows)
        work += stopped * STREAMS if layer == SOURCES[-1] else 0
    return 2 * work


@pytest.mark.parametrize(("new", "prefix"), [(100, 0), (128, 0), (130, 0), (700, 0), (300, 1000), (50, 400)])
def test_a_prompt_s_arithmetic_by_a_loop_over_layers(new, prefix):
    assert flops(counted(V41, extend(new, prefix))) == pytest.approx(by_layer(new, prefix), rel=1e-12)
    if not prefix:
        assert counted(V41, prefill(new)) == counted(V41, extend(new, 0))


def test_a_prompt_s_token_meets_half_the_active_parameters():
    """Published: 8B of a prompt's token, 16B of a generated one; by our facts 7.90e9."""
    kinds = ("gemm", "grouped-gemm")
    more = (flops(counted(V41, prefill(n)), *kinds) for n in (1000, 2000))
    each = abs(next(more) - next(more)) / 1000 / 2
    assert each == pytest.approx(7.90e9, rel=2e-3)
    assert flops(counted(V41, decode(1000)), *kinds) / 2 == pytest.approx(16.13e9, rel=2e-3)


@pytest.mark.parametrize(
    "workload",
    [prefill(100), prefill(W), extend(W, 5000), decode(5000), verify(3, 5000), prefill(900, all_token_logits=True)],
    ids=["short", "window", "extend", "decode", "verify", "all-logits"],
)
def test_where_all_tokens_go_through_nothing_changes(workload):
    ours, theirs = (counted(spec, workload, batch=4, sizes=Sizes(tp=4, ep=4)) for spec in (V41, untailed(V41)))
    assert ours == theirs


def step(spec, workload, batch=B, sizes=None):
    shape = sizes or Sizes()
    problem = make_problem(spec, machine(axis(shape.n_chips)), workload, backend="roofline", scheduler="serial")
    return estimate(problem, Deployment(sizes=shape, batch=batch))


@pytest.mark.parametrize("prefix", [0, 700])
def test_a_longer_prompt_never_takes_less(prefix):
    """Also where the first token stops before the tail: there the window is charged as if it were all there."""
    news = [*range(1, 12), *range(120, 140), 200, 1000]
    times = [step(V41, extend(new, prefix), batch=1).step_s for new in news]
    assert times == sorted(times)


def test_the_memory_of_a_pass_is_as_before():
    ours, theirs = (step(spec, prefill(1000), sizes=Sizes(tp=4, ep=4)) for spec in (V41, untailed(V41)))
    assert ours.memory == theirs.memory
    assert ours.step_s < theirs.step_s


def op(ops, name, segment):
    return next(one for one in ops if (one.name, one.segment) == (name, segment))


@pytest.mark.parametrize(("ratio", "keys"), [(1, "latent"), (4, "compressed")])
def test_what_later_tokens_read_is_made_of_all(ratio, keys):
    """Layer 0 as any, layer 1 makes entries and index keys of n tokens, and attends with the last t alone."""
    new, tail = 1000, 200
    own = indexer(512, pool=ratio)
    maker = attention(ratio, q_rank=64, heads=8, gated=ratio > 1, overlap=False, indexer=own, index_keys=keys)
    spec = made_up((attention(0, q_rank=64, heads=8), maker), (None, tail))
    ops = counted(spec, prefill(new), batch=B)
    first, last = ([one for one in ops if one.segment == f"layer-{i}"] for i in (0, 1))
    matrix = next(one for one in last if one.name.startswith("compress_kv"))
    assert matrix.flops == 2 * B * new * 256 * 512 * (2 if ratio > 1 else 1)
    keyed = next(one for one in last if one.name in ("index_k", "index_kv+index_gate"))
    assert keyed.flops == 2 * B * new * (512 * 128 if ratio == 1 else 256 * 2 * 128)
    entry, key = 512 * 2, 128 * 2
    kept = sum(one.traffic_bytes.get("kv", 0.0) for one in last if one.kind == "elementwise")
    assert kept == B * (tail * entry + new / ratio * (entry + key))
    wide = {name: op(first, name, "layer-0").flops for name in ("q_b", "out_b", "down")}
    assert {name: op(last, name, "layer-1").flops * new / tail for name in wide} == pytest.approx(wide)
    norms = {name: op(last, name, "layer-1").traffic_bytes["activations"] for name in ("mixer.norm", "ffn.norm")}
    assert norms == {"mixer.norm": B * new * 4 * 256 * 2, "ffn.norm": B * tail * 4 * 256 * 2}


def made_up(mixers, tails, **more):
    layers = tuple(Layer(mixer=i, ffn=0, prompt_tail=tail) for i, tail in enumerate(tails))
    fields = {"name": "made-up", "architecture": "made-up", "hidden": 256, "vocab": 1000, "max_context": 1 << 17}
    return ModelSpec(
        **fields, mixers=mixers, ffns=(Ffn(width=512),), layers=layers, tied=False, dtype="bf16", source="tests", **more
    )


def test_experts_behind_the_tail_are_those_of_its_tokens():
    """One layer, all routed: E(1 - (1 - k/E)^t) distinct of t tokens, not of n."""
    moe = Moe(experts=64, top_k=2, width=128)
    spec = msgspec.structs.replace(made_up((attention(0, heads=8, q_rank=64),), (W,)), ffns=(moe,))
    got = next(one for one in counted(spec, prefill(1000)) if one.name == "experts.down")
    assert got.flops == 2 * W * 2 * 128 * 256
    assert got.traffic_bytes["weights"] == pytest.approx(64 * (1 - (1 - 2 / 64) ** W) * 128 * 256 * 2)


WINDOW = attention(0)


@pytest.mark.parametrize(
    ("mixers", "tails", "problem"),
    [
        ((WINDOW, WINDOW), (128, None), "layer 1 takes more of a prompt"),
        ((WINDOW, WINDOW), (128, 200), "layer 1 takes more of a prompt"),
        ((WINDOW,), (127,), "layer 0 reads keys"),
        ((Attention(heads=8, kv_heads=2, head_dim=32),), (128,), "layer 0 reads keys"),
        ((attention(4), attention(128)), (128, 128), "layer 1 makes entries"),
    ],
)
def test_layers_without_what_they_read_are_refused(mixers, tails, problem):
    with pytest.raises(ValueError, match=problem):
        made_up(mixers, tails)


@given(st.integers(1, 600), st.integers(0, 600), st.integers(1, 5))
def test_a_tail_as_long_as_the_prompt_is_the_whole(new, prefix, batch):
    mixers = (
        attention(4, heads=8, q_rank=64),
        attention(4, heads=8, q_rank=64, entries_shared=True, index_keys="shared"),
    )
    whole, tailed = (made_up(mixers, tails) for tails in ((None, None), (new + W, new + W)))
    assert counted(whole, extend(new, prefix), batch) == counted(tailed, extend(new, prefix), batch)
