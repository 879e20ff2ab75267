"""Layers that lack a mixer or a feed-forward, and layers where one matrix stands for either."""

import msgspec
import pytest
from blocks.made_up import axis, decode, machine

from inferometer.api.questions import search
from inferometer.blocks.model import stage_kinds
from inferometer.blocks.params import count_params
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.report.kinds import attention_text, ffn_text, segment_text
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn
from inferometer.specs.matrix import Matrix
from inferometer.specs.mixers import Attention
from inferometer.specs.model import Layer, ModelSpec

H, V, F = 256, 1000, 512
SPEC = ModelSpec(
    name="made-up",
    architecture="made-up",
    hidden=H,
    vocab=V,
    max_context=1 << 17,
    mixers=(Attention(heads=8, kv_heads=2, head_dim=32), Matrix(width=H)),
    ffns=(Ffn(width=F), Matrix(width=H)),
    layers=(Layer(mixer=0, ffn=0), Layer(ffn=0), Layer(mixer=0), Layer(), Layer(mixer=1, ffn=1), Layer(mixer=0, ffn=0)),
    tied=True,
    dtype="bf16",
    source="made up by the tests",
)
ATTENTION = 2 * H * 8 * 32 + 2 * H * 2 * 32 + H
DENSE = 3 * H * F + H
MATRIX = H * H + H


def step(spec, *, sizes=None, axes=(), batch=8):
    problem = make_problem(spec, machine(*axes), decode(1000), backend="roofline")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch))


def test_parameters_and_cache_are_of_the_blocks_there_are():
    assert count_params(SPEC).total == V * H + H + 3 * ATTENTION + 3 * DENSE + 2 * MATRIX
    assert kv_bytes_per_token(SPEC) == 3 * 2 * 2 * 32 * 2


def test_a_layer_without_a_block_costs_nothing():
    lean = msgspec.structs.replace(SPEC, layers=tuple(x for x in SPEC.layers if x != Layer()))
    assert step(lean).step_s == step(SPEC).step_s


def test_one_matrix_is_one_product_split_over_its_input():
    got = step(SPEC)
    products = [op for op in got.ops if op.name == "matrix"]
    assert [op.flops for op in products] == [2 * 8 * H * H] * 2
    split = step(SPEC, sizes=Sizes(tp=2), axes=(axis(2),))
    assert [op.flops for op in split.ops if op.name == "matrix"] == [2 * 8 * H * H / 2] * 2
    assert split.useful_flops == pytest.approx(got.useful_flops, rel=1e-9)


def test_stages_count_the_layers_that_each_holds():
    kinds = stage_kinds(SPEC, (2, 2, 2))
    assert [kind.multiplicities[:5] for kind in kinds] == [(1, 1, 0, 0, 0), (0, 0, 1, 1, 0), (1, 0, 0, 0, 1)]
    weights = [step(SPEC, sizes=Sizes(pp=pp), axes=(axis(pp),)).memory.weights_bytes for pp in (1, 2, 3, 6)]
    assert weights == sorted(weights, reverse=True)


def test_they_are_called_what_they_are():
    assert [segment_text(SPEC, f"layer-{i}") for i in range(5)] == [
        "layer-0 (GQA 8/2, dense)",
        "layer-1 (dense)",
        "layer-2 (GQA 8/2)",
        "layer-3 (nothing)",
        "layer-4 (matrix, matrix)",
    ]
    assert attention_text(SPEC) == "GQA 8/2, matrix"
    assert set(ffn_text(SPEC).split(", ")) == {"dense", "matrix"}


def test_a_search_finds_an_answer_and_explain_gives_it_again():
    found = search(SPEC, machine(axis(4)), context=1000, top=5).answers
    assert found
    best = found[0]
    problem = best.problem
    again = estimate(problem, Deployment(sizes=best.estimate.sizes, batch=best.estimate.batch))
    assert again.step_s == best.estimate.step_s
