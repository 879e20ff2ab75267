"""A report as data, and the same data as Markdown, HTML or JSON: what is printed follows from the JSON alone."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inferometer.errors import InferometerError, unknown_name
from inferometer.report.cost import Cost, cost_row
from inferometer.report.matrix import Matrix, matrix_row
from inferometer.report.memory import MemoryAnswer, memory_row
from inferometer.report.row import dumps
from inferometer.report.text import count
from inferometer.units import format_rate, format_seconds, format_usd
from inferometer.version import __version__

KIND = "inferometer-report"
"""What tells a report's JSON from a config's."""

FORMS = {"md": "report.md.j2", "html": "report.html.j2", "json": ""}
"""Form -> template."""

SUFFIXES = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".json": "json"}
TEMPLATES = Path(__file__).with_name("templates")
SHOWN_CHIPS = 15
"""Rows of the matrix on a page; the JSON has all."""


def report_row(
    cost: Cost, memory: MemoryAnswer, matrix: Matrix, clouds: Iterable[Cost], commands: Iterable[str]
) -> dict[str, Any]:
    """Return the keys of REPORT in `report.schema_money`, plain JSON."""
    row = cost_row(cost)
    found = {
        "version": __version__,
        "kind": KIND,
        "model": row["model"],
        "chip": row["chip"],
        "machine": row["machine"],
        "context": memory.plan.asked.context,
        "cost": row,
        "memory": memory_row(memory),
        "matrix": matrix_row(matrix),
        "clouds": [cost_row(one) for one in clouds],
        "sources": sources(cost),
        "commands": list(commands),
    }
    plain: dict[str, Any] = json.loads(dumps(found))
    return plain


def sources(cost: Cost) -> list[str]:
    """Return where the numbers come from: model, chip, links, price, band."""
    problem, price = cost.answer.problem, cost.bill.price
    chip = problem.machine.chip
    by_text: dict[str, list[str]] = {}
    for field, text in chip.sources.items():
        by_text.setdefault(text, []).append(field)
    listed = [f"model {problem.model.name}: {problem.model.source}"]
    listed += [f"{chip.id} {', '.join(fields)}: {text}" for text, fields in by_text.items()]
    listed += [f"price: {price.source}, {price.date}"] if price is not None else [f"price: {cost.bill.source}"]
    listed.append(f"backend {problem.backend.name}, band: {cost.answer.estimate.band_source}")
    return listed


def form_of(output: str | None, form: str | None) -> str:
    """Return the form of a report: as named, else by the file's suffix, else Markdown.

    Raises InferometerError for another, and where the two disagree.

    >>> form_of("rfc.md", None), form_of(None, None), form_of("a.html", "html")
    ('md', 'md', 'html')
    """
    if form is not None and form.lower() not in FORMS:
        raise unknown_name("--format", form[:40], FORMS)
    named = None if form is None else form.lower()
    if output is None:
        return named or "md"
    by_suffix = SUFFIXES.get(Path(output).suffix.lower())
    if by_suffix is None and named is None:
        raise InferometerError(f"--output {output[:80]}: ends in none of {', '.join(SUFFIXES)}; say --format")
    if by_suffix is not None and named is not None and by_suffix != named:
        raise InferometerError(f"--output {output[:80]} is {by_suffix}, --format says {named}")
    return named or by_suffix or "md"


def render(report: Mapping[str, Any], form: str) -> str:
    """Return a report in a form; the same report gives the same bytes."""
    if form == "json":
        return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    import jinja2  # noqa: PLC0415 (only a report needs it)

    shown = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=jinja2.select_autoescape(("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    shown.filters |= {
        "gib": lambda size: "-" if size is None else f"{size / 2**30:,.2f}",
        "gb": lambda size: f"{size / 1e9:,.3f}",
        "seconds": lambda value: "-" if value is None else format_seconds(value),
        "usd": lambda value: "-" if value is None else format_usd(value),
        "percent": lambda value: "-" if value is None else f"{value:.0%}",
        "count": lambda value: "-" if value is None else count(value),
        "rate": lambda value: "-" if value is None else format_rate(value),
        "whole": lambda value: "-" if value is None else f"{value:,.0f}",
    }
    try:
        key = output_key(report["cost"])
        more = {"chips": _chips(report), "summary": summary(report), "key": key}
        return shown.get_template(FORMS[form]).render(
            r=report, alone=", decode alone" if key.startswith("decode") else "", **more
        )
    except (jinja2.UndefinedError, KeyError, TypeError, ValueError) as error:
        raise InferometerError(f"the report lacks what a page needs: {error}") from None


def output_key(cost: Mapping[str, Any]) -> str:
    """Return the figure of output tokens that a cost has: of prefill and decode in turn, else of decode alone."""
    return "decode_only_usd_per_mtok_output" if cost["output_tok_per_s"] is None else "usd_per_mtok_output"


def _chips(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows of the matrix that a page shows: the cheapest that fit, and always those picked and asked for."""
    matrix = report["matrix"]
    fits = [row for row in matrix["rows"] if not row["reasons"]]
    key = output_key(report["cost"])
    fits.sort(key=lambda row: (row[key] is None, row[key] or 0.0))
    kept = {report["chip"], *(pick["chip"] for name in ("right_sized", "fastest") if (pick := matrix[name]))}
    shown = fits[:SHOWN_CHIPS]
    return shown + [row for row in matrix["rows"] if row["chip"] in kept and row not in shown]


def summary(report: Mapping[str, Any]) -> list[str]:
    """Return the answer in a few sentences, each with its numbers."""
    cost, memory, matrix = report["cost"], report["memory"], report["matrix"]
    where = f"{cost['n_chips']} x {report['chip']} ({report['machine']})"
    if reasons(report):
        found = [f"{report['model']} does not run on {where}: {'; '.join(reasons(report))}."]
        found += [f"It would with {near}." for near in memory["nearest"][:3]]
    else:
        band = f"{format_seconds(cost['low'])} to {format_seconds(cost['high'])}, {cost['basis']}"
        decode = f"the deployment {count(cost['tok_per_s'])} in decode (TPOT {format_seconds(cost['tpot_s'])}, {band})"
        room = f"there is room for {memory['max_concurrency'] or 0:,.1f}"
        what = f"{cost['batch']:,} sequences of {report['context']:,} tokens"
        found = [
            f"{report['model']} fits {where} with {what}; {room}.",
            f"A user gets {count(cost['tok_per_s_per_user'])} tok/s, {decode}, bound by {cost['bound']}.",
        ]
        found += [_price_sentence(cost)]
    for name, word in (("right_sized", "Right-sized"), ("fastest", "Fastest")):
        if matrix[name]:
            found.append(f"{word} of all chips: {matrix[name]['chip']}, {matrix[name]['why']}.")
    return found


def reasons(report: Mapping[str, Any]) -> list[str]:
    """Return why the deployment does not run, each rule once; empty where it does."""
    named: dict[str, str] = {}
    for reason in (*report["memory"]["reasons"], *report["cost"]["reasons"]):
        named.setdefault(reason.partition(":")[0], reason)
    return list(named.values())


def _price_sentence(cost: Mapping[str, Any]) -> str:
    if cost["usd_per_hour"] is None:
        return "No price is known."
    key = output_key(cost)
    alone = ", decode alone" if key.startswith("decode") else ""
    bill = f"{format_usd(cost['usd_per_hour'])}/h, {format_usd(cost['usd_per_month'])} a month of 730 h"
    tokens = f"{format_usd(cost[key])} a million output tokens{alone} at {cost['utilization']:.0%} utilisation"
    return f"It costs {bill} ({cost['price_source']}), {tokens}."


def read_report(path: Path) -> dict[str, Any] | None:
    """Return the report in a JSON file; None where the file is no report. Raises InferometerError for broken JSON."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InferometerError(f"{path}: cannot be read: {' '.join(str(error).split())[:120]}") from None
    return found if isinstance(found, dict) and found.get("kind") == KIND else None
