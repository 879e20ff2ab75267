"""Skewed routing against simulation, prompts that share their experts against counting, and what is left alone.

Measured here: the busiest rank's copies, distinct experts and coalesced tokens within 20 % of simulation; of one token
in all over 32 ranks within 40 %.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer import InferometerError, estimate, search
from inferometer.blocks.popularity import USUAL, Routing, chosen_by, routed
from inferometer.blocks.routing import busiest_rank
from inferometer.report.row import deployment_row
from inferometer.specs.feedforward import Moe


def columns(block, ranks, tokens, how, sequences=None):
    n, t = np.full((1, 1), float(ranks)), np.full((1, 1), float(tokens))
    seqs = t if sequences is None else np.full((1, 1), float(sequences))
    return [float(np.ravel(c)[0]) for c in routed(block, n, seqs, t, how)]


def simulated(block, ranks, tokens, skew):
    """Mean over trials of the most copies, distinct experts and distinct tokens of any rank.

    The order of k clocks of rate i^-S is that of log(rate) + Gumbel noise.
    """
    rng = np.random.default_rng(3)
    local = -(-block.experts // ranks)
    weight = np.log(np.arange(1.0, block.experts + 1) ** -skew)
    seen = []
    for _ in range(min(300, max(30, 1_000_000 // (tokens * block.experts)))):
        score = rng.permutation(weight) + rng.gumbel(size=(tokens, block.experts))
        picks = np.argpartition(-score, block.top_k - 1, axis=1)[:, : block.top_k]
        rank = picks // local
        seats = np.unique(np.arange(tokens)[:, None] * ranks + rank) % ranks
        counted = (rank.ravel(), np.unique(picks) // local, seats)
        seen.append([np.bincount(one, minlength=ranks).max() for one in counted])
    return np.mean(seen, axis=0)


MODELS = {"deepseek-v3": (256, 8), "qwen3": (128, 8), "gpt-oss": (128, 4), "mixtral": (8, 2)}


@pytest.mark.parametrize("skew", [0.3, 0.7, 1.2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("ranks", "tokens"), [(1, 1), (1, 64), (4, 8), (8, 64), (8, 512), (32, 1), (32, 8), (32, 512)])
def test_skew_is_as_simulated(model, skew, ranks, tokens):
    experts, top_k = MODELS[model]
    ranks = min(ranks, experts)
    block = Moe(experts=experts, top_k=top_k, width=1)
    found = columns(block, ranks, tokens, Routing(skew=skew))
    within = 0.4 if tokens == 1 and ranks > 1 else 0.2
    assert found == pytest.approx(simulated(block, ranks, tokens, skew), rel=within)


def test_on_one_rank_distinct_experts_are_summed_exactly():
    """Sum over experts of 1 - (1 - p)^T, against drawing: T = 64 of 128, top 8, S = 1."""
    block = Moe(experts=128, top_k=8, width=1)
    chosen = chosen_by(128, 8.0, 1.0)
    assert chosen.sum() == pytest.approx(8)
    exact = (1 - (1 - chosen) ** 64).sum()
    assert columns(block, 1, 64, Routing(skew=1.0))[1] == pytest.approx(exact, rel=1e-3)
    assert simulated(block, 1, 64, 1.0)[1] == pytest.approx(exact, rel=0.02)


@given(st.sampled_from([1, 2, 8, 64, 256]), st.integers(1, 100_000), st.sampled_from([(1, 1), (8, 4)]))
def test_no_skew_is_the_uniform_routing_to_the_last_bit(ranks, tokens, groups):
    block = Moe(experts=256, top_k=8, width=1, groups=groups[0], top_groups=groups[1])
    n, t = np.full((1, 1), float(ranks)), np.full((1, 1), float(tokens))
    for how in (USUAL, Routing(), Routing(distinct_prompts=1e9)):
        for own, plain in zip(routed(block, n, t, t, how), busiest_rank(block, n, t), strict=True):
            assert own == plain


@given(st.sampled_from([1, 4, 32]), st.integers(1, 5000), st.integers(1, 500), st.sampled_from([0.2, 0.8, 1.5]))
def test_more_tokens_are_never_less_work(ranks, tokens, more, skew):
    block = Moe(experts=128, top_k=8, width=1)
    few, many = (columns(block, ranks, t, Routing(skew=skew)) for t in (tokens, tokens + more))
    assert all(b >= a * (1 - 1e-3) for a, b in zip(few, many, strict=True))
    copies, distinct, seen = few
    assert tokens * 8 / ranks * (1 - 1e-9) <= copies <= tokens * 8
    assert distinct <= min(copies, 128 / ranks)
    assert seen <= min(copies, tokens)


def test_columns_are_scalars():
    block = Moe(experts=128, top_k=8, width=1)
    ranks, tokens = np.array([[1.0], [4.0], [32.0]]), np.array([[1.0, 7.0, 300.0]])
    many = routed(block, ranks, tokens, tokens, Routing(skew=0.9, distinct_prompts=5.0))
    for i, n in enumerate(ranks[:, 0]):
        for j, t in enumerate(tokens[0]):
            alone = columns(block, n, t, Routing(skew=0.9, distinct_prompts=5.0))
            assert [float(np.broadcast_to(c, (3, 3))[i, j]) for c in many] == alone


@pytest.mark.parametrize("tokens", [1, 16, 256])
def test_one_prompt_reads_k_experts(tokens):
    """Sequences alike choose alike: k experts in all, T copies of each, and no rank sees more than all tokens."""
    block = Moe(experts=64, top_k=6, width=1)
    copies, distinct, seen = columns(block, 1, tokens, Routing(distinct_prompts=1.0))
    assert (copies, distinct, seen) == pytest.approx((6 * tokens, 6, tokens))


def test_shared_prompts_are_so_many_distinct_tokens_times_over():
    """16 sequences of 4 prompts and 100 tokens each are 400 distinct tokens, four times over."""
    block = Moe(experts=64, top_k=6, width=1)
    found = columns(block, 8, 1600, Routing(distinct_prompts=4.0), sequences=16)
    once = columns(block, 8, 400, USUAL)
    assert found == pytest.approx([4 * once[0], once[1], 4 * once[2]])
    assert columns(block, 8, 1600, Routing(distinct_prompts=99.0), sequences=16) == columns(block, 8, 1600, USUAL)


ASKED = ("deepseek-v3", "h200 8x2", "DPA=16,EP=16")


def test_skew_slows_and_shared_prompts_speed_a_step_up():
    plain = estimate(*ASKED, batch=128).estimate.step_s
    assert estimate(*ASKED, batch=128, expert_skew=0.0).estimate.step_s == plain
    assert estimate(*ASKED, batch=128, expert_skew=0.5).estimate.step_s > plain
    alone = estimate("mixtral-8x7b", "h100 1x1", quant="fp8", batch=32, isl=512).estimate.step_s
    same = estimate("mixtral-8x7b", "h100 1x1", quant="fp8", batch=32, isl=512, distinct_prompts=1).estimate.step_s
    assert same < 0.75 * alone


def test_what_was_asked_is_said():
    answer = estimate(*ASKED, batch=128, expert_skew=0.5, distinct_prompts=3)
    work = deployment_row(answer)["workload"]
    assert (work["expert_skew"], work["distinct_prompts"]) == (0.5, 3)
    (best,) = search("qwen3-30b-a3b", "h100 2x1", expert_skew=0.8, top=1).answers
    assert best.estimate.feasible
    for wrong in ({"expert_skew": -1}, {"expert_skew": float("nan")}, {"distinct_prompts": 0}):
        with pytest.raises(InferometerError):
            estimate(*ASKED, **wrong)
