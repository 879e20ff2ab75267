"""Thinned placements: nothing that could win is dropped where a full enumeration can be held against it."""

from math import prod

import pytest

from inferometer.catalog.loader import build_machine, preset_config
from inferometer.cost.collectives import Line
from inferometer.estimate import space
from inferometer.estimate.estimate import estimate, make_problem, placement_steps
from inferometer.estimate.space import divisors, n_assignments
from inferometer.estimate.thin import Way, thinned, undominated
from inferometer.ingest.config import model_from_config
from inferometer.search.search import search
from inferometer.specs.deployment import Deployment, Sizes, Workload


def problem(model, chip, machine, phase="decode"):
    preset = preset_config(model)
    spec = model_from_config(preset.config, name=preset.id, source=preset.source, sidecar=preset.quant_sidecar)
    return make_problem(spec, build_machine(chip, machine), Workload(phase=phase))


def way(name, *lines):
    return Way({"tp": (name,)}, tuple((Line("x", a, b),) for a, b in lines))


def test_a_way_is_dropped_only_where_another_is_no_dearer_in_every_collective():
    cheap, dear, mixed = way(1, (1, 1), (1, 1)), way(2, (1, 2), (1, 1)), way(3, (0, 2), (9, 9))
    assert undominated([dear, cheap, mixed]) == [cheap, mixed]
    assert undominated([cheap, cheap]) == [cheap]


@pytest.mark.parametrize(
    ("model", "chip", "machine", "phase"),
    [
        ("mixtral-8x7b", "tpu-v7", "2x4x4", "decode"),
        ("deepseek-v3", "h200", "8x4", "decode"),
        ("qwen3-235b-a22b", "mi300x", "8x2", "prefill"),
        ("llama-3.1-70b", "tpu-v5p", "4x4x8", "prefill"),
    ],
)
def test_the_best_of_every_sharding_is_kept(monkeypatch, model, chip, machine, phase):
    asked = problem(model, chip, machine, phase)
    everything = search(asked, top=10_000)
    monkeypatch.setattr(space, "MOST_ASSIGNMENTS", 0)
    kept = search(asked, top=10_000)
    assert kept.candidates < everything.candidates
    best = {found.estimate.sizes: found.score for found in everything.found}
    assert {found.estimate.sizes: found.score for found in kept.found} == pytest.approx(best, rel=1e-12)


def test_every_placement_kept_fills_the_fabric():
    fabric = build_machine("tpu-v7", "4x8x16").fabric
    by_axis = thinned(fabric, moe=True, fixed={}, lines=lambda *_: (Line("x", 1.0, 1.0),), divisors=divisors)
    for axis, factors in zip(fabric.axes, by_axis, strict=True):
        stage = factors["dcp"] * factors["tpx"] * factors["dpa"]
        assert (stage == factors["etp"] * factors["ep"]).all()
        assert (stage * factors["pp"] * factors["r"] == axis.size).all()


def test_a_winner_on_four_thousand_chips_equals_its_explanation():
    asked = problem("deepseek-v3", "tpu-v7", "16x16x16")
    assert n_assignments(asked.machine.fabric, moe=True) > space.MOST_ASSIGNMENTS
    found = search(asked, fixed={"r": 32}, top=1).found[0]
    again = estimate(asked, Deployment(sizes=found.estimate.sizes, batch=found.estimate.batch))
    assert again == found.estimate
    assert prod((again.sizes.r, again.sizes.pp, again.sizes.dpa, again.sizes.tp)) == 16**3


def test_every_placement_is_priced_and_the_estimate_takes_the_first():
    asked = problem("qwen3-30b-a3b", "h200", "8x2")
    deployment = Deployment(sizes=Sizes(dpa=4, tp=4, ep=8, etp=2), batch=64)
    steps = placement_steps(asked, deployment)
    got = estimate(asked, deployment)
    assert len(steps) == got.placements_priced > 1
    assert steps[0] == (got.placement, got.step_s)
    assert [s for _, s in steps] == sorted(s for _, s in steps)
    for placement, step_s in steps:
        pinned = Deployment(sizes=deployment.sizes, batch=64, placement=placement)
        assert estimate(asked, pinned).step_s == step_s
