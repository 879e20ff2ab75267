"""Software of 2024: a scalar an engine and generation, on everything alike, and never on today's."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.catalog.loader import find_chip
from inferometer.cost.calibrated import calibrated_in, calibrated_with, create, load_serving
from inferometer.cost.eras import Era, Scalar, aged, load_eras
from inferometer.cost.factors import NAMES, Factors
from inferometer.cost.registry import create_backend
from inferometer.errors import InferometerError, UnknownNameError
from inferometer.graph.ops import OpKind, Traffic, Work
from inferometer.measurement.fit_eras import Ran, middle, runs, scalars
from inferometer.measurement.fit_eras import fit as fit_era
from inferometer.measurement.questions import fold_of
from inferometer.measurement.validate import asked_points, fold_backends

GENERATIONS = ("ampere", "hopper", "cdna3")


def of(times):
    """Return an era that takes so many times as long wherever it ran."""
    scalars = {name: Scalar(times=times, n=1, models=1) for name in GENERATIONS}
    return Era(name="x", of="x", common=times, scalars=scalars, folds=(), low=1.0, high=1.0, figures={})


def gemm(tokens, rows, cols):
    one = np.asarray(1.0)
    return Work(
        name="g",
        kind=OpKind.GEMM,
        dtype="bf16",
        flops=2.0 * tokens * rows * cols * one,
        traffic_bytes={
            Traffic.WEIGHTS: 2.0 * rows * cols * one,
            Traffic.ACTIVATIONS: 2.0 * tokens * (rows + cols) * one,
        },
        replication=one,
        shape="",
        rows=tokens * one,
        features=rows * one,
    )


@given(st.floats(1.0, 4.0), st.integers(1, 4096), st.sampled_from([1024, 8192]))
def test_an_op_takes_an_era_s_times_as_long(times, tokens, width):
    """Fixed times grow and shares of the peak fall by the same factor, so their sum is that factor of the whole."""
    chip, plain = find_chip("h100"), {name: Factors(basis="calibrated") for name in load_serving().factors}
    work = gemm(tokens, width, width)
    today = calibrated_with(plain).price(work, chip).total_s
    then = calibrated_with(aged(plain, of(times))).price(work, chip).total_s
    assert then == pytest.approx(times * today, rel=1e-9)


def test_what_is_not_known_of_a_generation_is_assumed():
    factors = {"hopper": Factors(basis="calibrated"), "tpu": Factors(basis="calibrated")}
    found = aged(factors, of(2.0))
    assert (found["hopper"].basis, found["tpu"].basis) == ("calibrated", "assumed")
    assert found["tpu"].fixed == 2.0
    assert {name: getattr(found["hopper"], name) for name in NAMES} == {
        "fixed": 2.0,
        "grouped": 2.0,
        "memory": 0.5,
        "flops": 0.5,
        "experts": 1.0,
        "messages": 2.0,
        "links": 0.5,
        "sequences": 2.0,
    }


def test_each_pair_weighs_the_same_and_few_are_drawn_to_all():
    """Ten rows of one pair at x1 and one row of each of two at x4: the median over pairs is x4."""
    found = [Ran("e", "hopper", "a|h100", 0, 0.0)] * 10
    found += [Ran("e", "cdna3", f"{m}|mi300x", 1, float(np.log(4))) for m in "bc"]
    assert np.exp(middle(found)) == pytest.approx(4)
    assert scalars(found) == {
        "common": 4.0,
        "hopper": pytest.approx(np.exp(np.log(4) + (0 - np.log(4)) * 1 / 2), rel=1e-2),
        "cdna3": 4.0,
    }


def test_the_file_is_what_its_command_writes():
    found = runs()
    for era in load_eras().eras:
        again = fit_era(era.name, [one for one in found if one.era == era.name])
        assert msgspec.to_builtins(again) == msgspec.to_builtins(era)


def test_rows_held_out_are_within_a_seventh_at_the_median():
    for era in load_eras().eras:
        assert era.figures["n"] > 100
        assert era.figures["median"] < 1 / 7
        assert abs(era.figures["bias"]) < 0.06


def test_a_row_of_an_era_is_priced_by_the_scalars_that_have_not_seen_its_pair():
    """Rows of Argonne and of TensorRT-LLM 0.14: each its fold's backend in its era, those of today without one."""
    era, names = load_eras().eras[0], [one.name for one in load_eras().eras]
    fold = next(i for i, known in enumerate(era.folds) if known.get("hopper") != era.scalars["hopper"].times)
    assert era.on("hopper", fold) == era.folds[fold]["hopper"] != era.on("hopper")
    assert era.on("tpu", fold) == era.folds[fold]["common"]
    put_to = fold_backends(create())
    asked = asked_points(("A", "C"))
    aged_ones = [one.question for one in asked if one.question.era]
    assert {question.era for question in aged_ones} == set(names)
    for question in {(q.setup.model, q.setup.chip, q.era): q for q in aged_ones}.values():
        own = put_to(question)
        expected = calibrated_in(question.era, fold_of(question.setup.model, question.setup.chip))
        assert own.generations == expected.generations
    today = next(one.question for one in asked if not one.question.era)
    assert put_to(today).era is None


def test_an_era_is_asked_for_by_name():
    assert create("vllm-2024").era.name == "vllm-2024"
    assert create_backend("calibrated", "trtllm-2024").band().source
    assert create().era is None
    with pytest.raises(UnknownNameError, match=r"unknown calibration 'vllm-2025'; did you mean 'vllm-2024'\?"):
        create("vllm-2025")
    with pytest.raises(UnknownNameError, match=r"unknown calibration 'TRTLLM-0.14'; did you mean 'trtllm-0.14'\?"):
        create("TRTLLM-0.14")
    with pytest.raises(InferometerError, match=r"mine\.toml cannot be read"):
        create("mine.toml")
