"""Attention cores of whole models under the calibrated backend: tiles of 64 rows, and which form a pass takes."""

import pytest

from inferometer import estimate


def core(model, machine, sizes, **asked):
    """Return (the first attention core of a deployment, the backend's coefficients of its chip, its bf16 peak)."""
    answer = estimate(model, machine, sizes, backend="calibrated", **asked)
    op = next(op for op in answer.estimate.ops if op.name == "attention-core")
    chip = answer.problem.machine.chip
    return op, answer.problem.backend.generation(chip), chip.peak_flops_per_s["bf16"]


@pytest.mark.parametrize(
    ("model", "sizes", "asked", "rows", "cached"),
    [
        ("deepseek-v3", "DPA=8", {}, 128, "latent-bf16"),
        ("deepseek-v3", "TP=8", {}, 128 // 8, "latent-bf16"),
        ("deepseek-v3", "TP=8,DCP=8", {}, 128, "latent-bf16"),  # the queries of all heads meet on every rank
        ("deepseek-v3", "TP=8", {"phase": "verify", "draft_tokens": 4}, 128 // 8 * 5, "latent-bf16"),
        ("llama-3.1-70b", "TP=8", {}, 64 // 8, "bf16"),
        ("llama-3.1-70b", "TP=2,R=4", {}, 64 // 8, "bf16"),
        ("llama-3.1-70b", "TP=8", {"kv_cache_dtype": "fp8"}, 64 // 8, "fp8"),
        ("deepseek-v4-flash", "TP=8", {}, 64 // 8, "latent-fp8"),
        ("llama-3.1-8b", "TP=8", {"phase": "verify", "draft_tokens": 15}, 32 // 8 * 16, "bf16"),
    ],
)
def test_heads_that_share_a_kv_head_fill_tiles_together(model, sizes, asked, rows, cached):
    op, own, peak = core(model, "h200 8x1", sizes, batch=8, **asked)
    tiled = op.flops * (64 * -(-rows // 64)) / rows
    run = next(iter(own.decode[cached].values()))
    assert op.compute_s == pytest.approx(tiled / (run.flops_share * peak), rel=1e-9)


@pytest.mark.parametrize("new", [17, 4096])
def test_many_queries_take_the_form_of_a_prompt(new):
    op, own, peak = core("llama-3.1-8b", "h200 1x1", None, batch=1, isl=new, phase="prefill")
    ramp = 1 + own.prefill.ramp_rows / new
    assert op.compute_s == pytest.approx(op.flops * ramp / (own.prefill.flops_share * peak), rel=1e-9)
