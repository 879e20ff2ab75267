"""The JSON object of a comparison, and the numbers that its tables share. B is held against A throughout."""

from typing import Any

from inferometer.report.answer import Answer
from inferometer.report.row import choices_taken, deployment_row
from inferometer.report.terms import compared_terms
from inferometer.version import __version__


def comparison_row(a: Answer, b: Answer) -> dict[str, Any]:
    """Return the keys of COMPARISON in `report.schema`."""
    terms = [
        {"term": term.term, "a_s": term.a_s, "b_s": term.b_s, "difference_s": term.difference_s}
        for term in compared_terms(a, b)
    ]
    return {
        "version": __version__,
        "a": deployment_row(a),
        "b": deployment_row(b),
        "ratio": ratios(a, b),
        "terms": terms,
        "memory": memory_lines(a, b),
        "choices": changed_choices(a, b),
    }


def ratios(a: Answer, b: Answer) -> dict[str, float | None]:
    """Return B over A: of the step, the rates, and the dollars of a million tokens where both have a price."""
    costs = (a.usd_per_mtok, b.usd_per_mtok)
    return {
        "step_s": b.estimate.step_s / a.estimate.step_s,
        "tok_per_s": b.rates.tok_per_s / a.rates.tok_per_s,
        "tok_per_s_per_chip": b.rates.tok_per_s_per_chip / a.rates.tok_per_s_per_chip,
        "usd_per_mtok": costs[1] / costs[0] if costs[0] and costs[1] is not None else None,
    }


def memory_lines(a: Answer, b: Answer) -> list[dict[str, Any]]:
    """Return the lines of a chip's memory, in bytes."""
    ours, theirs = a.estimate.memory, b.estimate.memory
    state = ("state",) if ours.state_bytes or theirs.state_bytes else ()
    names = ("weights", "kv", *state, "reserve", "free", "visible")
    return [
        {"line": name, "a_bytes": getattr(ours, f"{name}_bytes"), "b_bytes": getattr(theirs, f"{name}_bytes")}
        for name in names
    ]


def changed_choices(a: Answer, b: Answer) -> dict[str, dict[str, str | None]]:
    """Return Choice -> what A and B take, where they differ; None where one does not have it."""
    ours, theirs = (choices_taken(one.estimate.residual, one.estimate.choices) for one in (a, b))
    names = dict.fromkeys([*ours, *theirs])
    return {name: {"a": ours.get(name), "b": theirs.get(name)} for name in names if ours.get(name) != theirs.get(name)}
