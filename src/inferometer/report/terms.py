"""A step taken apart by kind of operation, into terms that add up to it.

Letters: M microbatches, PP stages, k = max(1, M / PP) the microbatches that each stage's share of the step holds.
The operations of a microbatch one after another, times k, less what the scheduler hides, plus what stages in a row
lose to filling, to hand-overs and to the slowest of them, is the step.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from inferometer.blocks.kinds import is_moe
from inferometer.blocks.tower import is_part
from inferometer.estimate.candidates import Block, pairs_of
from inferometer.estimate.estimate import find_candidates, placement_of
from inferometer.estimate.pick import pick
from inferometer.estimate.result import Estimate, OpRow
from inferometer.estimate.step import Problem, StepModel
from inferometer.graph.ops import CollectiveKind, OpKind
from inferometer.report.answer import Answer

CORE, MIXER, FFN, EXPERTS = "attention core", "attention GEMMs", "FFN GEMMs", "experts"
ELEMENTWISE, HEAD, HAND_OVER = "norms and elementwise", "head", "hand-over"
TOWER = "towers"
HIDDEN, FILL = "overlap hidden", "pipeline fill"

TERMS = (
    CORE,
    MIXER,
    FFN,
    EXPERTS,
    ELEMENTWISE,
    HEAD,
    TOWER,
    *(str(kind) for kind in CollectiveKind if kind is not CollectiveKind.P2P),
    HAND_OVER,
    HIDDEN,
    FILL,
)
"""In the order shown; an op kind that none covers is a term of its own name."""

_PLAIN = {
    OpKind.ATTENTION: CORE,
    OpKind.GROUPED_GEMM: EXPERTS,
    OpKind.ELEMENTWISE: ELEMENTWISE,
    OpKind.LOOKUP: ELEMENTWISE,
    CollectiveKind.P2P: HAND_OVER,
}

_FFN_PARTS = frozenset({"gate", "up", "down", "project"})


class Term(NamedTuple):
    """What two steps spend on one kind of operation."""

    term: str
    a_s: float
    b_s: float

    @property
    def difference_s(self) -> float:
        """How much longer B takes."""
        return self.b_s - self.a_s


def term_of(op: OpRow) -> str:
    """Return the term an operation counts under.

    GEMMs of a router and of experts' latents are the experts', those of a residual scheme are among the norms; of GEMMs
    in a layer, gate, up and down are the feed-forward's, shared experts' and what memory tables give included, and the
    others the mixer's. What a tower does is the tower's, whatever it is.
    """
    if is_part(op.segment):
        return TOWER
    plain = {str(kind): term for kind, term in _PLAIN.items()}
    if op.kind != OpKind.GEMM:
        return plain.get(op.kind, op.kind)
    if op.segment == "head":
        return HEAD
    parts = op.name.rpartition(".")[2].split("+")
    if parts[0].startswith(("router", "latent")):
        return EXPERTS
    if parts[0] == "residual":
        return plain[str(OpKind.ELEMENTWISE)]
    return FFN if _FFN_PARTS.issuperset(parts) else MIXER


def step_terms(problem: Problem, priced: Estimate) -> dict[str, float]:
    """Return term -> seconds of a step; they sum to `priced.step_s`. What is hidden is negative."""
    share = max(1.0, priced.microbatches / priced.sizes.pp)
    found: dict[str, float] = {}
    for op in priced.ops:
        term = term_of(op)
        found[term] = found.get(term, 0.0) + share * op.alone_s * op.share * op.layers
    held_s = share * through_s(problem, priced)
    found[HIDDEN] = held_s - sum(found.values())
    found[FILL] = priced.step_s - held_s
    known = {term: found.pop(term, 0.0) for term in TERMS}
    return known | found


def through_s(problem: Problem, priced: Estimate) -> float:
    """Return the seconds of one microbatch through all stages, as scheduled, hand-overs included."""
    sizes = priced.sizes
    if sizes.pp == 1:
        return priced.step_s
    names = ("r", "pp", "dpa", "tp", "dcp", *(("ep", "etp") if is_moe(problem.model) else ()))
    space, _ = find_candidates(problem, {name: getattr(sizes, name) for name in names})
    at = np.zeros(1, dtype=np.intp)
    pairs = pairs_of(at, space.placements)
    in_flight = np.ceil(np.array([[float(priced.batch)]]) / sizes.r)
    block = Block(at, np.array([[float(priced.sequences)]]), pairs, in_flight)
    model = StepModel(problem=problem, shardings=space.shardings, placements=space.placements, record=True)
    way = model.price(block).ways[priced.residual]
    places = [placement_of(space.placements, 0, int(pair)) for pair in pairs[:, 0]]
    along = places.index(priced.placement)
    counts = space.shardings.stage_counts[:, 0]
    return sum(float(n) * pick(stage_s, 0, along) for n, stage_s in zip(counts, way.stage_s, strict=False))


def compared_terms(a: Answer, b: Answer) -> list[Term]:
    """Return what two steps spend, term by term; terms that neither has are left out."""
    ours, theirs = step_terms(a.problem, a.estimate), step_terms(b.problem, b.estimate)
    names: Sequence[str] = [*ours, *(name for name in theirs if name not in ours)]
    listed = [Term(name, ours.get(name, 0.0), theirs.get(name, 0.0)) for name in names]
    return [term for term in listed if term.a_s or term.b_s]
