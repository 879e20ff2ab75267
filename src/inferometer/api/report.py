"""A report of one deployment, to decide by: what `cost`, `memory` and `compare` say of it, in one object."""

from collections.abc import Iterable
from typing import Any, Unpack

from inferometer.api.compare import compare
from inferometer.api.cost import Money, clouds, cost
from inferometer.api.load import load_model
from inferometer.api.memory import memory
from inferometer.api.settings import Settings, of_deployment
from inferometer.api.sizes import Given, role_given
from inferometer.report.document import report_row
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec


def report(
    model: ModelSpec | str,
    machine: Machine | str,
    sizes: Given = None,
    *,
    batch: int | None = None,
    money: Money | None = None,
    commands: Iterable[str] = (),
    **settings: Unpack[Settings],
) -> dict[str, Any]:
    """Return a report as plain JSON; `report.document.render` makes a page of it.

    Parameters are those of `cost`; the matrix has the same sizes and batch on every chip, at the catalogue's prices or
    the one given. `commands` are printed to reproduce it.

    >>> found = report("qwen2.5-7b", "rtx4090", batch=16, context=2048, backend="roofline")
    >>> found["kind"], found["matrix"]["right_sized"]["chip"]
    ('inferometer-report', 'rtx3090')
    """
    asked = money or Money()
    spec = load_model(model) if isinstance(model, str) else model
    found = cost(spec, machine, sizes, batch=batch, money=asked, **settings)
    problem, priced = found.answer.problem, found.answer.estimate
    held = of_deployment(settings, context=problem.max_length, batch=priced.batch)
    divided = memory(spec, problem.machine, role_given(priced.sizes), **held)
    every = Money(utilization=asked.utilization, api_usd_per_mtok=asked.api_usd_per_mtok)
    matrix = compare(spec, None, priced.sizes, batch=priced.batch, money=every, **settings)
    given = asked.capex_usd is not None or settings.get("usd_per_chip_hour") is not None
    listed = [] if given else clouds(spec, machine, sizes, batch=batch, money=every, **settings)
    return report_row(found, divided, matrix, listed, commands)
