"""Collectives: what every legal algorithm costs a group on a fabric, and the cheapest few as tables.

Letters: S bytes by the convention of the kind, n members, a group's signature on the fabric (`groups`). Every
algorithm is a line, time = alpha + S * beta. The formulas, with derivation and source: `collective_axis` (one axis),
`collective_product` (several).

Laws: time never rises when a rate rises or a latency falls, never falls when S rises, and is never below
(n-1)/n S over the group's bandwidth into one member, all axes together; twice that for an all-reduce without help
from the switch, and S over it for one with.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inferometer.cost.collective_axis import KINDS, Line, axis_lines
from inferometer.cost.collective_product import lower_envelope, product_lines
from inferometer.cost.groups import Leg, LinkRate, Signature, legs
from inferometer.errors import unknown_name
from inferometer.specs.hardware import Fabric

__all__ = ["KINDS", "Line", "LinkRate", "collective_lines", "envelope_table", "lower_envelope"]

_NOTHING = (Line("none", 0.0, 0.0),)


def collective_lines(
    kind: str,
    signature: Signature,
    fabric: Fabric,
    rates: Sequence[LinkRate],
    *,
    only: frozenset[str] | None = None,
) -> tuple[Line, ...]:
    """Every legal algorithm of a collective, as lines; one of zero where the group is a single chip.

    Over several axes, the combinations of the best algorithms of each. `only`, where given, names the algorithms
    allowed: ring, bidirectional-ring, line, direct, two-shot, one-shot, in-switch, hierarchical, torus, p2p. A
    combination needs its parts allowed (an all-reduce `a > b` runs a reduce-scatter and all-gather of kind a).
    """
    if kind not in KINDS:
        raise unknown_name("collective", kind, KINDS)
    return _lines(kind, legs(signature, fabric, rates), only)


@lru_cache(maxsize=1 << 16)
def _lines(kind: str, parts: tuple[Leg, ...], only: frozenset[str] | None) -> tuple[Line, ...]:
    if not parts:
        return _NOTHING
    if kind == "p2p":
        return (_p2p(parts),) if only is None or "p2p" in only else ()
    if len(parts) == 1:
        return tuple(x for x in axis_lines(kind, parts[0]) if only is None or x.algorithm in only)
    return product_lines(kind, parts, only)


@lru_cache(maxsize=1 << 16)
def _envelope(kind: str, parts: tuple[Leg, ...], only: frozenset[str] | None) -> tuple[Line, ...]:
    return lower_envelope(_lines(kind, parts, only))


def _p2p(parts: tuple[Leg, ...]) -> Line:
    """A pipeline neighbour's message over the slowest boundary: a + S/B.

    Stages lie in a snake, so a boundary crosses one axis; the pipeline waits for its slowest, the outermost axis as
    a rule. Where another has the longer step or the thinner link, that counts: never less than any crossing.
    On a ring or line of stride s the step is s hops and the link shared by s flows (`groups.leg`); on a mesh it is
    the one link between the two. Source: ai-dynamo/aiconfigurator, communication.rs (alpha + bytes / bandwidth).
    Excluded: detours over other chips' links.
    """
    return Line("p2p", max(x.alpha_s for x in parts), 1 / min(x.link_bytes_per_s for x in parts))


class MergedLine(NamedTuple):
    """An all-to-all that crosses the outermost axis once for each part beyond it, then spreads inside."""

    alpha_s: float
    inner_s_per_byte: float
    outer_s_per_byte: float
    parts: int
    """Positions on the outermost axis."""


def merged_line(signature: Signature, fabric: Fabric, rates: Sequence[LinkRate]) -> MergedLine | None:
    """Return alpha + max(inner bytes x beta, outer bytes x beta) of a merged all-to-all; None where there is none.

    A copy leaves for a node once, lands on one of its chips (rail aligned) and is forwarded there to each chip that
    asked; network and node work at once. The latencies add. Source: deepseek-ai/DeepEP:docs/legacy.md (normal kernels).
    Excluded: groups on one axis, which have nothing to merge, and tori, which have no inside. A group of
    one sends nothing.
    """
    parts = legs(signature, fabric, rates)
    if not parts:
        return MergedLine(0.0, 0.0, 0.0, 1)
    if len(parts) < 2 or any(x.geometry in ("ring", "line") for x in parts):  # noqa: PLR2004 (inside and outside)
        return None
    lines = [_envelope("all-to-all", (x,), None)[0] for x in parts]
    return MergedLine(
        alpha_s=sum(line.alpha_s for line in lines),
        inner_s_per_byte=max(line.s_per_byte for line in lines[:-1]),
        outer_s_per_byte=lines[-1].s_per_byte,
        parts=parts[-1].n,
    )


def envelope_table(
    kind: str,
    signatures: Sequence[Signature],
    fabric: Fabric,
    rates: Sequence[LinkRate],
    *,
    only: frozenset[str] | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], list[list[str]]]:
    """Alpha and beta of the cheapest lines, shape (lines, signatures), and their names.

    A column is its signature's lower envelope by rising alpha; below it, alpha is +inf, beta 0, the name empty.
    The cost of S bytes is the least of alpha + S * beta down the column.
    """
    if kind not in KINDS:
        raise unknown_name("collective", kind, KINDS)
    columns = [_envelope(kind, legs(x, fabric, rates), only) for x in signatures]
    depth = max(map(len, columns), default=0)
    alpha = np.full((depth, len(columns)), np.inf)
    beta = np.zeros((depth, len(columns)))
    names = [[""] * len(columns) for _ in range(depth)]
    for j, column in enumerate(columns):
        for i, line in enumerate(column):
            names[i][j], alpha[i, j], beta[i, j] = line
    return alpha, beta, names
