"""Search against pricing every candidate one sharding at a time, and blocks that hold each sharding once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases

from inferometer.estimate.candidates import Block, Placements, pairs_of
from inferometer.estimate.estimate import estimate
from inferometer.estimate.step import StepModel
from inferometer.memory.footprint import footprint
from inferometer.search.grid import batch_grid, blocks
from inferometer.search.result import Slo
from inferometer.search.search import search
from inferometer.specs.deployment import Deployment

MOST = 200
"""Sequences a rank that make the batch grid list every batch."""


def sequences_that_fit(case):
    made = case.shardings
    held = footprint(
        case.problem.model,
        made.sizes,
        made.multiplicities,
        length=case.problem.max_length,
        room_bytes=case.problem.room_bytes,
    )
    return held.sequences()


@st.composite
def tight(draw, **options):
    """A case whose memory leaves room for 1 to MOST sequences a rank on its roomiest legal sharding."""
    case = draw(cases(**options))
    spare = replace(case.problem, room_bytes=1e15, activation_room_bytes=float("inf"))
    fits = sequences_that_fit(case._replace(problem=spare))[case.legal]
    each = (1e15 / np.maximum(fits, 1.0)).min()
    weights = 1e15 - (fits * each)
    room = float(weights.max() + each * draw(st.integers(1, MOST)))
    problem = replace(spare, room_bytes=room)
    return case._replace(problem=problem)


def every_candidate(case):
    """Yield (sharding, batches, least step times over placements) of the legal shardings that fit."""
    model = StepModel(problem=case.problem, shardings=case.shardings, placements=case.placements)
    fits = sequences_that_fit(case)
    for i in case.legal:
        if 1 <= fits[i] <= MOST:
            at = np.array([i], dtype=np.intp)
            batches = np.arange(1.0, fits[i] + 1)[None, :]
            pairs = pairs_of(at, case.placements)
            step_s = model.price(Block(at, batches, pairs)).step_s
            yield i, batches[0], np.broadcast_to(step_s, (len(pairs), *batches.shape)).min(axis=0)[0]


def scores(case):
    """Return sharding -> (batches, tok/s/chip, step times)."""
    sizes, work = case.shardings.sizes, case.problem.workload
    each = (work.isl if work.phase in ("prefill", "extend") else 1) / case.problem.machine.fabric.n_chips
    return {
        i: (b, b * sizes["r"][i] * sizes["dpa"][i] * each / step_s, step_s) for i, b, step_s in every_candidate(case)
    }


def none_too_large(case):
    return (sequences_that_fit(case)[case.legal] <= MOST).all()


@settings(max_examples=40)
@given(tight())
def test_the_best_of_all_candidates_is_found(case):
    if none_too_large(case):
        found = search(case.problem, top=3).found
        best = sorted((float(score.max()) for _, score, _ in scores(case).values()), reverse=True)[:3]
        assert [f.score for f in found] == pytest.approx(best, rel=1e-9)


@settings(max_examples=40)
@given(tight(), st.floats(0.5, 3))
def test_the_best_that_keeps_a_limit_is_found(case, slack):
    if none_too_large(case):
        everything = scores(case)
        if not everything:
            return
        limit = slack * min(float(step_s.min()) for _, _, step_s in everything.values())
        found = search(case.problem, slo=Slo(tpot_s=limit, ttft_s=limit), top=1).found
        passing = [score[step_s <= limit].max() for _, score, step_s in everything.values() if (step_s <= limit).any()]
        assert [f.score for f in found] == pytest.approx([max(passing)] if passing else [], rel=1e-9)
        assert all(f.estimate.step_s <= limit for f in found)


@settings(max_examples=40)
@given(tight())
def test_explaining_a_winner_gives_its_row_exactly(case):
    """To the last op, message and losing plan: winners are priced in one block, an explanation in a block of one."""
    for found in search(case.problem, top=3).found:
        again = estimate(found.problem, Deployment(sizes=found.estimate.sizes, batch=found.estimate.batch))
        assert again == found.estimate
        assert again.feasible


@settings(max_examples=40)
@given(tight(), st.integers(1, 500))
def test_a_fixed_batch_is_kept_and_scored_as_it_is_explained(case, batch):
    work, chips = case.problem.workload, case.problem.machine.fabric.n_chips
    tokens = batch * (work.isl if work.phase in ("prefill", "extend") else 1)
    for found in search(case.problem, batch=batch, top=3).found:
        assert found.estimate.batch == batch
        assert found.score == tokens / (found.estimate.step_s * chips)


@settings(max_examples=40)
@given(tight())
def test_what_was_lost_and_what_was_found_are_all_shardings(case):
    got = search(case.problem, top=10_000)
    assert len(got.found) + sum(got.lost.values()) == got.shardings == len(case.shardings)


@given(st.lists(st.integers(-1, 400), min_size=1, max_size=60), st.integers(0, 2**32 - 1), st.booleans())
def test_blocks_hold_every_sharding_that_fits_once(fits, seed, fixed):
    rng = np.random.default_rng(seed)
    ways = rng.integers(1, 9, len(fits))
    start = np.concatenate(([0], np.cumsum(ways))).astype(np.intp)
    placements = Placements(start=start, slots={}, slot_counts={}, signatures={}, slot_signatures={})
    most, key = np.array(fits, dtype=np.float64), rng.integers(1, 3, len(fits))
    seen = []
    for block in blocks(most, placements, key, fixed=fixed):
        seen += block.sharding.tolist()
        assert len(set(key[block.sharding])) == 1
        for j, i in enumerate(block.sharding):
            assert set(block.pairs[:, j]) == set(range(start[i], start[i + 1]))
            assert block.sequences[j].max() == most[i]
            assert fixed or block.sequences[j].min() == 1
    assert sorted(seen) == [i for i, n in enumerate(fits) if n >= 1]


@given(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=5), st.integers(2, 256))
def test_batches_are_whole_rising_and_end_at_the_most(most, count):
    grid = batch_grid(np.array(most, dtype=np.float64), count)
    assert (grid == np.floor(grid)).all()
    assert (grid[:, 0] == 1).all()
    assert (np.diff(grid, axis=1) >= 0).all()
    assert (grid[:, -1] == np.minimum(most, grid[:, -1])).all()
    for row, top in zip(grid, most, strict=True):
        assert row[-1] == top
        if top <= count:
            assert set(row) == set(range(1, top + 1))


def test_the_grid_ends_at_a_most_that_its_ratio_rounds_below():
    assert batch_grid(np.array([679_454.0]), 254)[0, -1] == 679_454
