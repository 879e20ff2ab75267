"""All-to-all over rings that a twist ties together, by the shortest ways.

Going once round one ring of a twisted torus ends further along another. Its chips are the points of a whole-number
lattice, taken equal where they differ by a turn: every chip looks alike (a Cayley graph of an abelian group), so if
all chips route alike, all links of one axis and direction carry the same, and a displacement and its opposite load
the two directions of an axis evenly. Nothing need be simulated: the hops of one chip's messages say it all.

Letters: n members, h_i the mean hops along axis i to a member (itself among them) by a shortest way, S, b as in
`collective_axis`. An axis carries n S h_i over its 2n directed links: beta = max h_i / (2 b_i).

With k equal links this is the bound, (mean distance) / (2k b), wherever the h_i are equal: no way is shorter. They are
on k x k x 2k and k x 2k x 2k. The turns of the first are k times (1,0,1), (0,1,1), (0,0,2): the points with an even
sum. Those of the second are k times (1,1,1), (0,2,0), (0,0,2): the points whose coordinates are all even or all odd.
Both sets stay the same when axes are exchanged. Times b, plain and twisted: 1 and 0.573 on 4x4x8, 1 and 0.719 on 4x8x8.
By hand, k = 2 in two dimensions: on 2 x 4 with turns (2,2), (0,4) the seven others lie 1,1,1,1,2,2,2 hops away: beta =
(10/8) / 4 = 0.3125, where the ring of four alone takes 0.5.
Source: derived. The shapes and the turn by k in each longer axis: Camara et al. 2010, "Twisted torus topologies for
enhanced interconnection networks", IEEE TPDS 21(12). Measured on TPU v4 (Jouppi et al. 2023, ISCA, section 2.8): 1.63x
on 4x4x8 and 1.31x on 4x8x8, where this limit gives 1.75x and 1.39x: 94 % of either is reached.
"""

from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from inferometer.cost.collective_axis import Line
from inferometer.cost.groups import Leg

_TURNS = range(-2, 3)
"""Turns round each ring that are tried; a shortest way makes at most one, and undoes what others moved."""


class Ways(NamedTuple):
    """The shortest ways from a member to all."""

    mean_hops: tuple[float, ...]
    """By axis, over all members; ways of equal length share alike."""
    farthest: tuple[tuple[int, ...], ...]
    """Hops by axis of every distinct shortest way."""


def tied(legs: tuple[Leg, ...]) -> tuple[int, ...]:
    """Return which legs a twist ties together: those it turns off, and those it turns along."""
    return tuple(i for i, leg in enumerate(legs) if leg.turn or any(other.turn and other.turn[i] for other in legs))


def twisted_all_to_all(legs: tuple[Leg, ...], together: tuple[int, ...]) -> Line:
    """All-to-all over the legs that are tied `together`: every message goes a shortest way, over all of them at once.

    alpha is the longest of those ways, beta the fullest axis. A limit for buffers cut fine.
    """
    rings = [legs[i] for i in together]
    turns = tuple(tuple(x.turn[i] for i in together) if x.turn else () for x in rings)
    ways = shortest_ways(tuple(x.n for x in rings), turns)
    alpha = max(sum(h * x.alpha_s for h, x in zip(way, rings, strict=True)) for way in ways.farthest)
    beta = max(h / (2 * x.link_bytes_per_s) for h, x in zip(ways.mean_hops, rings, strict=True))
    return Line(f"twisted@{','.join(x.axis for x in rings)}", alpha, beta)


@lru_cache(maxsize=1 << 12)
def shortest_ways(sizes: tuple[int, ...], turns: tuple[tuple[int, ...], ...]) -> Ways:
    """Return the shortest ways on rings of `sizes`, where going once round ring i ends `turns[i]` along each ring.

    >>> shortest_ways((2, 4), ((0, 2), ())).mean_hops
    (0.625, 0.625)
    >>> shortest_ways((4, 8), ((), ())).mean_hops
    (1.0, 2.0)
    """
    k, n = len(sizes), prod(sizes)
    round_ring = np.diag(sizes)
    for i, turn in enumerate(turns):
        if turn:
            round_ring[i] -= np.array(turn)
    offsets = np.array(list(product(_TURNS, repeat=k))) @ round_ring
    goals = np.indices(sizes).reshape(k, n).T
    shortest = np.full(n, sum(sizes))
    for offset in offsets:
        np.minimum(shortest, np.abs(goals + offset).sum(axis=1), out=shortest)
    hops, ties = np.zeros((n, k)), np.zeros(n)
    distinct: set[tuple[int, ...]] = set()
    for offset in offsets:
        way = np.abs(goals + offset)
        taken = way.sum(axis=1) == shortest
        hops[taken] += way[taken]
        ties += taken
        distinct.update(map(tuple, np.unique(way[taken], axis=0).tolist()))
    mean = (hops / ties[:, None]).mean(axis=0)
    return Ways(tuple(mean.tolist()), tuple(sorted(distinct)))
