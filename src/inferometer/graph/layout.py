"""Activation layouts, and every plan that gets from one to another.

A layout says, for each role of a mesh, what the role's ranks hold of a [tokens, features] array:
`R` the same copy, `T` a slice of the tokens, `F` a slice of the features, `P` a partial sum.

Steps over a set of roles g (one role, or the whole mesh at once):
  all-reduce      P -> R     message = the array a rank holds
  reduce-scatter  P -> T, F  message = the array a rank holds
  all-gather      T, F -> R  message = the gathered array
  all-to-all      T <-> F    message = the array a rank holds
  slice           R -> T, F  free
A rank holds full / (product of the roles in T or F), so a step's bytes are written as that divisor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from inferometer.graph.ops import CollectiveKind

Layout = tuple[tuple[str, str], ...]
"""(role, state) pairs, sorted by role."""


def layout(**states: str) -> Layout:
    """Return a layout from `role=state` pairs.

    >>> layout(tp="P", dpa="T")
    (('dpa', 'T'), ('tp', 'P'))
    """
    return tuple(sorted(states.items()))


class Step(NamedTuple):
    """One collective of a plan: its message is full_bytes / product of the `divisor` roles."""

    kind: CollectiveKind
    role: str
    divisor: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Label:
    state: Layout
    steps: tuple[Step, ...]


def _groups(mesh: tuple[str, ...], joint: str) -> list[tuple[str, tuple[str, ...]]]:
    singles: list[tuple[str, tuple[str, ...]]] = [(role, (role,)) for role in mesh]
    return [*singles, (joint, mesh)] if len(mesh) > 1 else singles


def _moved(state: Layout, roles: tuple[str, ...], to: str) -> Layout:
    return tuple((r, to if r in roles else s) for r, s in state)


_MOVES = {
    "P": ((CollectiveKind.ALL_REDUCE, "R"), (CollectiveKind.REDUCE_SCATTER, "T"), (CollectiveKind.REDUCE_SCATTER, "F")),
    "T": ((CollectiveKind.ALL_GATHER, "R"), (CollectiveKind.ALL_TO_ALL, "F")),
    "F": ((CollectiveKind.ALL_GATHER, "R"), (CollectiveKind.ALL_TO_ALL, "T")),
    "R": ((None, "T"), (None, "F")),
}


def neighbours(state: Layout, joint: str, slices: str = "TF") -> list[tuple[Step | None, Layout]]:
    """Return every (step, layout reached) from a layout; a None step is free.

    `slices` names the sliced states that may be entered.
    """
    mesh = tuple(role for role, _ in state)
    held = dict(state)
    found: list[tuple[Step | None, Layout]] = []
    for name, roles in _groups(mesh, joint):
        kinds = {held[r] for r in roles}
        if len(kinds) != 1:
            continue
        for kind, to in _MOVES[kinds.pop()]:
            if to != "R" and to not in slices:
                continue
            reached = _moved(state, roles, to)
            if kind is None:
                found.append((None, reached))
                continue
            sized = reached if kind is CollectiveKind.ALL_GATHER else state
            divisor = frozenset(r for r, s in sized if s in "TF")
            found.append((Step(kind, name, divisor), reached))
    return found


def _no_dearer(a: tuple[Step, ...], b: tuple[Step, ...]) -> bool:
    """Return whether plan a costs no more than b at any price that grows with bytes.

    True where each step of a pairs with a distinct step of b, same kind and role, no fewer bytes.
    """
    if len(a) > len(b):
        return False
    left = list(b)
    for step in sorted(a, key=lambda s: len(s.divisor)):
        fits = [x for x in left if x.kind is step.kind and x.role == step.role and x.divisor <= step.divisor]
        if not fits:
            return False
        left.remove(max(fits, key=lambda x: len(x.divisor)))
    return True


@cache
def reshard_plans(source: Layout, target: Layout, joint: str) -> tuple[tuple[Step, ...], ...]:
    """Return every plan from `source` to `target` that some price could make the cheapest.

    A Pareto search over layouts: a partial plan is dropped only where another one at the same layout
    is no dearer at any price that grows with bytes, so no cheaper legal plan exists.
    `joint` names the role that spans the whole mesh. Feature slices are only entered where source or
    target has one: elsewhere, writing T for F turns any plan into one that costs no more.

    >>> s = reshard_plans(layout(tp="P"), layout(tp="R"), "stage")
    >>> sorted("+".join(step.kind for step in plan) for plan in s)
    ['all-reduce', 'reduce-scatter+all-gather']
    """
    slices = "TF" if any(state == "F" for _, state in (*source, *target)) else "T"
    found = _plans_from(source, joint, slices)[target]
    return tuple(sorted(found, key=lambda plan: (len(plan), [(s.kind, s.role) for s in plan])))


@cache
def _plans_from(source: Layout, joint: str, slices: str) -> Mapping[Layout, Sequence[tuple[Step, ...]]]:
    """Return the plans of `reshard_plans` to every layout that is reached from `source`."""
    best: dict[Layout, list[tuple[Step, ...]]] = {source: [()]}
    queue = [_Label(source, ())]
    while queue:
        label = queue.pop(0)
        if label.steps not in best[label.state]:
            continue
        for step, reached in neighbours(label.state, joint, slices):
            steps = label.steps if step is None else (*label.steps, step)
            kept = best.setdefault(reached, [])
            if any(_no_dearer(other, steps) for other in kept):
                continue
            kept[:] = [other for other in kept if not _no_dearer(steps, other)]
            kept.append(steps)
            queue.append(_Label(reached, steps))
    return best


Tree = tuple[tuple[Step | None, "Tree"], ...]
"""Alternatives of a first step, each with the alternatives of what follows; () ends a plan."""


@cache
def reshard_tree(source: Layout, target: Layout, joint: str) -> Tree:
    """Return `reshard_plans` with common endings shared: the least cost is taken once for each way on.

    Since min(a + x, b + x) = min(a, b) + x, the least over the tree is the least over the plans.
    """
    return _tree(frozenset(reshard_plans(source, target, joint)))


@cache
def _tree(plans: frozenset[tuple[Step, ...]]) -> Tree:
    found: list[tuple[Step | None, Tree]] = [(None, ())] if () in plans else []
    for first in sorted({plan[0] for plan in plans if plan}, key=lambda s: (s.kind, s.role, sorted(s.divisor))):
        rest = frozenset(plan[1:] for plan in plans if plan and plan[0] == first)
        found.append((first, () if rest == {()} else _tree(rest)))
    return tuple(found)


def step_name(step: Step | None) -> str:
    """Return a step's name: `reduce-scatter(tp)`, or `free`."""
    return f"{step.kind}({step.role})" if step else "free"
