"""Towers in a pass: what they hold, what an image costs, and that text alone costs what it did."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from blocks.made_up import axis, machine

from inferometer.blocks import tower
from inferometer.blocks.images import count_image
from inferometer.blocks.params import count_params
from inferometer.blocks.tensors import Shards
from inferometer.errors import InferometerError
from inferometer.estimate.candidates import Block, pairs_of
from inferometer.estimate.estimate import estimate, find_candidates, make_problem
from inferometer.estimate.step import StepModel
from inferometer.graph.verify import verify
from inferometer.ingest.config import model_from_config
from inferometer.report.terms import step_terms
from inferometer.specs.deployment import Deployment, Sizes, Workload

LINES = (Path(__file__).parent.parent / "ingest" / "towers.jsonl").read_text().splitlines()
MODELS = {row["model"]: model_from_config(row["config"], name="m", source="test") for row in map(json.loads, LINES)}
IMAGES = {name: model for name, model in MODELS.items() if any(one.image for one in model.towers)}
PIXTRAL, QWEN, LLAMA = "Mistral Small 3.1", "Qwen2.5-VL 7B's tower", "Llama 4 Scout's tower"


def asked(model, work, *, chips=1, batch=3, scheduler="serial", **sizes):
    problem = make_problem(model, machine(axis(chips)), work, scheduler=scheduler)
    return problem, estimate(problem, Deployment(sizes=Sizes(**sizes), batch=batch))


def images(n=1, width=1000, height=600, phase="prefill", **more):
    return Workload(isl=100, osl=10, phase=phase, images=n, image_width=width, image_height=height, **more)


def tower_ops(priced):
    return [op for op in priced.ops if tower.is_part(op.segment)]


def layers_over(model):
    """Yield (part, positions, pairs) of one image through everything that runs."""
    image = count_image(model.towers[0].image, 1000, 600)
    for part in model.towers[0].parts:
        if part.over is not None:
            yield part, image.over(part.over), image.pairs(part.window)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_costs_two_flops_a_weight_and_position_and_four_a_pair_and_channel(name):
    model = IMAGES[name]
    gemms = core = 0
    for part, positions, pairs in layers_over(model):
        held = sum(x.rows * x.cols for x in part.linears.values())
        gemms += part.running * 2 * held * positions
        core += part.running * 4 * part.heads * part.head_dim * pairs
    _, priced = asked(model, images(2), batch=3)
    got = dict.fromkeys(("gemm", "attention", "elementwise"), 0.0)
    for op in tower_ops(priced):
        got[op.kind] += op.flops * op.layers
    assert got == {"gemm": 2 * 3 * gemms, "attention": 2 * 3 * core, "elementwise": 0}


@pytest.mark.parametrize("name", IMAGES)
def test_a_pass_reads_the_matrices_that_run_once(name):
    model = IMAGES[name]
    held = sum(part.running * x.rows * x.cols for part, *_ in layers_over(model) for x in part.linears.values())
    _, priced = asked(model, images())
    assert sum(op.traffic_bytes.get("weights", 0.0) * op.layers for op in tower_ops(priced)) == 2 * held


@pytest.mark.parametrize("name", IMAGES)
def test_ops_of_a_tower_are_ones_a_backend_can_price(name):
    problem = make_problem(IMAGES[name], machine(axis(8)), images())
    found, _ = find_candidates(problem)
    at = np.arange(len(found.shardings), dtype=np.intp)
    model = StepModel(problem=problem, shardings=found.shardings, placements=found.placements, record=True)
    model.price(Block(at, np.full((len(at), 1), 4.0), pairs_of(at, found.placements)))
    verify(model.graph)


def test_image_tokens_lengthen_prompt_and_context():
    """22 rows of 36 tokens and one that ends them."""
    problem, _ = asked(MODELS[PIXTRAL], images(2))
    assert problem.workload.image_tokens == 2 * 22 * (36 + 1)
    assert problem.new_tokens == 100 + problem.workload.image_tokens
    decode, _ = asked(MODELS[PIXTRAL], images(2, phase="decode"))
    assert decode.max_length == 100 + problem.workload.image_tokens + 10


def test_a_decode_after_images_is_one_after_as_much_text():
    model = MODELS[PIXTRAL]
    problem, priced = asked(model, images(2, phase="decode"))
    _, text = asked(model, Workload(isl=problem.workload.prompt_tokens, osl=10))
    assert priced.step_s == text.step_s
    assert priced.memory == text.memory
    assert not tower_ops(priced)


@pytest.mark.parametrize("scheduler", ["serial", "overlap", "dag"])
def test_text_alone_costs_what_it_does_without_a_tower(scheduler):
    model = msgspec.structs.replace(MODELS[QWEN], layers=MODELS[QWEN].layers * 3)
    bare = msgspec.structs.replace(model, towers=())
    for work in (Workload(isl=100, phase="prefill"), Workload(isl=100, osl=9)):
        _, held = asked(model, work, scheduler=scheduler, chips=4, pp=2, tp=2)
        _, without = asked(bare, work, scheduler=scheduler, chips=4, pp=2, tp=2)
        assert held.step_s == without.step_s


def test_a_prefill_with_images_is_one_of_as_much_text_and_the_tower():
    model = MODELS[PIXTRAL]
    problem, priced = asked(model, images(2))
    _, text = asked(model, Workload(isl=problem.workload.prompt_tokens, phase="prefill"))
    encode = sum(op.alone_s * op.layers for op in tower_ops(priced))
    assert encode > 0
    assert priced.step_s == pytest.approx(text.step_s + encode, rel=1e-12)
    assert step_terms(problem, priced)["towers"] == pytest.approx(encode, rel=1e-12)


@pytest.mark.parametrize("scheduler", ["serial", "overlap", "dag"])
def test_more_and_larger_images_take_longer(scheduler):
    works = (images(1, 300, 300), images(1, 1000, 600), images(2, 1000, 600), images(5, 1000, 600))
    steps = [asked(MODELS[PIXTRAL], work, scheduler=scheduler)[1].step_s for work in works]
    assert steps == sorted(steps)
    assert len(set(steps)) == len(steps)


def test_a_tower_runs_on_the_first_stage_alone():
    model = msgspec.structs.replace(MODELS[PIXTRAL], layers=MODELS[PIXTRAL].layers * 2)
    problem = make_problem(model, machine(axis(2)), images(), scheduler="serial")
    found, _ = find_candidates(problem, {"pp": 2})
    runs = found.shardings.multiplicities[:, 1:-3, 0]
    parts = [part.running for part in model.towers[0].parts]
    assert sorted(runs.tolist()) == [[0.0] * len(parts), parts]
    held = found.held.tower_bytes[:, 0]
    assert sorted(held.tolist()) == [0.0, 2 * count_params(model).by_kind["tower"]]


def whole(part, name):
    linear = part.linears.get(name.removesuffix("_bias"))
    if linear is None:
        return True
    return linear.split == "whole" or (linear.split == "cols" and name.endswith("_bias"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_tensor_ranks_hold_every_tower_once_and_copies_of_what_is_not_cut(name, tp):
    model = MODELS[name]
    copied = sum(
        part.layers * x.params * (tp - 1)
        for _, part in tower.parts(model)
        for x in tower.tensors(part, "bf16")
        if whole(part, x.name)
    )
    each = float(tower.chip_bytes_of(model, np.array([float(tp)]))[0])
    assert each * tp == pytest.approx(2 * (count_params(model).by_kind["tower"] + copied), rel=1e-9)


def test_heads_are_cut_no_further_than_there_are():
    part = next(one for one in MODELS[PIXTRAL].towers[0].parts if one.heads)
    shards: Shards = tower.shards(part, np.array([8.0, 16.0, 64.0]))
    assert shards["heads"].tolist() == [8, 16, 16]
    _, few = asked(MODELS[PIXTRAL], images(), chips=16, tp=16)
    _, many = asked(MODELS[PIXTRAL], images(), chips=32, tp=32)
    cores = [next(op for op in tower_ops(one) if op.kind == "attention") for one in (few, many)]
    assert cores[0].flops == cores[1].flops
    assert (cores[0].replication, cores[1].replication) == (1, 2)


def test_each_pair_of_cut_matrices_is_reduced_over_the_tensor_ranks():
    _, priced = asked(MODELS[PIXTRAL], images(), chips=2, tp=2, batch=1)
    sent = {op.segment: op for op in tower_ops(priced) if op.name == "down.reduce(tp)"}
    positions = 2 * 22 * 2 * 36
    assert sent["vision.layer"].traffic_bytes["message"] == positions * 1024 * 2
    assert {op.segment for op in tower_ops(priced) if op.kind == "all-reduce"} == {"vision.layer", "vision.projector"}


def test_llama_4_runs_each_tile_by_itself():
    """1000 x 600 pixels: a canvas of 3 x 2 tiles of 336, which scales least up, and one of the whole."""
    image = count_image(MODELS[LLAMA].towers[0].image, 1000, 600)
    assert (image.tiles, image.tokens) == (2 * 3 + 1, 7 * 144 + 6)
    assert image.pairs() == 7 * 577**2


def test_images_need_a_tower_that_takes_them():
    for name in ("a small Voxtral",):
        with pytest.raises(InferometerError, match="--images: m has no vision tower whose images are understood"):
            make_problem(MODELS[name], machine(), images())
