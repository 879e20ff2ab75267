"""One model over many chips: does it fit each, how fast, for how much; and which to take."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from inferometer.api.cost import Money, every_chip
from inferometer.api.load import load_model
from inferometer.api.memory import max_batch, memory
from inferometer.api.memory_ask import MemorySettings, ask
from inferometer.api.memory_near import nearest
from inferometer.api.settings import Settings, of_deployment, settle
from inferometer.api.sizes import Given, role_given
from inferometer.blocks.params import count_params
from inferometer.errors import InferometerError
from inferometer.memory.footprint import Reserve
from inferometer.report.catalog_rows import least_chips
from inferometer.report.cost import Cost, Lost
from inferometer.report.matrix import Entry, Matrix
from inferometer.report.memory import MemoryAnswer
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec


def compare(
    model: ModelSpec | str,
    chips: Sequence[str] | None = None,
    sizes: Given = None,
    *,
    batch: int | None = None,
    money: Money | None = None,
    machine: str | None = None,
    **settings: Unpack[Settings],
) -> Matrix:
    """Return a line a chip, of the catalogue or of `chips`: memory as `memory` divides it, speed and $ as `cost` does.

    The batch is 1 unless given. Rows that do not fit stay, with their reasons. With nothing that fits, `.nearest` are
    changes that would, of the chip that lacks least. Raises InferometerError as `cost` and `memory` do.

    >>> compare("qwen2.5-7b", ["t4", "rtx4090"], context=2048, backend="roofline").fastest.chip
    'rtx4090'
    """
    spec, given = (load_model(model) if isinstance(model, str) else model), role_given(sizes)
    work = settle(settings).workload
    length = work.context or work.prompt_tokens + work.osl
    held = of_deployment(settings, context=length, batch=batch or 1)
    found = every_chip(spec, sizes, batch=batch or 1, money=money, chips=chips, machine=machine, **settings)
    entries = []
    for one in found:
        chip = one.chip if isinstance(one, Lost) else one.answer.problem.machine.chip.id
        entries.append(_entry(spec, chip, one, given, held))
    if entries and len({entry.lost for entry in entries}) == 1 and entries[0].lost:
        raise InferometerError(entries[0].lost)
    matrix = Matrix(
        model=spec.name, entries=tuple(entries), batch=batch or 1, context=length, batch_given=batch is not None
    )
    return matrix if matrix.fitting else replace(matrix, nearest=_nearest(spec, matrix, given, held))


def _entry(spec: ModelSpec, chip: str, cost: Cost | Lost, sizes: dict[str, int], held: MemorySettings) -> Entry:
    if isinstance(cost, Lost):
        return Entry(chip=chip, cost=None, memory=None, max_batch=0, least_chips=None, lost=cost.reason)
    where = cost.answer.problem.machine
    many: MemorySettings = {**held, "batch": None}
    try:
        divided = memory(spec, where, sizes, **held)
        most = max_batch(spec, where, sizes, **many).value
    except InferometerError as error:
        return Entry(chip=chip, cost=cost, memory=None, max_batch=0, least_chips=None, lost=str(error))
    return Entry(chip=chip, cost=cost, memory=divided, max_batch=most, least_chips=_least(divided, where), lost="")


def _least(divided: MemoryAnswer, machine: Machine) -> int:
    """Return the chips that hold the weights, beside what the engine leaves alone."""
    asked = divided.plan.asked
    weights = count_params(asked.model).checkpoint_bytes
    reserve = Reserve(fixed_bytes=(1 - asked.used_share) * asked.visible_bytes)
    return least_chips(weights, machine.chip, reserve)


def _nearest(spec: ModelSpec, matrix: Matrix, sizes: dict[str, int], held: MemorySettings) -> tuple[str, ...]:
    """Return what would fit with one thing changed, of the chip that lacks least."""
    lacking = [entry for entry in matrix.entries if entry.memory is not None]
    if not lacking:
        return ()
    best = min(lacking, key=lambda entry: entry.lacks_bytes)
    if best.cost is None:
        return ()
    question = ask(spec, best.cost.answer.problem.machine, sizes, held)
    return tuple(f"{best.chip}: {near}" for near in nearest(question))
