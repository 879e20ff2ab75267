"""Placements of large fabrics, thinned before they are multiplied out.

A full enumeration multiplies the ways each role may lie, which passes a million on a thousand chips. Here the ways are
built step by step: region (the chips of a stage), PP and R around it, TP and DPA inside it, DCP inside TP, ETP and EP
inside it. At each step, among ways of equal sizes, one is dropped where another's collectives cost no more for any
message: each of its lines has a line of the other with no more latency and no more seconds a byte. A dropped way can
never beat the other on the messages compared; a way kept is not known to win. What a step cannot see (a TP split that
leaves less room for DCP) it does not weigh: the result is thinned, not exact.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from inferometer.cost.collectives import Line
from inferometer.cost.groups import Signature
from inferometer.estimate.candidates import Index
from inferometer.specs.hardware import Fabric

Factors = tuple[int, ...]
"""One factor an axis."""

Lines = Callable[[str, Signature], tuple[Line, ...]]
"""(collective kind, signature) -> its lower envelope."""

_MESH, _EXPERTS, _FRAME = ("dcp", "tp", "dpa"), ("etp", "ep"), ("pp", "r")
_INSIDE = _MESH + _EXPERTS
"""Roles that a step places: in TP and DPA, in EP and ETP, around the region."""

SUMS = ("all-reduce", "all-gather", "reduce-scatter")


class Way(NamedTuple):
    """A way for some roles to lie: factors an axis by name, and what its messages cost."""

    factors: dict[str, Factors]
    lines: tuple[tuple[Line, ...], ...]


def no_dearer(a: Way, b: Way) -> bool:
    """Return whether way a costs no more than b for any message of any kind compared."""
    return all(
        any(x.alpha_s <= y.alpha_s and x.s_per_byte <= y.s_per_byte for x in ours)
        for ours, theirs in zip(a.lines, b.lines, strict=True)
        for y in theirs
    )


def undominated(ways: Iterable[Way]) -> list[Way]:
    """Return the ways that no other one is no dearer than; the first of equals."""
    kept: list[Way] = []
    for way in ways:
        if any(no_dearer(other, way) for other in kept):
            continue
        kept = [other for other in kept if not no_dearer(way, other)]
        kept.append(way)
    return kept


def _by_size(ways: Iterable[Way], names: tuple[str, ...]) -> Iterator[Way]:
    """Yield the undominated among ways whose named roles have equal sizes."""
    groups: dict[tuple[int, ...], list[Way]] = {}
    for way in ways:
        groups.setdefault(tuple(prod(way.factors[name]) for name in names), []).append(way)
    for group in groups.values():
        yield from undominated(group)


def divided(factors: Factors, divisors: Callable[[int], tuple[int, ...]]) -> Iterator[Factors]:
    """Yield every way to take a divisor of each factor."""
    return product(*(divisors(factor) for factor in factors))


class Thinner:
    """Builds the thinned ways of one fabric; each step is worked out once for what it depends on."""

    def __init__(self, fabric: Fabric, lines: Lines, divisors: Callable[[int], tuple[int, ...]]) -> None:
        self._fabric = fabric
        self._lines = cache(lines)
        self._divisors = divisors
        self._context: dict[Factors, list[Way]] = {}

    def _cost(self, factors: Factors, strides: Factors, kinds: tuple[str, ...]) -> tuple[tuple[Line, ...], ...]:
        shared = [axis.geometry in ("ring", "line") for axis in self._fabric.axes]
        signature = tuple((f, s if wide and f > 1 else 1) for f, s, wide in zip(factors, strides, shared, strict=True))
        return tuple(self._lines(kind, signature) for kind in kinds)

    def frames(self) -> Iterator[Way]:
        """Yield (stage, pp, r) ways: for equal sizes and the same region, those whose hand-over is cheapest."""
        ways: dict[Factors, list[Way]] = {}
        for stage in divided(tuple(axis.size for axis in self._fabric.axes), self._divisors):
            rest = tuple(axis.size // s for axis, s in zip(self._fabric.axes, stage, strict=True))
            for pp in divided(rest, self._divisors):
                r = tuple(a // b for a, b in zip(rest, pp, strict=True))
                cost = self._cost(pp, stage, ("p2p",))
                ways.setdefault(stage, []).append(Way({"stage": stage, "pp": pp, "r": r}, cost))
        for group in ways.values():
            yield from _by_size(group, ("pp", "r"))

    def regions(self, frames: Iterable[Way]) -> list[Way]:
        """Return the frames, less those whose region's own collectives are dearer than another's of equal sizes."""
        one = tuple(1 for _ in self._fabric.axes)
        costed = [Way(f.factors, (*f.lines, *self._cost(f.factors["stage"], one, SUMS))) for f in frames]
        return list(_by_size(costed, ("stage", "pp", "r")))

    def meshes(self, stage: Factors, *, moe: bool) -> list[Way]:
        """Return the ways of TP, DPA and DCP inside a region."""
        found: list[Way] = []
        one = tuple(1 for _ in stage)
        splits = []
        for tp in divided(stage, self._divisors) if moe else (stage,):
            dpa = tuple(s // t for s, t in zip(stage, tp, strict=True))
            lines = (*self._cost(tp, one, SUMS), *self._cost(dpa, tp, SUMS))
            splits.append(Way({"tp": tp, "dpa": dpa}, lines))
        for way in _by_size(splits, ("tp",)):
            contexts = self._contexts(way.factors["tp"])
            found += [Way({**way.factors, **context.factors}, ()) for context in contexts]
        return found

    def _contexts(self, tp: Factors) -> list[Way]:
        if tp not in self._context:
            one = tuple(1 for _ in tp)
            kinds = ("all-gather", "reduce-scatter", "all-to-all")
            ways = [Way({"dcp": dcp}, self._cost(dcp, one, kinds)) for dcp in divided(tp, self._divisors)]
            self._context[tp] = list(_by_size(ways, ("dcp",)))
        return self._context[tp]

    def experts(self, stage: Factors, *, moe: bool) -> list[Way]:
        """Return the ways of ETP and EP inside a region."""
        one = tuple(1 for _ in stage)
        ways = []
        for etp in divided(stage, self._divisors) if moe else (one,):
            ep = tuple(s // e for s, e in zip(stage, etp, strict=True)) if moe else one
            lines = (*self._cost(etp, one, SUMS[1:]), *self._cost(ep, etp, ("all-to-all",)))
            ways.append(Way({"etp": etp, "ep": ep}, lines))
        return list(_by_size(ways, ("etp",)))


def thinned(
    fabric: Fabric,
    *,
    moe: bool,
    fixed: Mapping[str, int],
    lines: Lines,
    divisors: Callable[[int], tuple[int, ...]],
) -> list[dict[str, Index]]:
    """Return, by axis, the factors of every placement kept: columns dcp, tpx, dpa, etp, ep, pp, r."""
    thinner = Thinner(fabric, lines, divisors)
    n_axes = len(fabric.axes)
    parts = [np.zeros((0, len(_INSIDE) + len(_FRAME), n_axes), dtype=np.int64)]
    inside: dict[Factors, Index] = {}
    for frame in thinner.regions(thinner.frames()):
        if not _agrees(frame, fixed):
            continue
        stage = frame.factors["stage"]
        if stage not in inside:
            meshes = [way for way in thinner.meshes(stage, moe=moe) if _agrees(way, fixed)]
            experts = [way for way in thinner.experts(stage, moe=moe) if _agrees(way, fixed)]
            inside[stage] = _paired(_stacked(meshes, _MESH, n_axes), _stacked(experts, _EXPERTS, n_axes))
        parts.append(_paired(inside[stage], _stacked([frame], _FRAME, n_axes)))
    return _columns(np.concatenate(parts))


def _agrees(way: Way, fixed: Mapping[str, int]) -> bool:
    return all(prod(way.factors[name]) == size for name, size in fixed.items() if name in way.factors)


def _stacked(ways: list[Way], names: tuple[str, ...], n_axes: int) -> Index:
    """Return the factors of ways, (ways, names, axes)."""
    factors = [[way.factors[name] for name in names] for way in ways]
    return np.array(factors, dtype=np.int64).reshape(-1, len(names), n_axes)


def _paired(a: Index, b: Index) -> Index:
    """Return every row of a with every row of b, the latter running faster; their names one after another."""
    return np.concatenate([np.repeat(a, len(b), axis=0), np.tile(b, (len(a), 1, 1))], axis=1)


def _columns(rows: Index) -> list[dict[str, Index]]:
    """Return rows of factors, (rows, names, axes), as columns by axis, TP written as DCP x tpx."""
    by_axis = []
    for axis in range(rows.shape[2]):
        own = dict(zip(_INSIDE + _FRAME, rows[:, :, axis].T, strict=True))
        tp = own.pop("tp")
        by_axis.append({**own, "tpx": tp // np.maximum(own["dcp"], 1)})
    return by_axis
