"""Experts behind a latent, zero experts, hashed routing and routed shared experts, by hand."""

import pytest
from blocks.made_up import axis, decode, machine, model

from inferometer.blocks.params import count_params
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, EngineSpec, Sizes
from inferometer.specs.feedforward import Moe
from inferometer.specs.mixers import Attention

H, HL, E, K, F, L, V = 256, 64, 16, 4, 128, 2, 1000
ATTENTION = Attention(heads=8, kv_heads=8, head_dim=32)
PLAIN = Moe(experts=E, top_k=K, width=F)


def experts(**more):
    return Moe(experts=E, top_k=K, width=F, **more)


def counted(block):
    return count_params(model(ATTENTION, block, layers=L, hidden=H, vocab=V))


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"latent_width": HL}, 2 * H * HL - 3 * E * F * (H - HL)),
        ({"latent_width": HL, "latent_norm": True}, 2 * H * HL + HL - 3 * E * F * (H - HL)),
        ({"latent_width": HL, "gated": False}, 2 * H * HL - E * F * (3 * H - 2 * HL)),
        ({"zero_experts": 8}, 8 * H),
        ({"zero_experts": 8, "router_bias": True}, 8 * H + 24),
        ({"routed_shared": 2}, 2 * H),
        ({"hash_vocab": V}, 0),
    ],
    ids=str,
)
def test_parameters(fields, more):
    assert (counted(experts(**fields)).total - counted(PLAIN).total) / L == more


def test_a_table_of_hashed_routing_takes_eight_bytes_an_expert():
    more = counted(experts(hash_vocab=V)).checkpoint_bytes - counted(PLAIN).checkpoint_bytes
    assert more == L * V * K * 8


def test_a_token_is_active_in_the_experts_it_is_sent_to():
    count = counted(experts(zero_experts=8))
    assert count.total - count.active == L * 3 * H * F * (E - K * E / (E + 8))


def ops(block, sizes=None, batch=64, *, dispatch="exchange", chips=4):
    engine = EngineSpec(name="one", version="", allows={"moe-dispatch": (dispatch,), "moe-exchange": ("expanded",)})
    spec = model(ATTENTION, block, layers=L, hidden=H, vocab=V)
    problem = make_problem(spec, machine(axis(chips)), decode(64), engine=engine, backend="roofline")
    return estimate(problem, Deployment(sizes=sizes or Sizes(dpa=4, ep=4), batch=batch)).ops


def message(found, start):
    return [op.traffic_bytes["message"] for op in found if op.name.startswith(start)]


@pytest.mark.parametrize("start", ["dispatch(", "combine("])
def test_what_travels_is_as_wide_as_the_latent(start):
    wide, narrow = (message(ops(block), start) for block in (PLAIN, experts(latent_width=HL)))
    assert narrow == [size * HL / H for size in wide]
    assert narrow


def test_a_latent_is_gathered_and_reduced_and_its_projection_too():
    """TP 4: 64 tokens of Hl are gathered and reduced behind the latent; what is projected back is reduced as H is."""
    sizes = Sizes(tp=4, ep=4)
    wide, narrow = (
        sum(op.traffic_bytes.get("message", 0) for op in ops(block, sizes, dispatch="gather"))
        for block in (PLAIN, experts(latent_width=HL))
    )
    assert narrow - wide == 2 * 64 * HL * 2


def test_latent_projections_are_dense():
    found = {op.name: op for op in ops(experts(latent_width=HL), Sizes(), chips=1)}
    assert found["latent_down"].flops == 2 * 64 * H * HL
    assert found["latent_up"].flops == 2 * 64 * H * HL
    assert found["latent_up"].traffic_bytes["weights"] == 2 * H * HL


def test_shared_experts_take_the_whole_width_and_are_reduced_with_what_the_latent_gives():
    found, alone = (ops(experts(latent_width=HL, shared_width=w), Sizes(tp=4, ep=4)) for w in (F, 0))
    assert next(op for op in found if op.name == "shared.down").flops == 2 * 64 * H * F / 4
    assert sum(op.traffic_bytes.get("message", 0) for op in found) == pytest.approx(
        sum(op.traffic_bytes.get("message", 0) for op in alone)
    )


def test_tp_splits_the_projections_of_a_latent():
    found = {op.name: op for op in ops(experts(latent_width=HL), Sizes(tp=4, ep=4))}
    assert found["latent_down"].flops == found["latent_up"].flops == 2 * 64 * H * HL / 4
    assert found["latent_down"].traffic_bytes["weights"] == 2 * H * HL / 4


def test_zero_experts_take_no_flops_and_no_messages():
    """Of four choices among 16 + 8, 8/3 are real."""
    share = E / (E + 8)
    plain, some = ({op.name: op for op in ops(b, Sizes(), chips=1)} for b in (PLAIN, experts(zero_experts=8)))
    for name in ("experts.gate+up", "experts.down"):
        assert some[name].flops == pytest.approx(plain[name].flops * share, rel=1e-12)
    assert some["router"].flops == 2 * 64 * H * (E + 8)
    assert message(ops(experts(zero_experts=8)), "dispatch(")[0] < message(ops(PLAIN), "dispatch(")[0]


def test_hashed_routing_looks_up_and_still_weighs():
    found = {op.name: op for op in ops(experts(hash_vocab=V), Sizes(), chips=1)}
    assert found["hash-lookup"].traffic_bytes["activations"] == 64 * K * 8
    assert "router" in found
