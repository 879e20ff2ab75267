"""Routing statistics against simulation, closed forms where they exist, and growth with tokens.

Measured here: copies and distinct experts of the busiest rank within 5 % of simulation from a mean of 8 copies a rank;
below, within 10 % under free routing, and within 25 % under group-limited routing (worst: one token in all).
Coalesced tokens are an upper estimate: within 15 % from a mean of 8, 25 % below.
"""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.blocks.routing import busiest_rank, expected_max_normal, rank_draw
from inferometer.specs.feedforward import Moe

ROUTINGS = {
    "longcat": (512, 12, 1, 1, 256),
    "longcat-lite": (256, 12, 1, 1, 128),
    "deepseek-v3": (256, 8, 8, 4),
    "deepseek-v2": (160, 6, 8, 3),
    "qwen3": (128, 8, 1, 1),
    "kimi-k2": (384, 8, 1, 1),
    "free of 256": (256, 8, 1, 1),
    "mixtral": (8, 2, 1, 1),
}


def busiest(routing, ranks, tokens):
    experts, top_k, groups, top_groups, *zero = routing
    block = Moe(experts=experts, top_k=top_k, width=1, groups=groups, top_groups=top_groups, zero_experts=sum(zero))
    shape = np.shape(tokens) or (1,)
    columns = busiest_rank(block, np.full((1, 1), float(ranks)), np.asarray(tokens, float).reshape(1, -1))
    return [np.broadcast_to(c, (1, *shape))[0] for c in columns]


def sent(routing):
    """Return the experts a token is sent to on average."""
    return routing[1] * routing[0] / (routing[0] + sum(routing[4:]))


def draws(routing, tokens, rng):
    """Return the experts that `tokens` tokens choose, (tokens, k); zero experts have the highest numbers."""
    experts, top_k, groups, top_groups, *zero = routing
    experts += sum(zero)
    score = rng.random((tokens, experts))
    taken = np.argsort(rng.random((tokens, groups)), axis=1)[:, :top_groups]
    open_to = np.zeros((tokens, groups), dtype=bool)
    np.put_along_axis(open_to, taken, values=True, axis=1)
    score += 2.0 * ~np.repeat(open_to, experts // groups, axis=1)
    return np.argsort(score, axis=1)[:, :top_k]


def simulated(routing, ranks, tokens):
    """Return mean copies and distinct experts of the busiest rank, and the most tokens any rank sees."""
    rng = np.random.default_rng(0)
    trials = min(300, max(25, 1_500_000 // (tokens * routing[0])))
    local = -(-routing[0] // ranks)
    seen = []
    for _ in range(trials):
        picks = draws(routing, tokens, rng)
        real = picks < routing[0]
        rank = picks // local
        copies = np.bincount(rank[real], minlength=ranks)
        distinct = np.bincount(np.unique(picks[real]) // local, minlength=ranks)
        seats = (np.arange(tokens)[:, None] * ranks + rank)[real]
        coalesced = np.bincount(np.unique(seats) % ranks, minlength=ranks)
        most = int(copies.argmax())
        seen.append((copies[most], distinct[most], coalesced.max()))
    return np.mean(seen, axis=0)


CASES = [
    ("deepseek-v3", 8, 1),
    ("deepseek-v3", 8, 8),
    ("deepseek-v3", 16, 16),
    ("deepseek-v3", 16, 64),
    ("deepseek-v3", 64, 64),
    ("deepseek-v3", 256, 256),
    ("deepseek-v3", 32, 8),
    ("deepseek-v3", 6, 24),
    ("deepseek-v2", 32, 64),
    ("deepseek-v2", 32, 1),
    ("qwen3", 64, 64),
    ("qwen3", 4, 2),
    ("qwen3", 16, 1),
    ("qwen3", 8, 256),
    ("kimi-k2", 64, 64),
    ("kimi-k2", 32, 3),
    ("free of 256", 256, 256),
    ("free of 256", 64, 16),
    ("free of 256", 2, 1),
    ("longcat", 1, 16),
    ("longcat", 4, 1),
    ("longcat", 8, 64),
    ("longcat", 32, 8),
    ("longcat", 64, 1024),
    ("longcat-lite", 16, 4),
    ("longcat-lite", 32, 512),
    ("mixtral", 8, 2),
    ("mixtral", 8, 32),
    ("mixtral", 4, 512),
]


@pytest.mark.parametrize(("name", "ranks", "tokens"), CASES)
def test_the_busiest_rank_is_as_simulated(name, ranks, tokens):
    routing = ROUTINGS[name]
    many, free = tokens * sent(routing) / ranks >= 8, routing[2] == 1
    copies, distinct, coalesced = simulated(routing, ranks, tokens)
    ours = [float(c[0]) for c in busiest(routing, ranks, tokens)]
    within = 0.05 if many else 0.10 if free else 0.25
    assert ours[0] == pytest.approx(copies, rel=within)
    assert ours[1] == pytest.approx(distinct, rel=within)
    assert ours[2] == pytest.approx(coalesced, rel=0.15 if many else 0.25)


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
@pytest.mark.parametrize("tokens", [1, 7, 100])
def test_one_rank_is_exact(routing, tokens):
    experts, top_k, _, _, *zero = routing
    copies, distinct, coalesced = busiest(routing, 1, tokens)
    assert copies == pytest.approx(tokens * sent(routing), rel=1e-12)
    idle = 1 - top_k / (experts + sum(zero))
    assert distinct == pytest.approx(experts * (1 - idle**tokens), rel=1e-4 if zero else 1e-12)
    assert coalesced == pytest.approx(tokens, rel=1e-4 if zero else 1e-12)


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
@pytest.mark.parametrize("tokens", [1, 7, 1000])
def test_a_rank_an_expert_reads_one_expert_and_coalesces_nothing(routing, tokens):
    copies, distinct, coalesced = busiest(routing, routing[0], tokens)
    assert distinct == pytest.approx(1.0, rel=1e-6 if routing[4:] else 1e-12), "a token may choose zero experts only"
    assert coalesced == pytest.approx(copies, rel=1e-12)


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
@pytest.mark.parametrize("ranks", [1, 2, 4, 6, 8, 16, 32, 64, 256])
def test_nothing_falls_when_tokens_are_added(routing, ranks):
    if ranks <= routing[0]:
        for column in busiest(routing, ranks, np.arange(1, 3000)):
            assert (np.diff(column) >= -1e-9 * column[:-1]).all()


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 32])
def test_the_busiest_rank_has_no_less_than_the_mean_and_no_more_than_all(routing, ranks):
    if ranks <= routing[0]:
        tokens = np.arange(1, 300)
        copies, distinct, coalesced = busiest(routing, ranks, tokens)
        most = np.minimum(routing[1], routing[0] // ranks)
        assert (copies >= tokens * sent(routing) / ranks * (1 - 1e-12)).all()
        assert (copies <= tokens * most * (1 + 1e-12)).all()
        assert (distinct <= np.minimum(copies, routing[0] / ranks) * (1 + 1e-12)).all()
        assert (coalesced <= np.minimum(copies, tokens) * (1 + 1e-12)).all()


def test_a_token_misses_a_rank_with_the_chance_of_drawing_only_others():
    assert rank_draw(128, 8, 1, 1, 4).hit == pytest.approx(1 - comb(96, 8) / comb(128, 8), rel=1e-12)


def test_a_token_misses_a_group_it_may_choose_from_half_the_time():
    chosen = 4 / 8
    assert rank_draw(256, 8, 8, 4, 8).hit == pytest.approx(chosen * (1 - comb(96, 8) / comb(128, 8)), rel=1e-12)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 6), st.data())
def test_mean_copies_are_the_share_of_experts_held(groups, per_group, top_k, data):
    experts = groups * per_group
    top_groups = data.draw(st.integers(-(-min(top_k, experts) // per_group), groups))
    top_k = min(top_k, top_groups * per_group)
    ranks = data.draw(st.integers(1, experts))
    held = -(-experts // ranks)
    draw = rank_draw(experts, top_k, groups, top_groups, ranks)
    assert draw.mean == pytest.approx(top_k * held / experts, rel=1e-9)
    assert 0 < draw.hit <= 1 + 1e-12
    assert draw.hit <= draw.mean * (1 + 1e-12)


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v2", "qwen3", "longcat"])
@pytest.mark.parametrize("ranks", [4, 6, 16, 64])
def test_the_draw_of_one_token_is_as_simulated(name, ranks):
    routing = ROUTINGS[name]
    local = -(-routing[0] // ranks)
    picks = draws(routing, 40_000, np.random.default_rng(0))
    copies = (picks < local).sum(axis=1)
    draw = rank_draw(*routing[:4], ranks, sum(routing[4:]))
    assert draw.mean == pytest.approx(copies.mean(), rel=0.05)
    assert draw.variance == pytest.approx(copies.var(), rel=0.05)
    assert draw.hit == pytest.approx((copies > 0).mean(), rel=0.05)


def test_the_expected_maximum_of_normals_is_as_simulated():
    rng = np.random.default_rng(0)
    for n in (2, 8, 64):
        drawn = rng.standard_normal((40_000, n)).max(axis=1).mean()
        assert expected_max_normal(n) == pytest.approx(drawn, rel=0.01)


def test_many_ranks_and_tokens_at_once_give_the_same_bits_as_one():
    block = Moe(experts=256, top_k=8, width=1, groups=8, top_groups=4)
    ranks = np.array([[1.0], [4.0], [6.0], [32.0], [64.0]])
    tokens = np.array([[1.0, 5.0, 63.0, 64.0, 100.0, 5000.0]])
    whole = busiest_rank(block, ranks, tokens)
    for i, n in enumerate(ranks[:, 0]):
        for j, t in enumerate(tokens[0]):
            alone = busiest_rank(block, np.full((1, 1), n), np.full((1, 1), t))
            for many, one in zip(whole, alone, strict=True):
                assert np.broadcast_to(many, (5, 6))[i, j] == one.item()
