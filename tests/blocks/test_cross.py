"""Attention over images: parameters, cache, work by a loop over tokens and heads, and layers that are skipped."""

import pytest
from blocks.made_up import ROOMY, axis, machine

from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.ingest.config import model_from_config
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.deployment import Deployment, Sizes, Workload
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention, CrossAttention
from inferometer.specs.model import Layer, ModelSpec

H, V, N, K, D, F, IMAGES = 256, 1000, 8, 2, 32, 512, 70
CROSS = CrossAttention(heads=N, kv_heads=K, head_dim=D, qk_norm=True, gates=2)
SELF = Attention(heads=N, kv_heads=K, head_dim=D)


def model(*layers):
    used = sorted({layer.mixer for layer in layers})
    return ModelSpec(
        name="made-up",
        architecture="made-up",
        hidden=H,
        vocab=V,
        max_context=1 << 17,
        mixers=tuple((SELF, CROSS)[i] for i in used),
        ffns=(Ffn(width=F),),
        layers=tuple(Layer(mixer=used.index(layer.mixer), ffn=0) for layer in layers),
        tied=False,
        dtype="bf16",
        source="made up by the tests",
    )


TEXT, IMAGE = Layer(mixer=0, ffn=0), Layer(mixer=1, ffn=0)
BOTH, ALONE = model(TEXT, IMAGE, TEXT), model(TEXT, TEXT)


def step(spec, images, *, phase="decode", batch=4, sizes=None, axes=()):
    workload = Workload(context=1000 if phase == "decode" else None, isl=50, phase=phase, cross_tokens=images)
    problem = make_problem(spec, machine(*axes), workload, backend="roofline")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=batch))


def test_its_parameters():
    attention = 2 * H * N * D + 2 * H * K * D + 2 * D + 2
    layer = attention + 3 * H * F + 2 * H
    assert count_params(BOTH).total - count_params(ALONE).total == layer


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_layer_without_images_is_held_and_not_run(phase):
    both, alone = step(BOTH, 0, phase=phase), step(ALONE, 0, phase=phase)
    assert both.step_s == alone.step_s
    assert both.memory.weights_bytes - alone.memory.weights_bytes == 2 * (
        count_params(BOTH).total - count_params(ALONE).total
    )
    assert both.memory.kv_bytes_per_sequence == alone.memory.kv_bytes_per_sequence


def test_a_token_of_text_grows_no_cache_of_images():
    assert kv_bytes_per_token(BOTH) == kv_bytes_per_token(ALONE)
    with_images = step(BOTH, IMAGES).memory.kv_bytes_per_sequence
    assert with_images - step(BOTH, 0).memory.kv_bytes_per_sequence == IMAGES * 2 * K * D * 2


def core(got):
    return next(op for op in got.ops if op.name == "cross-attention-core")


@pytest.mark.parametrize(("phase", "new"), [("decode", 1), ("prefill", 50)])
def test_every_token_sees_every_image_token(phase, new):
    batch, flops = 3, 0
    for _sequence in range(batch):
        for _token in range(new):
            for _head in range(N):
                for _image in range(IMAGES):
                    flops += 2 * D + 2 * D
    got = core(step(BOTH, IMAGES, phase=phase, batch=batch))
    assert got.flops == flops
    assert got.traffic_bytes["kv"] == batch * IMAGES * 2 * K * D * 2


def test_only_a_prefill_makes_k_and_v_of_the_images():
    names = {phase: {op.name: op for op in step(BOTH, IMAGES, phase=phase).ops} for phase in ("decode", "prefill")}
    assert "image-k+v" not in names["decode"]
    assert names["prefill"]["image-k+v"].flops == 2 * (4 * IMAGES) * (2 * K * D) * H
    assert names["prefill"]["image-kv-write"].traffic_bytes["kv"] == 4 * IMAGES * 2 * K * D * 2


def test_images_cost_the_same_at_any_context():
    short, long = (
        core(
            estimate(
                make_problem(BOTH, machine(), Workload(context=context, cross_tokens=IMAGES), backend="roofline"),
                Deployment(sizes=Sizes(), batch=4),
            )
        )
        for context in (100, 10_000)
    )
    assert short.alone_s == long.alone_s


def test_more_images_take_longer():
    times = [step(BOTH, images, phase="prefill").step_s for images in (0, 1, 10, 1000, 100_000)]
    assert times == sorted(times)
    assert ROOMY.memory_bytes > step(BOTH, 1000).memory.weights_bytes


@pytest.mark.parametrize("sizes", [Sizes(tp=2), Sizes(tp=4), Sizes(tp=4, dcp=2), Sizes(pp=3)], ids=str)
def test_useful_work_is_the_same_however_it_is_sharded(sizes):
    whole = step(BOTH, IMAGES, batch=6)
    split = step(BOTH, IMAGES, batch=6, sizes=sizes, axes=(axis(sizes.n_chips),))
    assert split.useful_flops == pytest.approx(whole.useful_flops, rel=1e-9)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_images_of_a_request_are_seen_across_and_lengthen_no_prompt(phase):
    found = preset_config("llama-3.2-11b-vision")
    spec = model_from_config(found.config, name="vision", source="test")
    workload = Workload(isl=100, osl=10, phase=phase, images=2, image_width=1120, image_height=1120)
    problem = make_problem(spec, machine(), workload, backend="roofline")
    assert problem.workload.cross_tokens == 2 * 4 * 1601
    assert problem.workload.prompt_tokens == 100
    got = estimate(problem, Deployment(sizes=Sizes(), batch=3))
    assert core(got).layers == 8
    kv = 2 * 8 * 128 * 2
    assert got.memory.kv_bytes_per_sequence == kv * (32 * problem.max_length + 8 * 2 * 4 * 1601)
    assert any(op.segment.startswith("vision") for op in got.ops) == (phase == "prefill")
