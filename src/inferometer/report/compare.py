"""Two deployments side by side, and term by term where the difference of their steps comes from."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.table import Table

from inferometer.report.answer import Answer
from inferometer.report.compare_row import changed_choices, memory_lines, ratios
from inferometer.report.tables import GIB, Page, table
from inferometer.report.terms import compared_terms
from inferometer.report.text import (
    assumed_text,
    changes_text,
    count,
    machine_text,
    phase_text,
    placement_flag,
    price_text,
    sizes_flag,
)


def print_comparison(page: Page, a: Answer, b: Answer) -> None:
    """Print what was asked, the rates, the terms of the steps, memory, and the choices that differ."""
    for part in (_subjects(a, b), _rates(a, b), _terms(a, b), _memory(a, b)):
        page.show(part)
        page.show()
    choices = changed_choices(a, b)
    if choices:
        page.show(_choices(choices))
        page.show()
    for name, answer in (("A", a), ("B", b)):
        for reason in answer.estimate.reasons:
            page.show(f"{name} is not feasible: {reason}")
        for note in answer.estimate.diagnostics:
            page.show(f"{name} has {note.name}: {note.text}")
    page.show(f"assumed in A: {assumed_text(a)}")
    if assumed_text(b) != assumed_text(a):
        page.show(f"assumed in B: {assumed_text(b)}")


def _subjects(a: Answer, b: Answer) -> Table:
    grid = table(["<", "<A", "<B"])
    sides = [dict(_subject(answer)) for answer in (a, b)]
    for name in sides[0]:
        ours, theirs = (side[name] for side in sides)
        if ours or theirs:
            grid.add_row(name, ours or "-", "same" if theirs == ours else theirs or "-")
    return grid


def _subject(answer: Answer) -> Iterator[tuple[str, str]]:
    problem, priced = answer.problem, answer.estimate
    model = problem.model
    formats = {model.dtype, *(f for block in (*model.mixers, *model.ffns) for f in block.formats.values())}
    yield "model", f"{model.name}, {phase_text(problem.workload)}"
    yield "weights", ", ".join(sorted(formats))
    yield "KV", model.kv_format
    yield "context", _context(answer)
    yield "machine", machine_text(problem)
    yield "what if", changes_text(answer)
    yield "engine", f"{problem.engine.id}, {problem.backend.name}, {problem.scheduler.name}"
    yield "sizes", sizes_flag(priced.sizes)
    yield "batch", f"{priced.batch:,} ({priced.sequences:,} a rank)"
    yield "placement", placement_flag(answer)
    yield "bound", priced.bound
    yield "price", price_text(answer)


def _context(answer: Answer) -> str:
    work = answer.problem.workload
    if work.phase == "prefill":
        return f"prompts of {work.prompt_tokens:,}"
    if work.phase == "extend":
        return f"{work.isl:,} tokens behind {work.context:,}"
    low, high = work.ends
    return f"{high:,}" if low == high else f"mean of {low:,}..{high:,}"


def _rates(a: Answer, b: Answer) -> Table:
    grid = table(["<", "A", "B", "B / A"])
    ratio = ratios(a, b)
    decode = a.rates.tpot_s is not None
    rows: list[tuple[str, str, Callable[[Answer], float | None]]] = [
        ("TPOT ms" if decode else "TTFT ms", "step_s", lambda one: one.estimate.step_s * 1e3),
        ("tok/s", "tok_per_s", lambda one: one.rates.tok_per_s),
        ("tok/s/chip", "tok_per_s_per_chip", lambda one: one.rates.tok_per_s_per_chip),
        ("$ per M output" if decode else "$ per M prompt", "usd_per_mtok", lambda one: one.usd_per_mtok),
    ]
    for name, key, value in rows:
        ours, theirs = value(a), value(b)
        grid.add_row(name, _number(ours), _number(theirs), _number(ratio[key]))
    return grid


def _terms(a: Answer, b: Answer) -> Table:
    terms = compared_terms(a, b)
    grid = table(["<step, by kind of operation", "A\nms", "B\nms", "B - A\nms"])
    for term in terms:
        grid.add_row(term.term, *(_ms(seconds) for seconds in (term.a_s, term.b_s)), _signed_ms(term.difference_s))
    grid.add_section()
    steps = (a.estimate.step_s, b.estimate.step_s)
    grid.add_row("step", *(_ms(seconds) for seconds in steps), _signed_ms(steps[1] - steps[0]))
    return grid


def _memory(a: Answer, b: Answer) -> Table:
    grid = table(["<memory of a chip of the fullest stage", "A\nGiB", "B\nGiB", "B - A\nGiB"])
    for line in memory_lines(a, b):
        if line["line"] == "visible":
            grid.add_section()
        sizes = (line["a_bytes"], line["b_bytes"])
        grid.add_row(line["line"], *(f"{size / GIB:,.2f}" for size in sizes), f"{(sizes[1] - sizes[0]) / GIB:+,.2f}")
    return grid


def _choices(choices: dict[str, dict[str, Any]]) -> Table:
    grid = table(["<choice that differs", "<A", "<B"])
    for name, taken in choices.items():
        grid.add_row(name, taken["a"] or "-", taken["b"] or "-")
    return grid


def _number(value: float | None) -> str:
    return "-" if value is None else count(value)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f}" if seconds else ""


def _signed_ms(seconds: float) -> str:
    return f"{seconds * 1e3:+,.3f}" if seconds else ""
