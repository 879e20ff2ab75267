"""Floating point operations of published models: exact integers, recomputed by hand in the assertions.

GEMMs (router and head included) and attention cores, head on the last token; KV length 4096.
"""

import pytest
from blocks.made_up import decode, machine, prefill

from inferometer.api.counts import count
from inferometer.catalog.loader import preset_config
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.ingest.config import model_from_config
from inferometer.specs.deployment import Deployment, Sizes

B, S = 32, 4096
PAIRS = S * (S + 1) // 2


def preset(name):
    found = preset_config(name)
    return model_from_config(found.config, name=found.id, source=found.source, sidecar=found.quant_sidecar)


def useful_flops(name, workload, batch):
    problem = make_problem(preset(name), machine(), workload, backend="roofline")
    return estimate(problem, Deployment(sizes=Sizes(), batch=batch)).useful_flops


def gqa(tokens, pairs, *, hidden, heads, kv_heads, head_dim):
    projections = hidden * heads * head_dim * 2 + hidden * 2 * kv_heads * head_dim
    return 2 * tokens * projections + 4 * heads * head_dim * pairs


def experts(tokens, *, hidden, width, n, top_k, shared=0):
    return 2 * tokens * (hidden * n + top_k * 3 * hidden * width + 3 * hidden * shared)


def llama(tokens, sequences, pairs):
    layer = gqa(tokens, pairs, hidden=8192, heads=64, kv_heads=8, head_dim=128) + 2 * tokens * 3 * 8192 * 28672
    return 80 * layer + 2 * sequences * 8192 * 128256


def qwen(tokens, sequences, pairs):
    layer = gqa(tokens, pairs, hidden=4096, heads=64, kv_heads=4, head_dim=128)
    layer += experts(tokens, hidden=4096, width=1536, n=128, top_k=8)
    return 94 * layer + 2 * sequences * 4096 * 151936


def deepseek(tokens, sequences, core):
    hidden, heads = 7168, 128
    projections = hidden * 1536 + 1536 * heads * 192 + hidden * 576 + heads * 128 * hidden
    attention = 2 * tokens * projections + core
    dense = 2 * tokens * 3 * hidden * 18432
    moe = experts(tokens, hidden=hidden, width=2048, n=256, top_k=8, shared=2048)
    return 61 * attention + 3 * dense + 58 * moe + 2 * sequences * hidden * 129280


ABSORBED = 2 * B * 128 * (128 * 512 + 512 * 128) + B * S * 128 * 2 * (576 + 512)
"""Query and output halves of kv_b, then scores over 512 + 64 and values over 512 of the latent."""
EXPANDED = 2 * S * 512 * 128 * (128 + 128) + PAIRS * 128 * 2 * (192 + 128)
"""kv_b over every token, then scores over 128 + 64 and values over 128."""

CASES = {
    "meta-llama-3.1-70b": (llama(B, B, B * S), 4_791_707_107_328, llama(S, 1, PAIRS), 582_748_632_776_704),
    "qwen3-235b-a22b": (qwen(B, B, B * S), 1_784_055_595_008, qwen(S, 1, PAIRS), 197_430_019_620_864),
    "deepseek-v3": (deepseek(B, B, ABSORBED), 4_570_914_750_464, deepseek(S, 1, EXPANDED), 334_368_312_131_584),
}


@pytest.mark.parametrize("name", CASES)
def test_a_decode_step_of_32_sequences(name):
    by_hand, published, _, _ = CASES[name]
    assert by_hand == published
    assert useful_flops(name, decode(S), B) == by_hand


@pytest.mark.parametrize("name", CASES)
def test_a_prefill_of_one_prompt(name):
    _, _, by_hand, published = CASES[name]
    assert by_hand == published
    assert useful_flops(name, prefill(S), 1) == by_hand


NEW, PREFIX = 100, 4000
BEHIND = NEW * PREFIX + NEW * (NEW + 1) // 2
"""Row j of NEW sees the prefix and j tokens more."""

EXPANDED_BEHIND = 2 * (PREFIX + NEW) * 512 * 128 * (128 + 128) + BEHIND * 128 * 2 * (192 + 128)
"""kv_b over every token that is seen, cached ones too."""
ABSORBED_BEHIND = 2 * NEW * 128 * (128 * 512 + 512 * 128) + BEHIND * 128 * 2 * (576 + 512)

BEHIND_A_PREFIX = {
    "meta-llama-3.1-70b": (lambda heads: llama(NEW, heads, BEHIND),) * 2,
    "qwen3-235b-a22b": (lambda heads: qwen(NEW, heads, BEHIND),) * 2,
    "deepseek-v3": (
        lambda heads: deepseek(NEW, heads, EXPANDED_BEHIND),
        lambda heads: deepseek(NEW, heads, ABSORBED_BEHIND),
    ),
}


@pytest.mark.parametrize("name", BEHIND_A_PREFIX)
def test_an_extend_and_a_verify_behind_a_prefix(name):
    """By the stated rule: an extend expands latents, a verify absorbs; a verify makes the logits of all its rows."""
    extended, verified = BEHIND_A_PREFIX[name]
    more = {"isl": NEW, "context": PREFIX, "phase": "extend"}
    assert counted(name, **more) == extended(1)
    assert counted(name, **more, all_token_logits=True) == extended(NEW)
    assert counted(name, draft_tokens=NEW - 1, context=PREFIX, phase="verify") == verified(NEW)


def counted(name, **workload):
    return count(preset(name), batch=1, **workload).total(lambda op: op.flops)
