"""Copies of experts: the busiest rank against routing token by token, memory against counting, what must not move."""

import heapq

import numpy as np
import pytest
from blocks.test_popularity import columns
from hypothesis import given
from hypothesis import strategies as st

from inferometer import InferometerError, estimate, search
from inferometer.blocks.popularity import Routing, balanced, chosen_by, copied
from inferometer.report.row import deployment_row
from inferometer.specs.feedforward import Moe


def seats(popularity, redundant, ranks):
    """Return (expert, rank) of every copy, by hand: a heap of experts by what a copy of each is wanted."""
    heap = [(-p, i, 1) for i, p in enumerate(popularity)]
    heapq.heapify(heap)
    for _ in range(redundant):
        negative, i, copies = heapq.heappop(heap)
        heapq.heappush(heap, (negative * copies / (copies + 1), i, copies + 1))
    held = sorted((-wanted, i) for wanted, i, copies in heap for _ in range(copies))[::-1]
    room = -(-len(held) // ranks)
    load, count, found = [0.0] * ranks, [0] * ranks, []
    for wanted, i in held:
        rank = min((r for r in range(ranks) if count[r] < room), key=lambda r: load[r])
        load[rank] += wanted
        count[rank] += 1
        found.append((i, rank))
    return found


def simulated(block, ranks, tokens, skew):
    """Mean over trials of the most copies, distinct experts and distinct tokens of any rank: every token is routed."""
    rng = np.random.default_rng(5)
    placed = seats(chosen_by(block.experts, float(block.top_k), skew), block.redundant, ranks)
    own = [[s for s, (i, _) in enumerate(placed) if i == expert] for expert in range(block.experts)]
    copies, first = np.array([len(x) for x in own]), np.array([x + [0] * 64 for x in own], dtype=object)
    table = np.array([list(x)[:64] for x in first], dtype=int)
    rank_of = np.array([rank for _, rank in placed])
    weight = np.log(np.arange(1.0, block.experts + 1) ** -skew)
    seen = []
    for _ in range(60):
        score = weight + rng.gumbel(size=(tokens, block.experts))
        picks = np.argpartition(-score, block.top_k - 1, axis=1)[:, : block.top_k]
        taken = table[picks, (rng.random(picks.shape) * copies[picks]).astype(int)]
        rank = rank_of[taken]
        who = np.unique(np.arange(tokens)[:, None] * ranks + rank) % ranks
        counted = (rank.ravel(), rank_of[np.unique(taken)], who)
        seen.append([np.bincount(one, minlength=ranks).max() for one in counted])
    return np.mean(seen, axis=0)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("ranks", "redundant"), [(8, 8), (8, 64), (32, 32)])
@pytest.mark.parametrize("tokens", [8, 64, 512])
def test_the_busiest_rank_is_as_simulated(ranks, redundant, tokens, skew):
    block = Moe(experts=128, top_k=8, width=1, redundant=redundant)
    found = columns(block, ranks, tokens, Routing(skew=skew))
    assert found == pytest.approx(simulated(block, ranks, tokens, skew), rel=0.2)


def test_copies_and_places_by_hand():
    """P = 4, 2, 1 and three copies more: 4 -> 2 2, then a copy of the first (or second) at 2, the first by order."""
    assert copied(np.array([4.0, 2.0, 1.0]), 1).tolist() == [2, 2, 2, 1]
    assert sorted(copied(np.array([4.0, 2.0, 1.0]), 3)) == pytest.approx([1, 1, 1, 4 / 3, 4 / 3, 4 / 3])
    placed = balanced(np.array([3.0, 3.0, 2.0, 2.0, 1.0, 1.0]), 2)
    assert placed.sum(axis=1).tolist() == [6, 6]


@given(st.integers(0, 40), st.sampled_from([1, 4, 16]), st.floats(0, 2))
def test_what_is_wanted_is_kept_and_every_rank_has_room(redundant, ranks, skew):
    chosen = chosen_by(64, 6.0, skew)
    held = copied(chosen, redundant)
    assert held.sum() == pytest.approx(6.0)
    assert len(held) == 64 + redundant
    placed = balanced(held, ranks)
    assert placed.shape == (ranks, -(-(64 + redundant) // ranks))
    assert placed.sum() == pytest.approx(6.0)


@pytest.mark.parametrize("tokens", [64, 4096])
def test_copies_take_load_off_the_busiest_rank_under_skew(tokens):
    none, some, many = (
        columns(Moe(experts=128, top_k=8, width=1, redundant=n), 16, tokens, Routing(skew=1.0))[0] for n in (0, 16, 64)
    )
    assert many < 1.02 * some
    assert some < 0.95 * none
    assert some >= tokens * 8 / 16 * (1 - 1e-9)


ASKED = ("deepseek-v3", "h200 8x4", "DPA=32,EP=32")


def test_memory_grows_by_the_copies_of_a_rank():
    """32 copies on 32 ranks are one expert more in each of 58 layers: 3 x 7168 x 2048 fp8 weights and their scales."""
    asked = {"batch": 256, "context": 4096, "backend": "roofline"}
    none, some = (estimate(*ASKED, redundant_experts=n, **asked).estimate for n in (0, 32))
    expert_bytes = 3 * 7168 * 2048 * (1 + 4 / 128**2)
    more = some.memory.weights_bytes - none.memory.weights_bytes
    assert more == pytest.approx(58 * expert_bytes, rel=1e-3)


def test_time_counts_them_too():
    """At 32 tokens an expert: at 64, one tile of rows, the busiest expert needs a second, which copies save."""
    asked = {"batch": 1024, "context": 4096, "backend": "calibrated"}
    even, copied_even = (estimate(*ASKED, redundant_experts=n, **asked).estimate.step_s for n in (0, 32))
    skewed, copied_skewed = (
        estimate(*ASKED, redundant_experts=n, expert_skew=0.7, **asked).estimate.step_s for n in (0, 32)
    )
    assert copied_even > even  # more weights are read, and nobody was busier than others
    assert copied_skewed < skewed


def test_none_is_what_nobody_asked_for_to_the_last_bit():
    asked = {"batch": 128, "context": 4096, "backend": "calibrated", "expert_skew": 0.6}
    plain, none = estimate(*ASKED, **asked), estimate(*ASKED, redundant_experts=0, **asked)
    assert plain.estimate.step_s == none.estimate.step_s
    assert deployment_row(plain)["id"] == deployment_row(none)["id"]


def test_it_is_told_and_checked():
    answer = estimate(*ASKED, batch=256, redundant_experts=32)
    row = deployment_row(answer)
    assert row["workload"]["redundant_experts"] == 32
    assert row["id"] != deployment_row(estimate(*ASKED, batch=256))["id"]
    (best,) = search("qwen3-30b-a3b", "h100 4x1", redundant_experts=4, expert_skew=0.8, top=1).answers
    assert best.estimate.step_s > 0
    with pytest.raises(InferometerError, match="--redundant-experts -1: must be from 0"):
        estimate(*ASKED, redundant_experts=-1)
