"""Routing when experts are not alike: power-law popularity, and sequences that share their prompt.

Letters as in `blocks.routing`; S exponent, p_i probability that a token chooses expert i, U distinct tokens, D distinct
prompts in flight at a replica.

The i-th most popular expert is wanted like i^-S. A token's k experts are drawn one after another, in proportion and
without replacement: p_i = 1 - exp(-x i^-S), with x such that they sum to k E / (E + Z) (a race of exponential clocks,
stopped when k have rung). Which expert is popular says nothing of where it lies: ranks are means over random ways to
place them.

Redundant experts (N copies beside the E; deepseek-ai/EPLB): a copy goes, N times, to the expert whose copies are wanted
most each; a copy is wanted p_i / c_i. Ranks are then filled with the copies wanted most first, each on the rank with
least so far that has room: the balancer is taken to know the popularity, which engines estimate.

What skew does is told as a ratio to no skew, in the same approximation, on what `busiest_rank` gives: so S = 0 is
uniform popularity to the last bit. Each column is of its own busiest rank: of copies the one with the popular experts,
of distinct experts another, as a step waits for both.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from inferometer.blocks.routing import Busiest, busiest_rank, busiest_tokens, experts_a_token
from inferometer.graph.ops import Column
from inferometer.specs.feedforward import Moe

WAYS = 24
"""Random ways to place experts; the seed is fixed."""

OCTAVES = 24
"""Powers of two of T that ratios are worked out at; between them they are straight in log T, beyond them kept."""

NODES = 48
"""Points at which the distribution of a maximum is summed."""


class Routing(NamedTuple):
    """How tokens choose experts."""

    skew: float = 0.0
    """S; 0: all experts are as popular."""
    distinct_prompts: float = float("inf")
    """D."""

    @property
    def usual(self) -> bool:
        """Whether experts are alike and prompts differ."""
        return self == USUAL


USUAL = Routing()


def routed_tokens(block: Moe, ranks: Column, sequences: Column, tokens: Column, how: Routing) -> Column:
    """Return `routed(...).tokens` alone."""
    if how.usual and not block.redundant:
        return busiest_tokens(block, ranks, tokens)
    return routed(block, ranks, sequences, tokens, how).tokens


def routed(block: Moe, ranks: Column, sequences: Column, tokens: Column, how: Routing) -> Busiest:
    """Return the busiest of `ranks` ranks when `tokens` tokens of `sequences` sequences are routed, as columns.

    Sequences with one prompt send each token to the same experts: U = T min(1, D / sequences) differ, each of which
    counts T / U times. With one prompt in decode just k experts are read.
    """
    if how.usual and not block.redundant:
        return busiest_rank(block, ranks, tokens)
    distinct = tokens * np.minimum(1.0, how.distinct_prompts / np.maximum(sequences, 1.0))
    found = busiest_rank(block, ranks, distinct)
    if how.skew > 0 or block.redundant:
        found = _skewed(block, ranks, distinct, found, how.skew)
    times = tokens / distinct
    return Busiest(found.copies * times, found.distinct, found.tokens * times)


def chosen_by(experts: int, total: float, skew: float) -> Column:
    """Return p_i of every expert, the most popular first; they sum to `total`, the experts a token is sent to.

    >>> chosen_by(4, 2.0, 0.0).round(9).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    wanted = np.arange(1.0, experts + 1) ** -skew
    if total >= experts:
        return np.ones(experts)
    low, high = 0.0, 1.0
    while -np.expm1(-high * wanted).sum() < total:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(-middle * wanted).sum() < total else (low, middle)
    chosen: Column = -np.expm1(-high * wanted)
    return chosen


class Ratios(NamedTuple):
    """What skew does to each column of `Busiest`, at T of powers of two."""

    copies: Column
    distinct: Column
    tokens: Column


def _skewed(block: Moe, ranks: Column, tokens: Column, plain: Busiest, skew: float) -> Busiest:
    sizes, index = np.unique(ranks, return_inverse=True)
    index = index.reshape(np.shape(ranks))
    octave = np.log2(np.maximum(tokens, 1.0))
    shape = np.broadcast_shapes(octave.shape, index.shape)
    key = (block.experts, experts_a_token(block), block.redundant)
    times = [np.ones(shape) for _ in Ratios._fields]
    for i, n in enumerate(sizes):
        mine = np.broadcast_to(index == i, shape)
        at = np.broadcast_to(octave, shape)[mine]
        for column, ratio in zip(times, _ratios(*key, int(n), skew), strict=True):
            column[mine] = np.interp(at, np.arange(OCTAVES), ratio)
    local = np.ceil((block.experts + block.redundant) / ranks)
    copies = np.minimum(plain.copies * times[0], tokens * np.minimum(float(block.top_k), local))
    distinct = np.minimum(np.minimum(plain.distinct * times[1], local), copies)
    seen = np.minimum(np.minimum(plain.tokens * times[2], tokens), copies)
    return Busiest(copies, distinct, seen)


@lru_cache(maxsize=1 << 10)
def _ratios(experts: int, total: float, redundant: int, ranks: int, skew: float) -> Ratios:
    """Return what skew and copies do on one number of ranks."""
    own, alike = _expected(experts, total, redundant, ranks, skew), _expected(experts, total, 0, ranks, 0.0)
    return Ratios(*(mine / plain for mine, plain in zip(own, alike, strict=True)))


@lru_cache(maxsize=1 << 10)
def _expected(experts: int, total: float, redundant: int, ranks: int, skew: float) -> Ratios:
    """Return expected copies, distinct experts and distinct tokens of each one's busiest rank, T = 1, 2, 4, ...

    Of experts chosen with probabilities p a rank has copies of mean T sum p and variance T sum p (1 - p), as if drawn
    apart: that the draws of all ranks add up to T k lowers each variance, and makes the maximum of ranks spread as that
    of independent ones with this variance. It has distinct experts of probability q = 1 - (1 - p)^T each, and tokens
    of 1 - prod(1 - p).
    """
    chosen = chosen_by(experts, total, skew)
    ways = balanced(copied(chosen, redundant), ranks)[None] if redundant else _lots(chosen, ranks)
    tokens = 2.0 ** np.arange(OCTAVES)
    each, spread = ways.sum(axis=2), (ways * (1 - ways)).sum(axis=2)
    hit = 1 - np.prod(1 - ways, axis=2)
    taken = [1 - (1 - ways) ** t for t in tokens]
    distinct = np.array([_largest(q.sum(axis=2), np.sqrt((q * (1 - q)).sum(axis=2))) for q in taken])
    copies = np.array([_largest(t * each, np.sqrt(t * spread)) for t in tokens])
    seen = np.array([_largest(t * hit, np.sqrt(t * hit * (1 - hit))) for t in tokens])
    return Ratios(copies, distinct, seen)


def _lots(chosen: Column, ranks: int) -> Column:
    """Return random placements of experts on ranks, (WAYS, ranks, experts of a rank); empty places are never chosen."""
    local = -(-len(chosen) // ranks)
    places = np.zeros(local * ranks)
    places[: len(chosen)] = chosen
    lot = np.random.default_rng(0)
    return np.stack([lot.permutation(places) for _ in range(WAYS)]).reshape(WAYS, ranks, local)


def copied(chosen: Column, redundant: int) -> Column:
    """Return how each copy is wanted: every expert has one, and N more go where copies are wanted most.

    >>> copied(np.array([0.8, 0.6, 0.1]), 2).tolist()
    [0.4, 0.4, 0.3, 0.3, 0.1]
    """
    counts = np.ones(len(chosen))
    for _ in range(redundant):
        counts[np.argmax(chosen / counts)] += 1
    return np.repeat(chosen / counts, counts.astype(np.intp))


def balanced(copies: Column, ranks: int) -> Column:
    """Return copies placed on ranks, (ranks, places): most wanted first, each on the rank with least that has room.

    >>> balanced(np.array([0.5, 0.4, 0.3, 0.2]), 2).tolist()
    [[0.5, 0.2], [0.4, 0.3]]
    """
    room = -(-len(copies) // ranks)
    placed, held, load = np.zeros((ranks, room)), np.zeros(ranks, dtype=np.intp), np.zeros(ranks)
    for wanted in np.sort(copies)[::-1]:
        rank = int(np.argmin(np.where(held < room, load, np.inf)))
        placed[rank, held[rank]] = wanted
        held[rank] += 1
        load[rank] += wanted
    return placed


def _largest(mean: Column, sigma: Column) -> float:
    """Return the expected largest of independent normals (the last axis), the mean over the first.

    E max = a + integral from a of 1 - prod Phi((x - mean) / sigma), where a is so low that the product is none.
    """
    sigma = np.maximum(sigma, 1e-9)
    low, high = (mean - 6 * sigma).max(axis=1), (mean + 6 * sigma).max(axis=1)
    x = low + (high - low) * np.linspace(0, 1, NODES)[:, None]
    below = _normal((x[:, :, None] - mean) / sigma).prod(axis=2)
    rest = (1 - (below[1:] + below[:-1]) / 2).sum(axis=0) * (high - low) / (NODES - 1)
    return float((low + rest).mean())


def _normal(x: Column) -> Column:
    """Return Phi(x) to 1e-7: Abramowitz and Stegun 26.2.17."""
    t = 1 / (1 + 0.2316419 * np.abs(x))
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = tail * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    result: Column = np.where(x > 0, 1 - upper, upper)
    return result
