"""Where nothing is feasible as asked: what is, with one thing changed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from inferometer.api.load import load_machine
from inferometer.errors import InferometerError
from inferometer.estimate.estimate import estimate as estimate_one
from inferometer.estimate.estimate import find_candidates
from inferometer.estimate.legality import Rule
from inferometer.estimate.room import Candidates
from inferometer.estimate.step import Problem
from inferometer.graph.ops import Mask
from inferometer.search.result import Found, SearchResult, Slo
from inferometer.search.search import search as search_one
from inferometer.specs.deployment import ROLES, Deployment, Sizes

MOST_CHIPS = 1024
"""Chips up to which a machine that holds the model is looked for."""


class Near(NamedTuple):
    """What would be feasible, and how to ask for it."""

    found: Found | None
    """A deployment; None keeps the one that misses by least."""
    hint: str


def nearest(
    problem: Problem, result: SearchResult, *, fixed: Mapping[str, int], batch: int | None, slo: Slo | None
) -> Near:
    """Return what is nearest to a question that a search found nothing for."""
    space, rules = find_candidates(problem, fixed)
    legal = _legal(space, rules)
    if not legal.any():
        return Near(_least_broken(problem, space, rules, batch), "")
    fits = most_sequences(space, legal)
    if batch is not None and 1 <= fits < batch:
        found = search_one(problem, fixed=fixed, batch=fits, slo=slo, top=1).found
        return Near(found[0] if found else result.nearest, f"the most that fits is --batch-size {fits}")
    return Near(result.nearest, "" if fits >= 1 else more_chips(problem, batch or 1, free=not fixed))


def most_sequences(space: Candidates, legal: Mask) -> int:
    """Return the most sequences in flight that some legal sharding holds."""
    sizes = space.shardings.sizes
    most = np.where(legal, np.floor(space.most) * sizes["r"] * sizes["dpa"], 0.0)
    return int(min(float(most.max()), 1 << 31))


def more_chips(problem: Problem, batch: int, *, free: bool) -> str:
    """Return how many chips of the same machine hold the batch, twice as many at a time; empty where unknown."""
    machine = problem.machine
    n = machine.fabric.n_chips
    while free and (n := 2 * n) <= MOST_CHIPS:
        try:
            larger = load_machine(machine.product or machine.chip.id, None, n)
            if larger.chip.id != machine.chip.id:
                break
            same = msgspec.structs.replace(larger, chip=machine.chip)
            space, rules = find_candidates(replace(problem, machine=same))
        except InferometerError:
            break
        if most_sequences(space, _legal(space, rules)) >= batch:
            return f"{n} chips would hold it: {larger.name}"
    return ""


def _legal(space: Candidates, rules: list[Rule]) -> Mask:
    legal: Mask = np.ones(len(space.shardings), dtype=np.bool_)
    for rule in rules:
        legal &= ~rule.broken
    return legal


def _least_broken(problem: Problem, space: Candidates, rules: list[Rule], batch: int | None) -> Found | None:
    """Return the sharding that breaks fewest rules, priced with its reasons; None where none can be priced."""
    broken = np.zeros(len(space.shardings))
    for rule in rules:
        broken += rule.broken
    index = int(np.argmin(broken))
    sizes = {role: int(space.shardings.sizes[role][index]) for role in ROLES}
    try:
        priced = estimate_one(problem, Deployment(sizes=Sizes(**sizes), batch=batch))
    except InferometerError:
        return None
    return Found(problem=problem, estimate=priced, score=float("-inf"))
