"""What fills the sizes left out, in both spellings."""

import pytest

from inferometer.api.legal_sizes import legal_sizes
from inferometer.api.load import load_model
from inferometer.api.sizes import EngineFlags, chips_of, engine_sizes, fill_sizes, parse_sizes
from inferometer.errors import InferometerError
from inferometer.specs.deployment import Sizes


@pytest.mark.parametrize(
    ("text", "n_chips", "expected"),
    [
        ("TP=16", 16, Sizes(tp=16, ep=16)),
        ("DPA=16", 32, Sizes(dpa=16, tp=2, ep=32)),
        ("DPA=16,TP=2,EP=32", 32, Sizes(dpa=16, tp=2, ep=32)),
        ("EP=8", 16, Sizes(tp=16, ep=8, etp=2)),
        ("ETP=16", 16, Sizes(tp=16, ep=1, etp=16)),
        ("ETP=4", 16, Sizes(tp=16, ep=4, etp=4)),
        ("R=2,PP=2,DPA=2", 16, Sizes(r=2, pp=2, dpa=2, tp=2, ep=4)),
        ("TP=4,DPA=4,DCP=2", 16, Sizes(dpa=4, tp=4, ep=16, dcp=2)),
    ],
)
def test_moe(text, n_chips, expected):
    filled = fill_sizes(parse_sizes(text), n_chips, moe=True)
    assert filled == expected
    assert filled.r * filled.pp * filled.dpa * filled.tp == n_chips
    assert filled.r * filled.pp * filled.ep * filled.etp == n_chips


@pytest.mark.parametrize(
    ("text", "expected"), [("R=2", Sizes(r=2, tp=4)), ("PP=8", Sizes(pp=8)), ("TP=8,DCP=4", Sizes(tp=8, dcp=4))]
)
def test_dense(text, expected):
    assert fill_sizes(parse_sizes(text), 8, moe=False) == expected


def test_nothing_given_is_tensor_parallel():
    assert fill_sizes({}, 8, moe=False) == Sizes(tp=8)
    assert fill_sizes({}, 8, moe=True) == Sizes(tp=8, ep=8)


@pytest.mark.parametrize(
    ("flags", "moe", "expected"),
    [
        (EngineFlags(tensor=8), True, Sizes(dpa=1, tp=8, ep=1, etp=8)),
        (EngineFlags(tensor=8, enable_expert=True), True, Sizes(tp=8, ep=8)),
        (EngineFlags(tensor=1, data=8, enable_expert=True), True, Sizes(dpa=8, ep=8)),
        (EngineFlags(tensor=1, data=8), True, Sizes(dpa=8, ep=1, etp=8)),
        (EngineFlags(tensor=4, data=2, expert=8, enable_expert=True), True, Sizes(dpa=2, tp=4, ep=8)),
        (EngineFlags(tensor=4, data=2, expert=4), True, Sizes(dpa=2, tp=4, ep=4, etp=2)),
        (EngineFlags(tensor=4, pipeline=2, decode_context=2), True, Sizes(pp=2, tp=4, etp=4, dcp=2)),
        (EngineFlags(tensor=4, data=2), False, Sizes(r=2, tp=4)),
        (EngineFlags(pipeline=8), False, Sizes(pp=8)),
    ],
)
def test_engine_spelling(flags, moe, expected):
    assert fill_sizes(engine_sizes(flags, moe=moe), 8, moe=moe) == expected


def test_engine_spelling_for_experts_is_for_moe():
    with pytest.raises(InferometerError, match="dense"):
        engine_sizes(EngineFlags(expert=2), moe=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"tp": 8, "ep": 8}, 8), ({"r": 2, "tp": 4}, 8), ({"pp": 2, "ep": 4, "etp": 2}, 16), ({}, None), ({"dcp": 2}, 1)],
)
def test_chips_that_sizes_span(given, expected):
    assert chips_of(given) == expected


def test_expert_parallel_twice_said_must_agree():
    with pytest.raises(InferometerError, match="1 x 1 x 4 x 1 = 4, but the machine has 8 chips"):
        fill_sizes(engine_sizes(EngineFlags(tensor=8, expert=4, enable_expert=True), moe=True), 8, moe=True)


@pytest.mark.parametrize(
    ("model", "n_chips", "expected"),
    [
        ("deepseek-v3", 72, Sizes(dpa=9, tp=8, ep=72)),  # 128 heads: 72, 36, 24, 18, 12, 9 do not divide them
        ("deepseek-v3", 16, Sizes(tp=16, ep=16)),
        ("llama-3.1-8b", 48, Sizes(r=3, tp=16)),  # 32 heads
    ],
)
def test_what_is_left_out_is_legal_for_the_model(model, n_chips, expected):
    assert legal_sizes(load_model(model), {}, n_chips) == expected


def test_a_tp_that_is_asked_for_stays():
    assert legal_sizes(load_model("deepseek-v3"), {"tp": 72}, 72) == Sizes(tp=72, ep=72)
