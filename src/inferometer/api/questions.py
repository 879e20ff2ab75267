"""The two questions: what does this deployment do, and which deployments are best."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

from inferometer.api.bounds import check_batch
from inferometer.api.engines import check_ideal, engine_of
from inferometer.api.launch import engine_fits
from inferometer.api.legal_sizes import legal_sizes
from inferometer.api.limits import parse_slo
from inferometer.api.load import Served, in_formats, load_machine, load_model, served
from inferometer.api.nearest import nearest
from inferometer.api.notes import noted
from inferometer.api.placing import parse_placement
from inferometer.api.settings import Settings, Terms, settle
from inferometer.api.sizes import Given, check_dense, chips_of, role_given
from inferometer.blocks.kinds import is_moe
from inferometer.errors import InferometerError, unknown_name
from inferometer.estimate.estimate import estimate as estimate_one
from inferometer.estimate.result import Estimate
from inferometer.report.answer import Answer, Ranking
from inferometer.search.result import Found, Progress, SearchResult, Slo
from inferometer.search.search import search as search_one
from inferometer.specs.deployment import Deployment, Placement
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec


def estimate(
    model: ModelSpec | str,
    machine: Machine | str,
    sizes: Given = None,
    *,
    batch: int | None = None,
    placement: Placement | str | None = None,
    slo: Slo | str | float | None = None,
    **settings: Unpack[Settings],
) -> Answer:
    """Return one deployment, priced: `.rates`, `.estimate` (time, ops, choices, memory, reasons), `.problem`.

    Parameters
    ----------
    model
        A `ModelSpec`, or any name `load_model` takes.
    machine
        A `Machine`, or its words: `"h200 8x2"`. Words without a size take as many chips as `sizes` span.
    sizes
        Role sizes. What is left out follows R = PP = DPA = DCP = ETP = 1 and fills TP and EP.
    batch
        Sequences in flight over the whole deployment; None is the most that fits.
    placement
        Where roles lie, as in `"EP=nvlink:8+network:2"`; None is the cheapest.
    slo
        Limits to keep: `20` tok/s a user, `"tpot=50ms"`; what misses them has a reason.
    settings
        See `Settings`: isl, osl, context, phase, engine, backend, scheduler, ...

    Raises InferometerError for input that makes no sense. What does not fit or is illegal has `estimate.reasons`.

    >>> answer = estimate("llama-3.1-8b", "h100 1x1", batch=1, context=1)
    >>> answer.estimate.feasible, answer.estimate.bound
    (True, 'memory')
    """
    check_batch(batch)
    terms = settle(settings)
    spec, stored = _model(model, settings)
    given = role_given(sizes)
    where = _machine(machine, chips_of(given))
    problem = terms.problem(spec, where)
    filled = legal_sizes(spec, given, where.fabric.n_chips)
    place = parse_placement(placement, where.fabric) if isinstance(placement, str) else placement
    priced = estimate_one(problem, Deployment(sizes=filled, placement=place, batch=batch))
    if not given:
        terms.assumed["sizes"] = "filled by rule"
    if batch is None:
        terms.assumed["batch"] = "the most that fits"
    held = _held_to(priced, _slo(slo, terms))
    return _answer(Found(problem=problem, estimate=held, score=0.0), terms=terms, stored=stored, settings=settings)


def search(
    model: ModelSpec | str,
    machines: Machine | str | Sequence[Machine | str],
    *,
    sizes: Given = None,
    batch: int | None = None,
    slo: Slo | str | float | None = None,
    by: str = "tok_per_s_per_chip",
    per_dollar: bool = False,
    top: int = 10,
    progress: Callable[[Progress], None] | None = None,
    **settings: Unpack[Settings],
) -> Ranking:
    """Return the best deployments of `model` on one machine, or over several: `.answers`, best first.

    Every sharding, placement, Choice and batch is priced; `sizes` pins some roles, `batch` the batch. `by` is
    tok_per_s_per_chip, tok_per_s, tok_per_s_per_user or ttft; `per_dollar` orders by tokens a dollar, machines
    without a price last. With nothing feasible, `.answers` is empty and `.nearest` says what misses by least.

    Other parameters as in `estimate`. Raises InferometerError, one line, for input that makes no sense.

    >>> best = search("llama-3.1-8b", "h100 2x1", top=1).answers[0].estimate.sizes
    >>> best.n_chips
    2
    """
    check_batch(batch)
    if top < 1:
        raise InferometerError(f"--top {top}: must be 1 or more")
    terms = settle(settings, by)
    _check_order(by, terms, per_dollar=per_dollar)
    spec, stored = _model(model, settings)
    given = role_given(sizes)
    check_dense(given, moe=is_moe(spec))
    limits = _slo(slo, terms)
    listed = [machines] if isinstance(machines, Machine | str) else machines
    problems = [terms.problem(spec, where) for where in _each_once([_machine(one, chips_of(given)) for one in listed])]
    for problem in problems:
        terms.quote(problem.machine)
    results, hints = [], []
    for problem in problems:
        result = search_one(problem, fixed=given, batch=batch, slo=limits, by=by, top=top, progress=progress)
        if not result.found:
            near = nearest(problem, result, fixed=given, batch=batch, slo=limits)
            result = replace(result, nearest=near.found)
            machine = problem.machine
            hints += [f"{machine.chip.id} {machine.name}: {near.hint}"] if near.hint else []
        results.append(result)
    answer = partial(_answer, terms=terms, stored=stored, settings=settings)
    return replace(_ranking(results, answer, by=by, per_dollar=per_dollar, top=top), hints=tuple(hints))


def _each_once(machines: list[Machine]) -> list[Machine]:
    """Return the machines; raises InferometerError where two are the same."""
    for place, machine in enumerate(machines):
        if any(one.fabric == machine.fabric and _same_chips(one, machine) for one in machines[:place]):
            raise InferometerError(f"{machine.chip.id} {machine.name} is asked for twice; name each machine once")
    return machines


def _same_chips(one: Machine, other: Machine) -> bool:
    return one.chip == other.chip and one.product == other.product


def _ranking(
    results: Sequence[SearchResult], answer: Callable[[Found], Answer], *, by: str, per_dollar: bool, top: int
) -> Ranking:
    """Return what the machines' searches found, as one ranking."""
    found: list[tuple[float, Answer]] = []
    best = []
    for result in results:
        answers = [answer(one) for one in result.found]
        scores = [_per_dollar(a) if per_dollar else one.score for one, a in zip(result.found, answers, strict=True)]
        found += zip(scores, answers, strict=True)
        best += answers[:1]
    found.sort(key=lambda pair: -pair[0])
    return Ranking(
        answers=_ties(found[:top]),
        best=tuple(best),
        nearest=tuple(answer(result.nearest) for result in results if result.nearest is not None),
        results=tuple(results),
        by=by,
        per_dollar=per_dollar,
    )


def _ties(found: Sequence[tuple[float, Answer]]) -> tuple[Answer, ...]:
    """Return ranked answers, told whether the band can tell each from the best.

    Scores go as 1 / step, and a prefill's is minus its step. Two rows on one chip share most of what is wrong with
    either; of two chips both ends of the bands count. A row without a score (no price) is told apart.
    """
    told = []
    for score, one in found:
        best_score, best = found[0]
        less, more = sorted((abs(score), abs(best_score)))
        times = 1.0 if less == more else more / less if less > 0 and score * best_score > 0 else math.inf
        a, b = best.estimate, one.estimate
        alike = max(a.alike, b.alike)
        if best.problem.machine.chip != one.problem.machine.chip:
            alike = (a.high_s / a.step_s) / (b.low_s / b.step_s)
        told.append(replace(one, tied=times <= alike))
    return tuple(told)


def _check_order(by: str, terms: Terms, *, per_dollar: bool) -> None:
    if by == "tok_per_s_per_user" and not terms.workload.generates:
        raise InferometerError(f"--by tok_per_s_per_user orders decode steps; leave --phase {terms.workload.phase} out")
    if per_dollar and by in ("tok_per_s_per_user", "ttft"):
        raise InferometerError(f"--per-dollar orders by tokens a dollar; leave --by {by} out")


def _model(model: ModelSpec | str, settings: Settings) -> tuple[ModelSpec, Served]:
    """Return the model in the formats asked for, and the checkpoint that holds it.

    Raises UnknownNameError for a keyword that is none.
    """
    for name in settings:
        if name not in Settings.__optional_keys__:
            raise unknown_name("keyword", name, Settings.__optional_keys__)
    plain = load_model(model) if isinstance(model, str) else model
    engine = engine_of(settings.get("engine"), {}, priced=True)
    check_ideal(engine, conv_state=settings.get("conv_state"), cut_latents=settings.get("cut_latents"))
    kv_format = settings.get("kv_cache_dtype") or engine.rules.cache_format
    spec = in_formats(
        plain,
        settings.get("quant"),
        kv_format,
        settings.get("state_dtype"),
        conv_state=settings.get("conv_state"),
        cut_latents=settings.get("cut_latents"),
    )
    return spec, served(spec, plain)


def _machine(machine: Machine | str, n_chips: int | None) -> Machine:
    if isinstance(machine, Machine):
        return machine
    chip, _, rest = machine.strip().partition(" ")
    return load_machine(chip, rest.strip()) if rest.strip() else load_machine(chip, None, n_chips)


def _slo(slo: Slo | str | float | None, terms: Terms) -> Slo | None:
    return slo if slo is None or isinstance(slo, Slo) else parse_slo(str(slo), terms.workload.phase)


def _answer(found: Found, *, terms: Terms, stored: Served, settings: Settings) -> Answer:
    problem = found.problem
    kept = {} if settings.get("kv_cache_dtype") else {"kv_cache_dtype": problem.model.kv_format}
    usd_per_chip_hour, source, note = terms.quote(problem.machine)
    return Answer(
        problem=problem,
        estimate=noted(problem, found.estimate, note),
        usd_per_chip_hour=usd_per_chip_hour,
        price_source=source,
        price_note=note,
        assumed=terms.assumed | kept,
        served_name=stored.name,
        served_kv_format=stored.kv_format,
        engines=engine_fits(problem, found.estimate),
        changes=terms.changes(problem),
        calibration=terms.calibration,
    )


def _held_to(priced: Estimate, slo: Slo | None) -> Estimate:
    """Return the estimate with a reason where it misses a limit."""
    limits = [] if slo is None else [limit for limit in (slo.tpot_s, slo.ttft_s) if limit is not None]
    if not limits or priced.step_s <= min(limits):
        return priced
    text = f"misses-slo: a step takes {priced.step_s * 1e3:.2f} ms, the limit is {min(limits) * 1e3:.2f} ms"
    return replace(priced, reasons=(*priced.reasons, text))


def _per_dollar(answer: Answer) -> float:
    cost = answer.usd_per_mtok
    return -1.0 if cost is None else 1 / cost if cost > 0 else float("inf")
