"""Bytes a chip holds against published cases, conservation over chips, and the sequences that fit by counting up."""

from fractions import Fraction

import msgspec
import numpy as np
import pytest
from blocks.made_up import model
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models

from inferometer.blocks.kinds import heads, is_moe
from inferometer.blocks.model import unit_count
from inferometer.blocks.params import all_tensors, count_params
from inferometer.catalog.loader import preset_config
from inferometer.errors import InferometerError
from inferometer.estimate.candidates import make_shardings
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import Footprint, Reserve, footprint, kv_bytes_per_token
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention, Beside, Mla

GIB = 2.0**30
ROLES = ("r", "pp", "dpa", "tp", "ep", "etp", "dcp")


def preset(name):
    found = preset_config(name)
    return model_from_config(found.config, name=found.id, source=found.source, sidecar=found.quant_sidecar)


def held(spec, *, length=1, room=1e15, state_slots=1, **sizes):
    columns = {role: np.array([float(sizes.get(role, 1))]) for role in ROLES}
    made = make_shardings(spec, columns, "even")
    got = footprint(spec, columns, made.multiplicities, length=length, room_bytes=room, state_slots=state_slots)
    return got, made


def one_chip(spec, **more):
    got, _ = held(spec, **more)
    return float(got.weights_bytes.max()), float(got.kv_bytes_per_sequence.max())


def test_llama_70b_has_70553706496_parameters_in_131_4165_gib():
    spec = preset("meta-llama-3.1-70b")
    weights, _ = one_chip(spec)
    assert count_params(spec).total == 70_553_706_496
    assert weights == 2 * 70_553_706_496
    assert weights / GIB == pytest.approx(131.4165, abs=5e-5)


def test_qwen3_235b_keeps_48128_bytes_a_token_a_gpu_at_tp4():
    _, kv = one_chip(preset("qwen3-235b-a22b-fp8"), tp=4, ep=1, etp=4)
    assert kv == 94 * 2 * (4 / 4) * 128 * 2 == 48_128


def test_a_kv_head_is_copied_where_tp_exceeds_the_heads():
    _, kv = one_chip(preset("qwen3-235b-a22b-fp8"), tp=8, ep=8)
    assert kv == 94 * 2 * 1 * 128 * 2


def test_context_parallel_ranks_share_the_copies():
    _, kv = one_chip(preset("qwen3-235b-a22b-fp8"), tp=8, ep=8, dcp=2)
    assert kv == 94 * 2 * 1 * 128 * 2 / 2


KV = {
    "qwen3-0.6b": (40_960, 28 * 2 * 8 * 128 * 2, 4.375),
    "deepseek-v3": (163_840, 61 * (512 + 64) * 2, 10.72),
    "kimi-k2-instruct": (262_144, 61 * (512 + 64) * 2, 17.16),
    "qwen3.5-27b": (262_144, 16 * 2 * 4 * 256 * 2, 16.0),
}


@pytest.mark.parametrize("name", KV)
def test_kv_of_one_sequence_at_full_context(name):
    length, per_token, gib = KV[name]
    spec = preset(name)
    _, kv = one_chip(spec, length=length)
    assert kv_bytes_per_token(spec) == per_token
    assert kv == per_token * length
    assert kv / GIB == pytest.approx(gib, rel=1e-3)


def test_kv_of_one_sequence_of_windows_and_global_layers():
    _, kv = one_chip(preset("gemma-3-27b-it"), length=131_072)
    assert kv == 2 * 16 * 128 * 2 * (10 * 131_072 + 52 * 1024)
    assert kv / GIB == pytest.approx(10.41, rel=1e-3)


def test_a_window_keeps_no_more_than_itself():
    local = Attention(heads=16, kv_heads=16, head_dim=128, window=1024)
    assert one_chip(model(local, Ffn(width=256), layers=52), length=131_072)[1] == 52 * 2 * 16 * 128 * 2 * 1024
    assert one_chip(model(local, Ffn(width=256), layers=52), length=100)[1] == 52 * 2 * 16 * 128 * 2 * 100


def test_the_latent_is_copied_over_tp():
    spec = model(Mla(heads=8, q_rank=None, kv_rank=64, nope_dim=32, rope_dim=16, v_dim=32), Ffn(width=256))
    assert one_chip(spec, tp=8)[1] == one_chip(spec)[1] == 2 * (64 + 16) * 2
    assert one_chip(spec, tp=8, dcp=4)[1] == 2 * (64 + 16) * 2 / 4


@given(models())
def test_one_chip_holds_the_checkpoint(spec):
    assert one_chip(spec)[0] == pytest.approx(count_params(spec).checkpoint_bytes, abs=1)


@settings(max_examples=200)
@given(models(), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4)), st.data())
def test_the_chips_of_a_stage_hold_every_tensor_once_a_copy(spec, tp, dpa, data):
    """Sum over chips = bytes x copies; a tensor in S shards has (chips / S) copies. bf16, so that no block is cut."""
    spec = unquantised(spec)
    if not is_moe(spec):
        dpa = 1
    stage = tp * dpa
    ep = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if stage % n == 0]))
    sizes = {"tp": tp, "dpa": dpa, "ep": ep, "etp": stage // ep} if is_moe(spec) else {"tp": tp}
    counts = [
        count for mixer in spec.mixers if not isinstance(mixer, Mla) for h in heads(mixer) for count in (h.kv, h.groups)
    ]
    if tp > min(filter(None, counts), default=16):
        return
    shards = {"tp": tp, "kv": tp, "groups": tp, "ep": ep, "etp": stage // ep if is_moe(spec) else 1, "": 1}
    got, _ = held(spec, **sizes)
    expected = 0.0
    for tensor, times in all_tensors(spec):
        split = shards[tensor.split_rows] * shards[tensor.split_cols] * shards[tensor.split_count]
        width = {"fp32": 4, "int64": 8}.get(tensor.format, 2)
        expected += tensor.params * times * width * (stage / split)
    assert stage * float(got.weights_bytes[0, 0]) == pytest.approx(expected, rel=1e-12)


def unquantised(spec):
    def plain(block):
        if isinstance(block, Beside):
            return msgspec.structs.replace(block, parts=tuple(map(plain, block.parts)))
        return msgspec.structs.replace(block, formats={})

    return msgspec.structs.replace(
        spec,
        mixers=tuple(map(plain, spec.mixers)),
        ffns=tuple(map(plain, spec.ffns)),
        head_format=None,
    )


@given(models(), st.integers(1, 8))
def test_stages_hold_the_layers_between_them(spec, pp):
    """Over all stages the weights are the checkpoint's; a tied table is held again where the head stands alone."""
    if pp <= unit_count(spec):
        got, made = held(spec, pp=pp, length=100)
        whole, kv = one_chip(spec, length=100)
        table = 2 * (spec.vocab + spec.more_rows) * spec.hidden
        stages = made.stage_counts[:, 0]
        again = table if spec.tied and pp > 1 else 0
        assert float(got.weights_bytes[:, 0] @ stages) == pytest.approx(whole + again, rel=1e-12)
        assert float(got.kv_bytes_per_sequence[:, 0] @ stages) == pytest.approx(kv, rel=1e-12)


bytes_held = st.one_of(st.integers(0, 10**12), st.floats(0, 1e12))


@given(st.lists(st.tuples(bytes_held, st.floats(1e3, 1e9)), min_size=1, max_size=4), st.integers(1, 10**12))
def test_sequences_are_the_most_that_fit(stages, room):
    weights = np.array([[w] for w, _ in stages], dtype=float)
    kv = np.array([[k] for _, k in stages], dtype=float)
    fits = Footprint(weights, np.zeros_like(weights), kv, np.zeros_like(kv), np.ones(1), float(room)).sequences()[0]

    def fit(n):
        return all(Fraction(w) + n * Fraction(k) <= room for w, k in zip(weights[:, 0], kv[:, 0], strict=True))

    if fits < 0:
        assert not fit(0)
    else:
        assert fit(int(fits) * (1 - Fraction(1, 10**12)))
        assert not fit((int(fits) + 1) * (1 + Fraction(1, 10**12)))


@given(models(), st.sampled_from((1, 2, 3)), st.integers(1, 5000), st.integers(1 << 20, 1 << 36))
def test_one_more_sequence_does_not_fit(spec, pp, length, room):
    if pp <= unit_count(spec):
        got, _ = held(spec, pp=pp, length=length, room=float(room))
        fits = int(got.sequences()[0])

        def fullest(n):
            return float((got.weights_bytes + n * got.bytes_per_sequence).max())

        assert fullest(fits + 1) > room
        if fits >= 0:
            assert fullest(fits) <= room


def test_activations_of_a_pass_are_its_residual_stream_and_the_outputs_of_its_widest_block():
    hidden, width = 256, 768
    got, _ = held(model(Attention(heads=8, kv_heads=2, head_dim=32), Ffn(width=width), hidden=hidden), tp=2)
    per_token = 2 * (2 * hidden + 2 * width / 2 + hidden)
    assert got.activation_bytes_per_token[0] == per_token
    assert got.tokens_per_pass(10.5 * per_token)[0] == 10


def test_a_reserve_is_a_share_or_bytes():
    assert Reserve().of(100.0) == 0.1 * 100
    assert Reserve(share=0.25).of(100.0) == 0.25 * 100
    assert Reserve(fixed_bytes=7).of(100.0) == 7


def test_a_share_bounds_the_activations_and_bytes_do_not():
    assert Reserve(share=0.25).for_activations(100.0) == 0.25 * 100
    assert Reserve(fixed_bytes=7).for_activations(100.0) == float("inf")


@pytest.mark.parametrize("reserve", [Reserve(share=1.0), Reserve(share=-0.1), Reserve(fixed_bytes=100)])
def test_a_reserve_leaves_something(reserve):
    with pytest.raises(InferometerError, match="leaves nothing"):
        reserve.of(100.0)
