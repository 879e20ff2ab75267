"""Routing statistics: distinct experts, distinct shards, the busiest rank. Uniform popularity.

Letters: E experts, Z zero experts, k chosen a token of E + Z, g groups of which G may be chosen from, n
expert-parallel ranks, l = E / n experts a rank holds, T tokens, m = T k E / (E + Z) / n mean copies a rank receives.

Group-limited routing (DeepSeek-V3, arXiv:2412.19437 section 2.1.2) first takes G of g groups, then k experts
inside them; uniform popularity makes both draws uniform without replacement.

A zero expert returns its input (LongCat-Flash, arXiv:2509.01322 section 2.1): what falls on one goes to no rank.
"""

from functools import cache
from math import ceil, comb, erf, exp, pi, sqrt
from typing import NamedTuple

import numpy as np

from inferometer.graph.ops import Column
from inferometer.specs.feedforward import Moe


class RankDraw(NamedTuple):
    """One token's copies on one rank."""

    mean: float
    """k / n."""
    variance: float
    hit: float
    """Probability that at least one copy lands on the rank."""


def experts_a_token(block: Moe) -> float:
    """Return the mean experts that a token is sent to: k E / (E + Z).

    >>> experts_a_token(Moe(experts=512, zero_experts=256, top_k=12, width=1))
    8.0
    """
    return block.top_k * block.experts / (block.experts + block.zero_experts)


def _hypergeometric(total: int, marked: int, drawn: int) -> list[float]:
    """Return P(j marked among `drawn` of `total`) for j = 0..drawn."""
    whole = comb(total, drawn)
    return [comb(marked, j) * comb(total - marked, drawn - j) / whole for j in range(drawn + 1)]


@cache
def rank_draw(  # noqa: PLR0917 (arguments of a cached function are its key, by position)
    experts: int, top_k: int, groups: int, top_groups: int, ranks: int, zero: int = 0
) -> RankDraw:
    """Return mean, variance and hit probability of one token's copies on one of `ranks` ranks.

    A rank holds l = E / n experts (rounded up): whole groups, and part of one more. With c of its whole groups
    chosen it holds c E / g eligible experts out of G E / g, and the part where that group is chosen too; copies
    are hypergeometric. Zero experts are drawn from besides, under free routing.

    >>> rank_draw(256, 8, 1, 1, 256).hit == 8 / 256
    True
    >>> round(8 * rank_draw(256, 8, 8, 4, 8).hit, 3)  # DeepSeek-V3 touches under 4 of 8 nodes
    3.629
    """
    group = experts // groups
    whole, part = divmod(-(-experts // ranks), group)
    mean = second = hit = 0.0
    for chosen, p_chosen in enumerate(_hypergeometric(groups, whole, top_groups)):
        p_part = (top_groups - chosen) / (groups - whole) if part else 0.0
        for marked, p_marked in ((chosen * group, 1 - p_part), (chosen * group + part, p_part)):
            p = p_chosen * p_marked
            if p <= 0:
                continue
            draws = _hypergeometric(top_groups * group + zero, marked, top_k)
            mean += p * sum(j * d for j, d in enumerate(draws))
            second += p * sum(j * j * d for j, d in enumerate(draws))
            hit += p * (1 - draws[0])
    return RankDraw(mean, max(0.0, second - mean * mean), hit)


@cache
def expected_max_normal(n: int) -> float:
    """Return the expected maximum of n independent standard normals, by quadrature.

    E[max] = integral of x n phi(x) Phi(x)^(n-1); trapezoid on [-9, 9].
    The step is coarse because the trapezoid rule converges geometrically on smooth decaying functions.

    >>> [round(expected_max_normal(n), 3) for n in (1, 4, 8, 16, 32, 64)]
    [0.0, 1.029, 1.424, 1.766, 2.07, 2.344]
    """
    step = 0.1
    total = 0.0
    for i in range(-90, 91):
        x = i * step
        below = 0.5 * (1 + erf(x / sqrt(2)))
        total += x * n * exp(-x * x / 2) / sqrt(2 * pi) * below ** (n - 1) * step
    return round(total, 9) + 0.0


SMALL_MEAN = 8.0
"""Below this many mean copies a rank, the busiest rank comes from a table, not the normal form."""


@cache
def _small_table(experts: int, top_k: int, ranks: int, zero: int) -> Column:
    """Return E[copies on the busiest rank] for T = 0, 1, .. while m < SMALL_MEAN, free routing.

    A rank's copies are binomial(l T, k / E), conditioned on the total T k (the draws hold at most one copy
    an expert and token). By Bayes, P(max <= c | sum = N) = F(c)^n P(sum of truncated = N) / P(sum = N), each
    sum's density at N by the local limit theorem. E[max] = sum over c of P(max > c). Levin, "A representation
    for multinomial cumulative distribution functions", Annals of Statistics 9 (1981). Copies on zero experts are one
    more binomial of the sum, of (Z T, k / (E + Z)), which no maximum truncates.
    """
    each = top_k * experts / (experts + zero)
    count = max(2, ceil(SMALL_MEAN * ranks / each) + 1)
    tokens = np.arange(count, dtype=np.float64)[:, None]
    if ranks == 1:
        return tokens[:, 0] * each
    trials = tokens * (experts / ranks)
    p = min(top_k / (experts + zero), 1 - 1e-9)
    cap = int(SMALL_MEAN + 8 * sqrt(SMALL_MEAN)) + 2
    values = np.arange(cap, dtype=np.float64)[None, :]
    pmf = np.empty((count, cap))
    pmf[:, 0] = (1 - p) ** trials[:, 0]
    for j in range(1, cap):
        pmf[:, j] = pmf[:, j - 1] * np.maximum(trials[:, 0] - (j - 1), 0.0) / j * (p / (1 - p))
    below = np.cumsum(pmf, axis=1)
    mean = np.cumsum(pmf * values, axis=1) / below
    spread = np.maximum(np.cumsum(pmf * values * values, axis=1) / below - mean * mean, 0.0)
    total = tokens * top_k
    free = tokens * (zero / ranks)
    full = np.maximum((trials + free) * p * (1 - p), 1e-12)
    width = np.maximum(spread + free * p * (1 - p), 1e-12)
    gap = (total - ranks * (mean + free * p)) ** 2 / (2 * ranks * width)
    at_most = np.minimum(1.0, below**ranks * np.exp(-gap) * np.sqrt(full / width))
    too_few = values * ranks + tokens * min(zero, top_k) < total
    at_most = np.where(too_few, 0.0, np.maximum.accumulate(at_most, axis=1))
    table = np.sum(1 - at_most, axis=1)
    table[0] = 0.0
    some = 1 - comb(zero, top_k) / comb(experts + zero, top_k)
    rising: Column = np.maximum.accumulate(np.maximum(table, np.where(total[:, 0] > 0, some, 0.0)))
    return rising


def power(base: Column, exponent: Column) -> Column:
    """Return base ** exponent. Both are laid out alike first, so that one value gives the same bits as many."""
    x, y = (np.ascontiguousarray(each) for each in np.broadcast_arrays(base, exponent))
    raised: Column = np.power(x, y)
    return raised


class Busiest(NamedTuple):
    """What the busiest rank receives, as columns."""

    copies: Column
    """Token copies: rows of its grouped GEMMs."""
    distinct: Column
    """Distinct experts it must read."""
    tokens: Column
    """Distinct tokens (copies coalesced by rank)."""


@cache
def _rank_constants(moe: tuple[int, int, int, int], ranks: int, zero: int) -> tuple[float, ...]:
    """Return what the busiest-rank formulas need of one (E, k, g, G), n and Z.

    Copies of n ranks of n' = n (E + Z) / E alike have covariance -var / (n' - 1): their maximum spreads as that of
    independent ones with variance var n' / (n' - 1).
    """
    draw = rank_draw(*moe, ranks, zero)
    free = rank_draw(moe[0], moe[1], 1, 1, ranks, zero)
    alike = ranks * (moe[0] + zero) / moe[0]
    spread = alike / (alike - 1) if alike > 1 else 0.0
    excess = expected_max_normal(ranks)
    widen = sqrt(draw.variance / free.variance) if free.variance > 0 else 1.0
    return (
        draw.mean,
        excess * sqrt(draw.variance * spread),
        draw.hit,
        widen,
        excess * sqrt(draw.hit * (1 - draw.hit) * spread),
    )


def busiest_rank(block: Moe, ranks: Column, tokens: Column) -> Busiest:
    """Return the busiest of `ranks` expert-parallel ranks when `tokens` tokens are routed, as columns.

    copies: m + e(n) sqrt(T var n'/(n'-1)) for m >= 8 (with the free variance of one token's copies and n' = n this is
    m + e sqrt(m (E-k)/(E-1))), else the table, its excess over m widened by sqrt(var / free var). The table's last
    value bounds the normal form from below, so that copies never fall where one takes over from the other.
    distinct: l (1 - (1 - a/l)^(c/a)), where a = mean copies of a token that hits the rank: exact for n = 1
    (a = k, c = T k gives E (1 - (1 - k/E)^T)) and for n = E. tokens: the normal form of a Bernoulli draw a
    token, and no fewer than copies / a.
    """
    found = _received(block, ranks, tokens)
    missed = 1 - np.minimum(found.together / found.local, 1.0)
    distinct = found.local * (1 - power(missed, found.copies / found.together))
    return Busiest(found.copies, np.minimum(distinct, found.copies), found.seen)


def busiest_tokens(block: Moe, ranks: Column, tokens: Column) -> Column:
    """Return `busiest_rank(...).tokens` alone, without the power that distinct experts take."""
    return _received(block, ranks, tokens).seen


class _Received(NamedTuple):
    """Copies, tokens, a and l of `busiest_rank`."""

    copies: Column
    seen: Column
    together: Column
    local: Column


def _received(block: Moe, ranks: Column, tokens: Column) -> _Received:
    key = (block.experts, block.top_k, block.groups, block.top_groups)
    sizes, index = np.unique(ranks, return_inverse=True)
    constants = np.array([_rank_constants(key, int(n), block.zero_experts) for n in sizes]).T
    mean, sigma, hit, widen, token_sigma = (row[index] for row in constants)
    root = np.sqrt(tokens)
    average = tokens * mean
    copies = average + sigma * root
    if (average < 2 * SMALL_MEAN).any():
        table = [_small_table(block.experts, block.top_k, int(n), block.zero_experts) for n in sizes]
        offsets = np.cumsum([0, *(len(t) for t in table[:-1])])
        last = np.array([len(t) - 1 for t in table])[index]
        at = np.minimum(np.floor(tokens), last)
        exact = np.concatenate(table)[at.astype(np.intp) + offsets[index]]
        few = at * mean
        listed = few + (exact - few) * widen
        copies = np.maximum(np.where(average < SMALL_MEAN, average, copies), listed)
    local = np.ceil(block.experts / ranks)
    copies = np.minimum(copies, tokens * np.minimum(float(block.top_k), local))
    together = mean / hit
    seen = np.minimum(np.minimum(np.maximum(tokens * hit + token_sigma * root, copies / together), tokens), copies)
    return _Received(copies, seen, together, local)
