"""What a deployment costs, on a page: each figure with its definition."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from inferometer.report.cost import Cost, Lost, break_even, cost_row, definitions, read_bytes
from inferometer.report.explain import labelled
from inferometer.report.tables import Page, table
from inferometer.report.text import count, machine_text, sizes_flag
from inferometer.units import format_seconds, format_usd

DOLLARS = (
    ("decode_only_usd_per_mtok_output", "output, decode alone"),
    ("usd_per_mtok_output", "output"),
    ("usd_per_mtok_input", "input"),
    ("usd_per_mtok_blended", "blended"),
)
"""Key -> its name in a table."""


def print_cost(page: Page, cost: Cost) -> None:
    """Print one deployment: what it reads, its rates, its bill, $ and energy a million tokens, what was assumed."""
    row = cost_row(cost)
    page.show(labelled([*_asked(cost), *_speed(cost, row), *_paid(cost, row)]))
    page.show()
    page.show(_dollar_table(cost, row))
    page.show()
    page.show(labelled([*_after(cost, row)]))
    notes = [f"{note['name']}: {note['text']}" for note in row["diagnostics"]]
    if notes:
        page.show("", *notes)


def _asked(cost: Cost) -> Iterator[tuple[str, str]]:
    answer = cost.answer
    work = answer.problem.workload
    what = f"context {work.context:,}" if work.context else f"ISL {work.prompt_tokens:,}, OSL {work.osl:,}"
    yield "model", f"{answer.problem.model.name}, batch {answer.estimate.batch:,}, {what}"
    yield "machine", f"{machine_text(answer.problem)}, {sizes_flag(answer.estimate.sizes)}"


def _speed(cost: Cost, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    read = {kind: size for kind, size in read_bytes(cost.answer).items() if size}
    parts = ", ".join(f"{'KV' if kind == 'kv' else kind} {size / 1e9:,.3f}" for kind, size in read.items())
    yield "reads", f"{row['read_bytes_per_step'] / 1e9:,.3f} GB a chip and decode step: {parts}"
    band = f"band {format_seconds(row['low'])} to {format_seconds(row['high'])}, {row['basis']}"
    yield "TPOT", f"{format_seconds(row['tpot_s'])}, {band}; bound by {row['bound']}"
    at = f"{cost.utilization:.0%} utilisation"
    per_hour = f"{row['tok_per_hour'] / 1e6:,.3f}M tokens/h at {at}"
    yield "decode", f"{count(row['tok_per_s_per_user'])} tok/s a user, {count(row['tok_per_s'])} tok/s, {per_hour}"
    prompts = f"a prefill of {row['prefill_batch']:,} x {row['prefill_tokens']:,} tokens takes"
    prompt = f"{prompts} {format_seconds(row['prefill_s'])}"
    if cost.cycle is None:
        yield "prefill", f"{prompt}; one context is no request: give --isl and --osl to put both together"
        return
    rates = f"{cost.cycle.requests_per_s:,.3g} requests/s, {count(cost.cycle.output_tok_per_s)} output tok/s"
    yield "both", f"{rates}, prefill {cost.cycle.prefill_share:.1%} of the time; {prompt}"


def _paid(cost: Cost, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    bill = cost.bill
    if row["usd_per_hour"] is None:
        yield "price", f"{bill.note}; give --usd-per-chip-hour"
        return
    if bill.usd_per_chip_hour is None:
        yield "price", bill.source
    else:
        note = f"; {bill.note}" if bill.note else ""
        yield "price", f"${bill.usd_per_chip_hour:,.2f} a chip-hour ({bill.source}{note})"
    yield "rule", bill.rule
    idle = bill.chips - row["n_chips"]
    whole = f", {idle} of them idle: instances are let whole" if idle else ""
    chips = f"{bill.chips} chip{'s' * (bill.chips > 1)} paid for{whole}"
    yield "bill", f"${row['usd_per_hour']:,.2f}/h, ${row['usd_per_month']:,.2f} a month of 730 h; {chips}"


def _dollar_table(cost: Cost, row: Mapping[str, Any]) -> Table:
    said = definitions(cost)
    grid = table(["<a million tokens", "$", "<definition"])
    for key, name in DOLLARS:
        grid.add_row(name, "-" if row[key] is None else f"{row[key]:,.4f}", said[key])
    return grid


def _after(cost: Cost, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    joules = row["joules_per_mtok_output"] or row["decode_only_joules_per_mtok_output"]
    if joules is None:
        yield "energy", "no power limit of the chip is known"
    else:
        alone = ", decode alone" if cost.cycle is None else ""
        kwh = f"{joules:,.0f} J = {joules / 3.6e6:,.4f} kWh a million output tokens{alone}"
        yield "energy", f"{kwh}; {row['power_w']:,.0f} W ({cost_energy(cost)}, assumed)"
    if cost.api_usd_per_mtok is not None:
        yield "break-even", even_text(cost)
    yield "assumed", ", ".join(row["assumed"])


def cost_energy(cost: Cost) -> str:
    """Return by what rule power was taken."""
    return definitions(cost)["joules_per_mtok_output"].partition(";")[0]


def even_text(cost: Cost) -> str:
    """Return from when on self-hosting costs less than the API."""
    found = break_even(cost)
    if found is None or found["usd_per_mtok"] is None:
        return "no price to compare"
    of = found["of"].replace("_", " ").replace("decode only", "decode-only")
    against = f"{format_usd(found['api_usd_per_mtok'])} a million {of} tokens"
    if found["utilization"] is None:
        return f"never below {against}: always busy it costs {format_usd(found['usd_per_mtok_when_full'])}"
    rate = found["requests_per_s"]
    requests = "" if rate is None else f", {rate:,.3g} requests/s"
    share = found["utilization"]
    return f"cheaper than {against} from {share:.1%} utilisation{requests}, {found['tok_per_hour']:,.0f} tokens/h on"


def clouds_table(costs: Sequence[Cost]) -> Table:
    """Return the same deployment at each price, one a line."""
    loops = costs[0].cycle is not None
    heads = ["|provider", "|tier", "$/h\na chip", "chips\nbilled", "$/h", "$ a\nmonth"]
    heads += ["$ per M\noutput", *(["input", "blended"] if loops else []), "|region", "|date", "|instance"]
    grid = table(heads)
    for cost in costs:
        row = cost_row(cost)
        output = row["usd_per_mtok_output" if loops else "decode_only_usd_per_mtok_output"]
        more = [row["usd_per_mtok_input"], row["usd_per_mtok_blended"]] if loops else []
        grid.add_row(
            row["provider"],
            row["tier"],
            f"{row['usd_per_chip_hour']:.2f}",
            str(row["chips_billed"]),
            f"{row['usd_per_hour']:,.2f}",
            f"{row['usd_per_month']:,.0f}",
            f"{output:,.3f}",
            *(f"{value:,.3f}" for value in more),
            row["region"] or "-",
            row["price_date"],
            row["instance"] or "-",
        )
    return grid


def print_clouds(page: Page, costs: Sequence[Cost]) -> None:
    """Print the same deployment at each price of its chip."""
    first = costs[0]
    row = cost_row(first)
    page.show(labelled([*_asked(first), *_speed(first, row)]))
    page.show()
    page.show(clouds_table(costs))
    page.show()
    key = DOLLARS[0 if first.cycle is None else 1][0]
    page.show(
        f"$ per M output: {definitions(first)[key]}; speed is of {machine_text(first.answer.problem)} at every provider"
    )
    page.show(f"assumed: {', '.join(row['assumed'])}")


def print_chips(page: Page, found: Sequence[Cost | Lost]) -> None:
    """Print the deployment on every chip, the cheapest token first, and below what does not run it."""
    costs = [one for one in found if isinstance(one, Cost)]
    runs = [one for one in costs if one.answer.estimate.feasible]
    runs.sort(key=lambda one: one.per_mtok(one.output_tok_per_s) or float("inf"))
    if runs:
        page.show(labelled(list(_asked(runs[0]))[:1]))
        page.show()
        page.show(chips_cost_table(runs))
        page.show()
        key = DOLLARS[0 if runs[0].cycle is None else 1][0]
        page.show(f"$ per M output: {definitions(runs[0])[key]}; price: {runs[0].bill.rule}")
        page.show(f"assumed: {', '.join(cost_row(runs[0])['assumed'])}")
    for one in found:
        if isinstance(one, Lost):
            page.show(f"{one.chip}: {one.reason}")
        elif not one.answer.estimate.feasible:
            page.show(f"{one.answer.problem.machine.chip.id}: {'; '.join(one.answer.estimate.reasons)}")


def chips_cost_table(costs: Sequence[Cost]) -> Table:
    """Return the deployment on each chip that runs it, the cheapest token first."""
    loops = costs[0].cycle is not None
    heads = ["|chip", "tok/s", "tok/s\n/user", "$/h", "$ per M\noutput", *(["input", "blended"] if loops else [])]
    grid = table([*heads, "chips\nbilled", "batch", "|price"])
    for cost in costs:
        row = cost_row(cost)
        keys = ["usd_per_mtok_output" if loops else "decode_only_usd_per_mtok_output"]
        keys += ["usd_per_mtok_input", "usd_per_mtok_blended"] if loops else []
        hourly = row["usd_per_hour"]
        grid.add_row(
            row["chip"],
            count(row["output_tok_per_s"] or row["tok_per_s"]),
            count(row["tok_per_s_per_user"]),
            "-" if hourly is None else f"{hourly:,.2f}",
            *("-" if row[key] is None else f"{row[key]:,.3f}" for key in keys),
            str(row["chips_billed"]) if hourly is not None else "-",
            f"{row['batch']:,}",
            row["price_source"],
        )
    return grid
