"""What a pass reads against what the tensors hold: every matrix of every layer once, the embedding only T rows."""

import pytest
from blocks.made_up import decode, machine
from hypothesis import given
from strategies import models

from inferometer.blocks.params import all_tensors, layer_tensors
from inferometer.blocks.tensors import chip_bytes
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.graph.ops import ONE
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Moe
from inferometer.specs.mixers import CrossAttention

WHOLE = dict.fromkeys(("tp", "kv", "groups", "ep", "etp"), ONE)


READ = frozenset({"residual", "recurrence"})
"""Kinds whose matrices are read, but not by GEMMs of tokens."""


def ops_of(spec, batch):
    problem = make_problem(spec, machine(), decode(100), backend="roofline")
    return estimate(problem, Deployment(sizes=Sizes(), batch=batch)).ops


def tensors_run(spec):
    """Return (tensor, times) of the layers that a pass without images runs, at each visit, and of the ends."""
    skipped = [x for x in spec.layers if x.mixer is not None and isinstance(spec.mixers[x.mixer], CrossAttention)]
    more = [(layer, -1 if layer in skipped else layer.visits - 1) for layer in spec.layers]
    return (*all_tensors(spec), *((t, n) for layer, n in more for t in layer_tensors(spec, layer)))


def read_bytes(ops):
    return sum(op.traffic_bytes.get("weights", 0.0) * op.layers * op.share for op in ops if op.kind != "lookup")


@given(models())
def test_a_large_batch_reads_every_matrix_once(spec):
    matrices = [
        (t, n)
        for t, n in tensors_run(spec)
        if (t.kind in READ and (t.cols > 1 or t.kind == "residual")) or (in_gemms(t) and t.kind != "embedding")
    ]
    held = sum(float(chip_bytes((t,), WHOLE)) * n for t, n in matrices)
    if spec.tied:
        held += spec.vocab * spec.hidden * 2
    assert read_bytes(ops_of(spec, 1 << 16)) == pytest.approx(held, rel=1e-9)


def in_gemms(tensor):
    return tensor.multiplies and tensor.kind not in READ


@given(models(moe=False))
def test_a_token_multiplies_by_every_matrix_once(spec):
    """Twice the parameters a token, but for vectors, residual schemes, the embedding and the attention core."""
    matrices = sum(t.params * n for t, n in tensors_run(spec) if in_gemms(t) and t.kind != "embedding")
    matrices += spec.vocab * spec.hidden if spec.tied else 0
    every = ops_of(spec, 1)
    ops = [op for op in every if op.kind == "gemm" and not op.name.endswith(".residual")]
    if all("mla=expanded" not in op.plan for op in every):
        assert sum(op.flops * op.layers for op in ops) == 2 * matrices


@given(models(moe=True))
def test_one_token_reads_k_experts(spec):
    """E (1 - (1 - k/E)) = k of the E experts of each layer; a token that takes no expert at all is averaged roughly."""
    read = sum(op.traffic_bytes["weights"] * op.layers for op in ops_of(spec, 1) if op.kind == "grouped-gemm")
    block = next(b for b in spec.ffns if isinstance(b, Moe))
    experts = [(t, n) for t, n in tensors_run(spec) if t.kind == "experts"]
    held = sum(float(chip_bytes((t,), WHOLE)) * n for t, n in experts)
    share = block.top_k / (block.experts + block.zero_experts)
    assert read == pytest.approx(held * share, rel=0.05 if block.zero_experts else 1e-9)


@given(models(moe=True))
def test_a_token_multiplies_by_the_active_parameters(spec):
    block = next(b for b in spec.ffns if isinstance(b, Moe))
    share = {"experts": block.top_k / (block.experts + block.zero_experts), "embedding": 0}
    matrices = sum(t.params * n * share.get(t.kind, 1) for t, n in tensors_run(spec) if in_gemms(t))
    matrices += spec.vocab * spec.hidden if spec.tied else 0
    every = ops_of(spec, 1)
    ops = [op for op in every if op.kind in ("gemm", "grouped-gemm") and not op.name.endswith(".residual")]
    if all("mla=expanded" not in op.plan for op in every):
        assert sum(op.flops * op.layers for op in ops) == pytest.approx(2 * matrices, rel=1e-9, abs=1)
