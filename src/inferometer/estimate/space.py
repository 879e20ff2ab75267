"""Every sharding and placement of a fabric, as columns.

On one axis the roles nest from the inside out: DCP inside TP, TP beside ... DPA, then PP, then R; on the expert
side ETP inside EP. Both sides fill the same stage. So an axis of size a is cut into an assignment
(dcp, tp/dcp, dpa, etp, ep, pp, r) with dcp (tp/dcp) dpa = etp ep and dcp (tp/dcp) dpa pp r = a, and a placement is
one assignment an axis. Sharding sizes are the products over axes. Axes that are alike may be swapped: only the
sorted order is kept.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

import numpy as np

from inferometer.cost.groups import Signature
from inferometer.estimate.candidates import GROUPS, Index, Placements
from inferometer.estimate.thin import Lines, thinned
from inferometer.graph.ops import Column
from inferometer.specs.hardware import Axis, Fabric

FACTORS = ("dcp", "tpx", "dpa", "etp", "ep", "pp", "r")
"""What an assignment cuts an axis into; tpx is TP / DCP."""

MOST_ASSIGNMENTS = 400_000
"""Placements up to which all are listed; beyond, they are thinned (see `thin`)."""


@cache
def divisors(n: int) -> tuple[int, ...]:
    """Return the divisors of n in order.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


@cache
def axis_assignments(size: int, *, moe: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return every way to cut an axis, one row of FACTORS each. Dense models have dpa = etp = ep = 1."""
    rows = []
    for stage in divisors(size):
        rest = size // stage
        experts = [(etp, stage // etp) for etp in divisors(stage)] if moe else [(1, 1)]
        for tp in divisors(stage) if moe else (stage,):
            for dcp in divisors(tp):
                for etp, ep in experts:
                    rows += [(dcp, tp // dcp, stage // tp, etp, ep, pp, rest // pp) for pp in divisors(rest)]
    return np.array(rows, dtype=np.int64)


def _spans(factors: Mapping[str, Column | Index], role: str) -> tuple[Index, Index]:
    """Return (factor, stride) of a role on one axis, by placement."""
    dcp, tpx, dpa = factors["dcp"], factors["tpx"], factors["dpa"]
    one = np.ones_like(dcp)
    tp = dcp * tpx
    stage = tp * dpa
    by_role = {
        "dcp": (dcp, one),
        "tp": (tp, one),
        "dpa": (dpa, tp),
        "stage": (stage, one),
        "etp": (factors["etp"], one),
        "ep": (factors["ep"], factors["etp"]),
        "pp": (factors["pp"], stage),
    }
    return by_role[role]  # type: ignore[return-value]  # `one` is of the same array


def _alike(a: Axis, b: Axis) -> bool:
    keys = ("geometry", "size", "bytes_per_s", "latency_s", "multicast", "reduces")
    return all(getattr(a, k) == getattr(b, k) for k in keys)


def _assignment_grid(fabric: Fabric, *, moe: bool, fixed: Mapping[str, int]) -> list[Index]:
    """Return, by axis, the assignment index of every placement: the product, without mirror images."""
    axes = fabric.axes
    counts = [len(axis_assignments(axis.size, moe=moe)) for axis in axes]
    chosen: list[Index] = []
    sizes: dict[str, Index] = {}
    for i, axis in enumerate(axes):
        table = axis_assignments(axis.size, moe=moe)
        new = np.arange(counts[i])
        if not chosen:
            chosen = [new]
            sizes = {name: table[:, k] for k, name in enumerate(FACTORS)}
        else:
            n = len(chosen[0])
            chosen = [np.repeat(c, counts[i]) for c in chosen] + [np.tile(new, n)]
            sizes = {
                name: np.repeat(sizes[name], counts[i]) * np.tile(table[:, k], n) for k, name in enumerate(FACTORS)
            }
        keep = np.ones(len(chosen[0]), dtype=np.bool_)
        twins = [j for j in range(i) if _alike(axes[j], axis)]
        if twins:
            keep &= chosen[twins[-1]] <= chosen[i]
        for name, want in fixed.items():
            have = sizes["dcp"] * sizes["tpx"] if name == "tp" else sizes[name]
            keep &= (want % have == 0) if i < len(axes) - 1 else (have == want)
        chosen = [c[keep] for c in chosen]
        sizes = {name: column[keep] for name, column in sizes.items()}
    return chosen


def n_assignments(fabric: Fabric, *, moe: bool) -> int:
    """Return how many placements a full enumeration multiplies out, mirror images included."""
    return prod(len(axis_assignments(axis.size, moe=moe)) for axis in fabric.axes)


def enumerate_space(
    fabric: Fabric, *, moe: bool, fixed: Mapping[str, int] | None = None, lines: Lines | None = None
) -> tuple[dict[str, Column], Placements]:
    """Return the sizes of every sharding, columns (m,), and their placements.

    `fixed` pins role sizes; roles left out are free. With nothing that fits, the columns are empty. All placements are
    listed, but on fabrics with more than MOST_ASSIGNMENTS only those that `lines`, the collectives' costs, leave.
    """
    if lines is not None and n_assignments(fabric, moe=moe) > MOST_ASSIGNMENTS:
        by_axis = thinned(fabric, moe=moe, fixed=fixed or {}, lines=lines, divisors=divisors)
    else:
        chosen = _assignment_grid(fabric, moe=moe, fixed=fixed or {})
        by_axis = []
        for axis, index in zip(fabric.axes, chosen, strict=True):
            table = axis_assignments(axis.size, moe=moe)[index]
            by_axis.append({name: table[:, k] for k, name in enumerate(FACTORS)})
    n = len(by_axis[0]["r"])
    total = {name: prod((axis[name] for axis in by_axis), start=np.ones(n, np.int64)) for name in FACTORS}
    sizes = {
        "r": total["r"],
        "pp": total["pp"],
        "dpa": total["dpa"],
        "tp": total["dcp"] * total["tpx"],
        "ep": total["ep"],
        "etp": total["etp"],
        "dcp": total["dcp"],
    }
    return _grouped(fabric, sizes, by_axis)


def _grouped(
    fabric: Fabric, sizes: Mapping[str, Index], by_axis: Sequence[Mapping[str, Index]]
) -> tuple[dict[str, Column], Placements]:
    """Return pairs sorted by sharding, with each role's slots."""
    key = np.zeros(len(sizes["r"]), dtype=np.int64)
    for column in sizes.values():
        values, code = np.unique(column, return_inverse=True)
        key = key * (len(values) + 1) + code
    order = np.argsort(key, kind="stable")
    _, first, sharding = np.unique(key[order], return_index=True, return_inverse=True)
    start = np.append(first, len(order)).astype(np.intp)
    columns = {name: column[order][first].astype(np.float64) for name, column in sizes.items()}
    signatures: dict[str, Sequence[Signature]] = {}
    slots: dict[str, Index] = {}
    slot_counts: dict[str, Index] = {}
    slot_signatures: dict[str, Index] = {}
    for group, roles in GROUPS.items():
        codes = {}
        joint = np.zeros(len(order), dtype=np.int64)
        for role in roles:
            signatures[role], code = _signatures(fabric, by_axis, role)
            codes[role] = code[order]
            joint = joint * len(signatures[role]) + codes[role]
        slots[group], slot_counts[group], example = _slots(sharding, joint, len(first))
        for role in roles:
            slot_signatures[role] = codes[role][example]
    placements = Placements(
        start=start, slots=slots, slot_counts=slot_counts, signatures=signatures, slot_signatures=slot_signatures
    )
    return columns, placements


def _signatures(fabric: Fabric, by_axis: Sequence[Mapping[str, Index]], role: str) -> tuple[list[Signature], Index]:
    """Return a role's distinct signatures, and each placement's index among them.

    Strides only matter where groups share links: on rings and lines.
    """
    code = np.zeros(len(by_axis[0]["r"]), dtype=np.int64)
    spans = []
    for axis, factors in zip(fabric.axes, by_axis, strict=True):
        factor, stride = _spans(factors, role)
        shared = axis.geometry in ("ring", "line")
        stride = np.where(factor > 1, stride, 1) if shared else np.ones_like(stride)
        spans.append((factor, stride))
        code = (code * (axis.size + 1) + factor) * (axis.size + 1) + stride
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    found = [tuple((int(f[i]), int(s[i])) for f, s in spans) for i in first]
    return found, inverse.astype(np.intp)


def _slots(sharding: Index, joint: Index, n_shardings: int) -> tuple[Index, Index, Index]:
    """Return each pair's slot in its sharding's own list, the lists' lengths, and a pair of each slot, (S, m)."""
    _, code = np.unique(joint, return_inverse=True)
    distinct, example, inverse = np.unique(
        sharding.astype(np.int64) * (len(code) + 1) + code, return_index=True, return_inverse=True
    )
    owner = distinct // (len(code) + 1)
    first = np.searchsorted(owner, np.arange(n_shardings))
    slot = np.arange(len(distinct)) - first[owner]
    depth = int(slot.max()) + 1 if len(slot) else 1
    table = np.tile(example[first] if len(first) else np.zeros(0, np.intp), (depth, 1))
    table[slot, owner] = example
    return slot[inverse].astype(np.intp), np.bincount(owner, minlength=n_shardings).astype(np.intp), table
