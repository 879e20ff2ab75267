"""Residual schemes by hand, and what stages send."""

import pytest
from blocks.made_up import axis, decode, machine, model

from inferometer.blocks.params import count_params
from inferometer.blocks.residual import stored, vectors
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention
from inferometer.specs.residual import AttentionResiduals, GatedStreams, HyperConnections

H, L, N, B = 256, 6, 4, 64
ATTENTION = Attention(heads=8, kv_heads=8, head_dim=32)
FFN = Ffn(width=512)
PLAIN = None
MHC = HyperConnections(streams=N)
IHC = HyperConnections(streams=N, mixes=False)
GATED = GatedStreams(streams=N, rank=32)
STORED = AttentionResiduals(every=2)
SCHEMES = [MHC, IHC, HyperConnections(streams=N, head=False), GATED, STORED, AttentionResiduals(every=2, norm=False)]


def spec(residual):
    return model(ATTENTION, FFN, layers=L, hidden=H, residual=residual)


@pytest.mark.parametrize(
    ("residual", "block", "final"),
    [
        (MHC, 24 * 4 * H + 24 + 3, 4 * 4 * H + 4 + 1),
        (IHC, 8 * 4 * H + 8 + 2, 4 * 4 * H + 4 + 1),
        (HyperConnections(streams=N, head=False), 24 * 4 * H + 24 + 3, 0),
        (GATED, 4 * H + 2 * 32 * 4 * H + 4 * 4 * H, 4 * H + 2 * 32 * 4 * H),
        (STORED, 2 * H, 2 * H),
        (AttentionResiduals(every=2, norm=False), H, H),
    ],
)
def test_parameters_of_two_blocks_a_layer_and_the_end(residual, block, final):
    count, plain = (count_params(spec(each)) for each in (residual, PLAIN))
    assert count.total - plain.total == 2 * L * block + final
    assert count.by_kind["residual"] == 2 * L * block + final


def test_hyper_connections_are_stored_in_fp32():
    count, plain = (count_params(spec(each)) for each in (MHC, PLAIN))
    assert count.checkpoint_bytes - plain.checkpoint_bytes == 4 * (count.total - plain.total)


def step(residual, sizes=None, chips=1):
    problem = make_problem(spec(residual), machine(axis(chips)), decode(64), backend="roofline", scheduler="serial")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=B))


def rows(got, name):
    return [op for op in got.ops if op.name == name]


@pytest.mark.parametrize("place", ["mixer.residual", "ffn.residual"])
def test_streams_are_read_and_written_around_every_block(place):
    """fn: 2 24 4H; collapse, spread, mix: 2 24 H. 4H read and 4H written, of which the norm counts one each."""
    (op,) = rows(step(MHC), place)
    assert op.flops == B * (2 * 24 * 4 * H + 2 * 24 * H)
    assert op.traffic_bytes["weights"] == 4 * (24 * 4 * H + 24 + 3)
    assert op.traffic_bytes["activations"] == B * (4 + 4 - 2) * H * 2
    assert op.layers == L


def brute_stored(every, layers):
    """Walk the layers: a mixer reads what is stored; at a group's start the stream is stored before the ffn."""
    held, seen = 0, []
    for layer in range(layers):
        seen.append(held)
        held += layer % every == 0
        seen.append(held)
    return sum(seen) / len(seen)


@pytest.mark.parametrize("every", [1, 2, 3, 12])
@pytest.mark.parametrize("layers", [1, 6, 93])
def test_what_is_stored_is_as_walked(every, layers):
    assert stored(AttentionResiduals(every=every), layers) == pytest.approx(brute_stored(every, layers), rel=1e-12)


def test_stored_vectors_are_read_by_every_block():
    (op,) = rows(step(STORED), "ffn.residual")
    seen = brute_stored(2, L)
    assert op.traffic_bytes["activations"] == pytest.approx(B * (seen + 1 / 4) * H * 2)
    assert op.flops == pytest.approx(B * 4 * (seen + 1) * H)


@pytest.mark.parametrize(("residual", "carried"), [(PLAIN, 1), (MHC, 4), (GATED, 4), (STORED, 1 + brute_stored(2, L))])
def test_stages_send_all_that_a_token_carries(residual, carried):
    got = step(residual, Sizes(pp=2), chips=2)
    (send,) = rows(got, "send(pp)")
    assert send.traffic_bytes["message"] == pytest.approx(B / 2 * carried * H * 2)
    assert vectors(spec(residual)) == carried


@pytest.mark.parametrize("residual", SCHEMES)
def test_every_rank_of_tp_holds_it_whole(residual):
    plain = count_params(spec(PLAIN)).checkpoint_bytes
    more = count_params(spec(residual)).checkpoint_bytes - plain
    own, without = (step(each, Sizes(tp=4), chips=4).memory.weights_bytes for each in (residual, PLAIN))
    assert own - without == more


@pytest.mark.parametrize("residual", SCHEMES)
def test_a_scheme_takes_time(residual):
    assert step(residual).step_s > step(PLAIN).step_s
