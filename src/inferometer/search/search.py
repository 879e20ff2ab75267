"""Finds the best deployments of one model on one machine.

Every legal sharding, every placement of it, every Choice, and batches from 1 to the most that fits are priced in
blocks of columns; each sharding keeps its best batch and placement. With an SLO, the last batch that keeps it gives a
lower bound, and only shardings whose upper bound reaches the k-th best are refined, by integer bisection between two
priced batches (valid as far as step time does not fall when the batch grows).

Letters: m shardings, G batches, P placements, B sequences of a DPA rank.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from inferometer.errors import unknown_name
from inferometer.estimate.candidates import Block, Index, pairs_of
from inferometer.estimate.estimate import Row, estimate_rows, find_candidates
from inferometer.estimate.legality import Rule
from inferometer.estimate.pick import PLACED
from inferometer.estimate.result import Estimate
from inferometer.estimate.room import Candidates
from inferometer.estimate.share import can_share, start
from inferometer.estimate.step import Problem, StepModel
from inferometer.graph.ops import Column, Mask
from inferometer.search.grid import batches_each, blocks
from inferometer.search.result import Found, Progress, SearchResult, Slo
from inferometer.serving.rates import tokens_certain

OBJECTIVES = ("tok_per_s_per_chip", "tok_per_s", "tok_per_s_per_user", "ttft")


WORTH_SHARING = 400_000
"""Candidates from which a second process pays for its start."""


class Part(NamedTuple):
    """What a second process found: shardings, their columns of `Best`, rows and candidates priced."""

    sharding: Index
    columns: dict[str, Column]
    rows: int
    candidates: int


@dataclass(slots=True, kw_only=True)
class Best:
    """Each sharding's best candidate so far, columns (m,)."""

    score: Column
    sequences: Column
    bound: Column
    """No batch of this sharding scores more; with no SLO, the score itself."""
    ceiling: Column
    """First priced batch above `sequences` that misses the SLO; `sequences` + 1 where none is in between."""
    fastest_s: Column
    """Least step time of any batch."""

    def at(self, sharding: Index) -> dict[str, Column]:
        """Return the columns of some shardings."""
        return {field.name: getattr(self, field.name)[sharding] for field in fields(self)}


@dataclass(slots=True)
class Search:
    """One search under way."""

    problem: Problem
    space: Candidates
    limit_s: float
    by: str
    batch: int | None
    model: StepModel
    best: Best
    rows: int = 0
    candidates: int = 0

    def join(self, part: Part) -> None:
        """Take over what a second process found; its counts start from none, as ours did."""
        for name, column in part.columns.items():
            getattr(self.best, name)[part.sharding] = column
        self.rows += part.rows
        self.candidates += part.candidates

    def progress(self, done: int, total: int) -> Progress:
        """Return how far the search has come."""
        best = float(self.best.score.max())
        return Progress(
            machine=f"{self.problem.machine.chip.id} {self.problem.machine.name}",
            candidates=self.candidates,
            shardings_done=done,
            shardings=total,
            best=best if np.isfinite(best) else float("nan"),
        )

    def in_flight(self, sharding: int) -> int:
        """Return the sequences in flight over the deployment at a sharding's best batch."""
        if self.batch is not None:
            return self.batch
        sizes = self.space.shardings.sizes
        return int(self.best.sequences[sharding] * sizes["r"][sharding] * sizes["dpa"][sharding])

    def step_s(self, block: Block) -> Column:
        """Return the least step time over placements, (m, G)."""
        step_s = self.model.price(block).step_s
        least: Column = step_s.min(axis=0) if step_s.ndim == PLACED else step_s
        return np.broadcast_to(least, block.sequences.shape)

    def score(self, sharding: Index, sequences: Column, step_s: Column) -> Column:
        """Return the objective, (m, G); larger is better."""
        if self.by == "ttft":
            return -step_s
        if self.by == "tok_per_s_per_user":
            return 1 / step_s
        ranks = (self.space.shardings.sizes["r"] * self.space.shardings.sizes["dpa"])[sharding, None]
        in_flight = ranks * sequences if self.batch is None else np.full_like(step_s, float(self.batch))
        work = self.problem.workload
        tokens = in_flight * tokens_certain(work)
        chips = self.problem.machine.fabric.n_chips if self.by == "tok_per_s_per_chip" else 1
        return tokens / (step_s * chips)

    def take(self, block: Block) -> None:
        """Price a block and keep each sharding's best."""
        if self.batch is not None:
            replica = np.ceil(self.batch / self.space.shardings.sizes["r"][block.sharding])
            block = block._replace(in_flight=replica[:, None])
        step_s = self.step_s(block)
        at, sequences = block.sharding, block.sequences
        score = self.score(at, sequences, step_s)
        passing = step_s <= self.limit_s
        kept = np.where(passing, score, -np.inf)
        column = np.argmax(kept, axis=1)
        row = np.arange(len(at))
        self.best.score[at] = kept[row, column]
        self.best.sequences[at] = sequences[row, column]
        self.best.fastest_s[at] = step_s.min(axis=1)
        self.best.bound[at], self.best.ceiling[at] = self._bounds(passing, sequences, score, kept)
        ways = self.space.placements.start[at + 1] - self.space.placements.start[at]
        batches = 1 + np.count_nonzero(np.diff(sequences, axis=1), axis=1)
        self.rows += int(batches.sum())
        self.candidates += int((ways * batches).sum())

    def _bounds(self, passing: Mask, sequences: Column, score: Column, kept: Column) -> tuple[Column, Column]:
        """Return (bound, ceiling) of each sharding, (m,).

        Between a passing batch b and the next priced one c, a batch takes at least the step time of b, so it
        scores less than score(b) c / b.
        """
        row = np.arange(len(sequences))
        last = passing.shape[1] - 1 - np.argmax(passing[:, ::-1], axis=1)
        after = np.minimum(last + 1, passing.shape[1] - 1)
        floor, ceiling = sequences[row, last], np.maximum(sequences[row, after], sequences[row, last] + 1)
        open_ended = (self.by in ("tok_per_s_per_chip", "tok_per_s")) & (ceiling > floor + 1) & passing.any(axis=1)
        gain = np.where(open_ended, score[row, last] * (ceiling - 1) / floor, -np.inf)
        return np.maximum(kept.max(axis=1), gain), np.where(open_ended, ceiling, floor + 1)

    def refine(self, top: int) -> None:
        """Bisect the batches of every sharding that may still reach the `top` best."""
        best = self.best
        order = np.sort(best.score)[::-1]
        reach = order[min(top, len(order)) - 1] if len(order) else np.inf
        at = np.flatnonzero((best.bound >= reach) & (best.bound > best.score) & np.isfinite(best.bound))
        if not len(at):
            return
        ways = np.diff(self.space.placements.start)[at]
        for group in np.array_split(at[np.argsort(ways, kind="stable")], max(1, len(at) // 256)):
            self._bisect(group)

    def _bisect(self, at: Index) -> None:
        best = self.best
        pairs = pairs_of(at, self.space.placements)
        passing = best.sequences[at].copy()
        failing = best.ceiling[at].copy()
        while (failing - passing > 1).any():
            middle = np.floor((passing + failing) / 2)[:, None]
            step_s = self.step_s(Block(at, middle, pairs))
            keeps = step_s[:, 0] <= self.limit_s
            score = self.score(at, middle, step_s)[:, 0]
            open_ = failing - passing > 1
            better = open_ & keeps & (score > best.score[at])
            best.score[at] = np.where(better, score, best.score[at])
            best.sequences[at] = np.where(better, middle[:, 0], best.sequences[at])
            passing = np.where(open_ & keeps, middle[:, 0], passing)
            failing = np.where(open_ & ~keeps, middle[:, 0], failing)
            self.rows += int(open_.sum())
            self.candidates += int((np.diff(self.space.placements.start)[at] * open_).sum())


def search(
    problem: Problem,
    *,
    fixed: Mapping[str, int] | None = None,
    batch: int | None = None,
    slo: Slo | None = None,
    by: str = "tok_per_s_per_chip",
    top: int = 10,
    progress: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """Return the `top` shardings with their best placement and batch, best first.

    `fixed` pins role sizes, `batch` the sequences in flight over the deployment; `by` is one of OBJECTIVES.
    Raises UnknownNameError for an unknown objective.
    """
    if by not in OBJECTIVES:
        raise unknown_name("order", by, OBJECTIVES)
    started = time.perf_counter()
    keep_heap()
    space, rules = find_candidates(problem, fixed)
    sizes = space.shardings.sizes
    legal, lost = _legal(rules, len(space.shardings))
    most = space.most if batch is None else _fixed_batch(sizes, space.room(), batch)
    most = np.where(legal, most, -1.0)
    if (legal & (most < 1)).any():
        lost["does-not-fit"] = int((legal & (most < 1)).sum())
    under_way = _start(problem, space, slo=slo, by=by, batch=batch)
    workers = _price_all(under_way, most, progress)
    if slo is not None and batch is None:
        under_way.refine(top)
    missed = int(((most >= 1) & ~np.isfinite(under_way.best.score)).sum())
    if missed:
        lost["misses-slo"] = missed
    found = _winners(under_way, top)
    nearest = None if found else _nearest(under_way, legal)
    return SearchResult(
        found=found,
        nearest=nearest,
        shardings=len(space.shardings),
        lost=lost,
        rows=under_way.rows,
        candidates=under_way.candidates,
        workers=workers,
        wall_s=time.perf_counter() - started,
    )


def keep_heap() -> None:
    """Ask the C allocator to keep freed memory: glibc raises its mmap threshold to the largest block freed.

    Columns of a few hundred kB would else be mapped and unmapped at every sum, which costs more than the sums.
    The block is never touched, so it takes no memory; other allocators are not affected.
    """
    np.empty(31 << 20, dtype=np.uint8)


def _legal(rules: list[Rule], n_shardings: int) -> tuple[Mask, dict[str, int]]:
    """Return where no rule is broken, and how many shardings the first broken rule of each cost."""
    legal = np.ones(n_shardings, dtype=np.bool_)
    lost: dict[str, int] = {}
    for rule in rules:
        newly = int((legal & rule.broken).sum())
        if newly:
            lost[rule.name] = lost.get(rule.name, 0) + newly
        legal &= ~rule.broken
    return legal, lost


def _fixed_batch(sizes: Mapping[str, Column], fits: Column, batch: int) -> Column:
    """Return ceil(batch / (R x DPA)) where that fits, else -1."""
    each = np.ceil(batch / (sizes["r"] * sizes["dpa"]))
    return np.where(each <= fits, each, -1.0)


def _start(problem: Problem, space: Candidates, *, slo: Slo | None, by: str, batch: int | None) -> Search:
    limit = None if slo is None else (slo.tpot_s if problem.workload.generates else slo.ttft_s)
    n = len(space.shardings)
    return Search(
        problem=problem,
        space=space,
        limit_s=np.inf if limit is None else limit,
        by=by,
        batch=batch,
        model=StepModel(problem=problem, shardings=space.shardings, placements=space.placements),
        best=Best(
            score=np.full(n, -np.inf),
            sequences=np.ones(n),
            bound=np.full(n, -np.inf),
            ceiling=np.ones(n),
            fastest_s=np.full(n, np.inf),
        ),
    )


def _price_all(under_way: Search, most: Column, progress: Callable[[Progress], None] | None) -> int:
    """Price every block; return the processes that did it. Every second block goes to a second process if it pays."""
    placements = under_way.space.placements
    ways = np.diff(placements.start)[most >= 1]
    shared = int((ways * batches_each(len(ways))).sum()) >= WORTH_SHARING and can_share()
    if not shared:
        _price_part(under_way, most, 0, 1, progress)
        return 1
    wait = start(lambda: _price_part(under_way, most, 1, 2, None))
    _price_part(under_way, most, 0, 2, progress)
    theirs: Part | None = wait()
    if theirs is None:
        _price_part(under_way, most, 1, 2, progress)
        return 1
    under_way.join(theirs)
    return 2


def _price_part(
    under_way: Search, most: Column, part: int, parts: int, progress: Callable[[Progress], None] | None
) -> Part:
    """Price every `parts`-th block from `part` on, and return what that added."""
    shardings = under_way.space.shardings
    kinds = (shardings.stage_counts > 0).sum(axis=0)
    total, done = int((most >= 1).sum()), 0
    taken: list[Index] = []
    for number, block in enumerate(blocks(most, under_way.space.placements, kinds, fixed=under_way.batch is not None)):
        if number % parts != part:
            continue
        under_way.take(block)
        taken.append(block.sharding)
        done += len(block.sharding)
        if progress is not None:
            progress(under_way.progress(min(done * parts, total), total))
    at = np.concatenate(taken) if taken else np.zeros(0, dtype=np.intp)
    return Part(at, under_way.best.at(at), under_way.rows, under_way.candidates)


def _winners(under_way: Search, top: int) -> tuple[Found, ...]:
    best = under_way.best
    order = [int(i) for i in np.argsort(-best.score, kind="stable")[:top] if np.isfinite(best.score[i])]
    rows = [Row(i, under_way.in_flight(i)) for i in order]
    priced = _estimates(under_way, rows)
    return tuple(
        Found(problem=under_way.problem, estimate=one, score=float(best.score[i]))
        for i, one in zip(order, priced, strict=True)
    )


def _estimates(under_way: Search, rows: list[Row]) -> list[Estimate]:
    return estimate_rows(under_way.problem, under_way.space, rows, links=under_way.model.links)


def _nearest(under_way: Search, legal: Mask) -> Found | None:
    """Return the deployment that misses by least: the fastest if some fit, else the one that lacks fewest bytes."""
    if not legal.any():
        return None
    fastest = under_way.best.fastest_s
    some_fit = bool(np.isfinite(fastest).any())
    index = int(np.argmin(fastest if some_fit else under_way.space.lacks_bytes(legal)))
    near = _estimates(under_way, [Row(index, under_way.in_flight(index))])[0]
    if some_fit:
        text = f"misses-slo: a step takes {near.step_s * 1e3:.2f} ms, the limit is {under_way.limit_s * 1e3:.2f} ms"
        near = replace(near, reasons=(*near.reasons, text))
    return Found(problem=under_way.problem, estimate=near, score=float("-inf"))
