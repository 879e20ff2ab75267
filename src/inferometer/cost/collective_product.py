"""Collectives over several axes at once.

The fabric is a product: a chip reaches directly the chips that differ from it on one axis only (one rail of the
network beside a node, one direction of a torus). Sending across two axes in one step is excluded.

Letters: k axes, axis i with n_i members and B_i bytes/s into one member (`Leg.bytes_per_s`); N the product of the
n_i; g the product of the axes already done; S, a as in `collective_axis`.

All functions take the legs innermost first and return lines of which none is above all others everywhere.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations, product
from math import prod

from inferometer.cost.collective_axis import Line, axis_lines
from inferometer.cost.groups import Leg
from inferometer.cost.twist import tied, twisted_all_to_all

Legs = tuple[Leg, ...]
Only = frozenset[str] | None
"""Names of the algorithms allowed; None: all."""

_INSIDE = " > "
_BESIDE = " + "


def lower_envelope(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines that are the cheapest for some number of bytes from 0 up, by rising alpha (so falling slope).

    >>> lower_envelope([Line("slow", 3.0, 3.0), Line("small", 1.0, 2.0), Line("large", 2.0, 1.0)])
    (Line(algorithm='small', alpha_s=1.0, s_per_byte=2.0), Line(algorithm='large', alpha_s=2.0, s_per_byte=1.0))
    """
    hull: list[Line] = []
    for line in sorted(lines, key=lambda x: (x.alpha_s, x.s_per_byte)):
        if hull and line.s_per_byte >= hull[-1].s_per_byte:
            continue
        while len(hull) > 1 and _covered(hull[-2], hull[-1], line):
            hull.pop()
        hull.append(line)
    return tuple(hull)


def _covered(first: Line, middle: Line, last: Line) -> bool:
    """Whether `last` undercuts `first` before `middle` does (alphas rise, slopes fall)."""
    return (last.alpha_s - first.alpha_s) * (first.s_per_byte - middle.s_per_byte) <= (
        middle.alpha_s - first.alpha_s
    ) * (first.s_per_byte - last.s_per_byte)


def product_lines(kind: str, legs: Legs, only: Only) -> tuple[Line, ...]:
    """Every way to run a collective over two axes or more."""
    lines: list[Line] = []
    if kind == "all-to-all":
        lines.extend(_all_to_all(legs, only))
    elif kind == "all-reduce":
        lines.extend(_wrapped(_all_reduce(legs, only), only))
    else:
        lines.extend(_wrapped(_gather(kind, legs, only), only))
    if kind != "all-to-all" and _allowed("ring", only):
        lines.extend(_flat_ring(kind, legs))
    return tuple(lines)


def _allowed(algorithm: str, only: Only) -> bool:
    return only is None or algorithm in only


def _wrapped(lines: Iterable[Line], only: Only) -> Iterator[Line]:
    """Name what runs axis after axis; a torus all at once has its name already."""
    for line in lines:
        if not any(sign in line.algorithm for sign in (_INSIDE, _BESIDE)):
            yield line
        elif _allowed("hierarchical", only):
            yield line._replace(algorithm=f"hierarchical({line.algorithm})")


def _named(kind: str, leg: Leg, only: Only) -> tuple[Line, ...]:
    """The best lines of one axis, named after it."""
    lines = [x for x in axis_lines(kind, leg) if _allowed(x.algorithm, only)]
    return tuple(x._replace(algorithm=f"{x.algorithm}@{leg.axis}") for x in lower_envelope(lines))


def _first_blocks(legs: Legs, only: Only) -> Iterator[tuple[Legs, Legs]]:
    """Every choice of what goes first (one axis, or ring and line axes at once), and the rest."""
    every = range(len(legs))
    torus = [i for i in every if legs[i].geometry in ("ring", "line")] if _allowed("torus", only) else []
    for size in range(1, len(legs) + 1):
        for first in combinations(every if size == 1 else torus, size):
            yield tuple(legs[i] for i in first), tuple(legs[i] for i in every if i not in first)


@lru_cache(maxsize=1 << 16)
def _block_gather(kind: str, block: Legs, only: Only) -> tuple[Line, ...]:
    return _named(kind, block[0], only) if len(block) == 1 else (_torus(block),)


def _torus(legs: Legs) -> Line:
    """All-gather or reduce-scatter on ring and line axes at once: bandwidth adds.

    The array is cut in parts, each part takes the axes in an order of its own, so that all axes work all the time.
    An axis gathered when those after it have m positions together carries 1/m - 1/(m n_i) of the part. Over all
    orders and shares the loads x_i reach exactly the points with sum x = (N-1)/N and, for every set A of the axes,
    x(A) >= (prod_A n - 1)/N (the base of a polymatroid, an order is a vertex). The least largest x_i/B_i is therefore

        beta = max over sets A of (prod_A n - 1) / (N * sum_A B_i),

    which is (N-1)/N / sum B, the bound, unless an axis is so thin that even going first in the gather it is the
    slowest. alpha = sum hops_i a_i, floor(n/2) on a ring, n-1 on a line. Source: jax-ml/scaling-book:sharding.md
    (V/(W k), Tmin * sum(N_i)/2); the shares for unequal axes are derived here. A limit for arrays cut fine: parts
    of different length wait for each other at the turn from axis to axis.
    """
    n_all = prod(x.n for x in legs)
    beta = max(
        (prod(x.n for x in axes) - 1) / (n_all * sum(x.bytes_per_s for x in axes))
        for size in range(1, len(legs) + 1)
        for axes in combinations(legs, size)
    )
    return Line(f"torus({','.join(x.axis for x in legs)})", sum(x.hops * x.alpha_s for x in legs), beta)


@lru_cache(maxsize=1 << 16)
def _gather(kind: str, legs: Legs, only: Only) -> tuple[Line, ...]:
    """Reduce-scatter block by block in every order; all-gather is the same backwards.

    The first block works on S, the next on S/g: (m-1)/m (S/g)/B2 + (g-1)/g S/B1 + (m-1)a2 + (g-1)a1 for rings in
    nodes of g chips. Source: derived (each rail gathers S/g). Excluded: running the phases of different parts at the
    same time, except on a torus. On a torus alone all axes at once need as many steps as one after another, and
    never more time a byte: an order is a vertex of `_torus`, and the sum of its x_i/B_i is not below their largest.
    """
    if len(legs) > 1 and _allowed("torus", only) and all(x.geometry in ("ring", "line") for x in legs):
        return (_torus(legs),)
    lines: list[Line] = []
    for block, rest in _first_blocks(legs, only):
        first = _block_gather(kind, block, only)
        if not rest:
            lines.extend(first)
            continue
        g = prod(x.n for x in block)
        lines.extend(_then(x, y, g, _INSIDE) for x, y in product(first, _gather(kind, rest, only)))
    return lower_envelope(lines)


def _then(first: Line, after: Line, g: int, sign: str) -> Line:
    """Run `after` on 1/g of the bytes besides `first`."""
    return Line(
        first.algorithm + sign + after.algorithm,
        first.alpha_s + after.alpha_s,
        first.s_per_byte + after.s_per_byte / g,
    )


@lru_cache(maxsize=1 << 16)
def _all_reduce(legs: Legs, only: Only) -> tuple[Line, ...]:
    """All-reduce block by block in every order.

    After a first block of g members, either

    * `first > rest`: reduce-scatter the block, all-reduce the rest on S/g, all-gather the block:
      2(g-1)/g S/B1 + 2(m-1)/m (S/g)/B2 + 2(g-1)a1 + 2(m-1)a2 for rings. Source: the standard two levels, steps as
      in NVIDIA/nccl:src/graph/tuning.cc; or
    * `first + rest`: all-reduce the block, then the rest, both on S: more bytes, fewer steps, for small messages.
      Source: derived.

    A torus of rings and lines: twice its all-gather (jax-ml/scaling-book:sharding.md), or one-shot as on one axis.
    Excluded: phases of different parts at the same time, except on a torus.
    """
    lines: list[Line] = []
    for block, rest in _first_blocks(legs, only):
        reduced = _block_reduce(block, only)
        if not rest:
            lines.extend(reduced)
            continue
        after = _all_reduce(rest, only)
        g = prod(x.n for x in block)
        scatters = _block_gather("reduce-scatter", block, only)
        gathers = _block_gather("all-gather", block, only)
        for scatter, gather in product(scatters, gathers):
            both = Line(scatter.algorithm, scatter.alpha_s + gather.alpha_s, scatter.s_per_byte + gather.s_per_byte)
            lines.extend(_then(both, x, g, _INSIDE) for x in after)
        lines.extend(_then(x, y, 1, _BESIDE) for x, y in product(reduced, after))
    return lower_envelope(lines)


@lru_cache(maxsize=1 << 16)
def _block_reduce(block: Legs, only: Only) -> tuple[Line, ...]:
    """All-reduce of one axis, or of a torus in one go."""
    if len(block) == 1:
        return _named("all-reduce", block[0], only)
    torus = _torus(block)
    lines = [Line(torus.algorithm, 2 * torus.alpha_s, 2 * torus.s_per_byte)]
    if _allowed("one-shot", only):
        n_all = prod(x.n for x in block)
        lines.append(Line(torus.algorithm + " one-shot", torus.alpha_s, n_all * torus.s_per_byte))
    return tuple(lines)


def _all_to_all(legs: Legs, only: Only) -> Iterator[Line]:
    """All-to-all axis by axis, every axis kept busy: the slowest axis' beta, the sum of the alphas.

    On its way along axis i a rank's buffer goes, 1/n_i each, to the n_i positions there, whatever axis it takes
    before or after: each axis sees the one-axis all-to-all of the whole S. In nodes of g chips on rails:
    max((m-1)/m S/B2, (g-1)/g S/B1). Source: deepseek-ai/DeepEP:docs/legacy.md (network to node forwarding, both at
    work). On a torus the longest axis counts: n S/(8b) with, n S/(4b) without wrap. Source: derived by bisection,
    agrees with jax-ml/scaling-book:sharding.md, question 10. A limit for buffers cut fine.
    On a twisted torus the same, or the rings it ties together at once by the shortest ways (`twist`).
    Excluded: copies merged on a node before they leave it (the caller's bytes say so).
    """
    torus = all(x.geometry in ("ring", "line") for x in legs)
    name = "torus" if torus else "hierarchical"
    if not _allowed(name, only):
        return
    ways = [_named("all-to-all", x, only) for x in legs]
    together = tied(legs)
    choices = list(product(*ways))
    if together and _allowed("torus", only):
        beside = [way for i, way in enumerate(ways) if i not in together]
        choices += product((twisted_all_to_all(legs, together),), *beside)
    for lines in choices:
        label = f"{name}({','.join(x.algorithm for x in lines)})"
        yield Line(label, sum(x.alpha_s for x in lines), max(x.s_per_byte for x in lines))


def _flat_ring(kind: str, legs: Legs) -> Iterator[Line]:
    """One ring through all axes (none of them a torus axis), many channels, entering each node by another chip.

    As many channels as a node has chips, each with 1/g of S. Of the N links of a channel's cycle, h_i lie on axis i:
    N/G_i - N/G_(i+1), on the outermost N/G_i, where G_i is the product of the axes inside i. Channels enter nodes by
    different chips, so a chip's port of axis i serves the share h_i/N of them: beta = (N-1)/N max h_i/(N B_i).
    A chunk passes all links of its cycle but one, the unluckiest all but the quickest: alpha. Twice both for
    all-reduce. Source: derived; NVIDIA/nccl:src/graph/tuning.cc adds a ring's steps the same way, with one step
    between nodes less a phase. Excluded: torus axes. A limit for meshes, and for an odd number of nodes of two
    chips, where not all channels close.
    """
    if any(x.geometry in ("ring", "line") for x in legs):
        return
    n_all = prod(x.n for x in legs)
    inside, alpha, slowest = 1, -min(x.alpha_s for x in legs), 0.0
    for x in legs:
        outside = inside * x.n
        hops = n_all // inside - (n_all // outside if outside < n_all else 0)
        alpha += hops * x.alpha_s
        slowest = max(slowest, hops / n_all / x.bytes_per_s)
        inside = outside
    phases = 2 if kind == "all-reduce" else 1
    yield Line("ring", phases * alpha, phases * (n_all - 1) / n_all * slowest)
