"""What-ifs: one field of a chip or its fabric changed for a question, `memory_bytes_per_s=+20%`, `link.nvlink=2x`.

The specs of the catalogue stay as they are; a question is asked of a changed copy, and its price stays the part's own.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from inferometer.errors import InferometerError, unknown_name
from inferometer.report.answer import Change
from inferometer.specs.hardware import Axis, ChipSpec, Machine
from inferometer.units import parse_quantity

SCALE_UP, SCALE_OUT = "scale_up", "scale_out"
"""The innermost level (on a torus every dimension), and those around it."""

LONGEST = 200
"""Characters of the longest what-if that an error repeats."""

CHIP_FIELDS = {"memory_bytes": "bytes", "memory_bytes_per_s": "bytes_per_s", "tdp_w": "power"}
"""Field of `ChipSpec` -> its dimension."""

ALIASES = {
    "memory": "memory_bytes",
    "hbm": "memory_bytes",
    "hbm_bandwidth": "memory_bytes_per_s",
    "memory_bandwidth": "memory_bytes_per_s",
    "tdp": "tdp_w",
}

AXIS_FIELDS = {
    "link": ("bytes_per_s", "bytes_per_s"),
    "latency": ("latency_s", "time"),
    "multicast": ("multicast", ""),
    "reduces": ("reduces", ""),
}
"""What stands before an axis -> field of `Axis`, dimension; none is yes or no, 1 or 0."""

ANSWERS = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}

_FACTOR = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(%|x)", re.ASCII)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Wanted(NamedTuple):
    """One what-if as written."""

    field: str
    value: str


def parse_what_if(given: str | Sequence[str] | None) -> tuple[Wanted, ...]:
    """Return the what-ifs written `FIELD=VALUE`, several with commas.

    Raises InferometerError for text of another form; whether a machine has the field is seen when it is changed.

    >>> parse_what_if("hbm_bandwidth=+20%,link.nvlink=2x")
    (Wanted(field='hbm_bandwidth', value='+20%'), Wanted(field='link.nvlink', value='2x'))
    """
    texts = [given] if isinstance(given, str) else given or []
    found = []
    for text in texts:
        for part in text.split(","):
            field, equals, value = (piece.strip() for piece in part.partition("="))
            if not (field and equals and value):
                raise InferometerError(f"--what-if {text[:LONGEST]!r}: write FIELD=VALUE, as in hbm_bandwidth=+20%")
            found.append(Wanted(field, value))
    return tuple(found)


class Target(NamedTuple):
    """One number of a machine that may be changed."""

    field: str
    """As it is printed: `memory_bytes`, `peak.fp8`, `link.nvlink`."""
    dimension: str
    """Empty where it is yes or no."""
    before: float


def targets(machine: Machine) -> dict[str, Target]:
    """Return what may be changed of a machine, by field; in SI."""
    chip = machine.chip
    named = {name: (getattr(chip, name), dimension) for name, dimension in CHIP_FIELDS.items()}
    found = [Target(name, dimension, value) for name, (value, dimension) in named.items() if value is not None]
    found += [Target(f"peak.{dtype}", "flops_per_s", peak) for dtype, peak in chip.peak_flops_per_s.items()]
    for before, (field, dimension) in AXIS_FIELDS.items():
        found += [
            Target(f"{before}.{axis.name}", dimension, float(getattr(axis, field))) for axis in machine.fabric.axes
        ]
    return {target.field: target for target in found}


def changed(machine: Machine, wanted: Sequence[Wanted]) -> tuple[Machine, tuple[Change, ...]]:
    """Return the machine with what was asked changed, and each change.

    Raises UnknownNameError for a field that the machine has not, InferometerError for a value that makes no sense and
    for a field that is changed twice.
    """
    if not wanted:
        return machine, ()
    known = targets(machine)
    changes: dict[str, Change] = {}
    for one in wanted:
        for target in _meant(one, known, machine):
            if target.field in changes:
                raise InferometerError(f"--what-if changes {target.field} of {machine.chip.id} twice")
            changes[target.field] = Change(target.field, target.before, _value(one, target))
    after = {field: change.after for field, change in changes.items()}
    axes = tuple(_axis(axis, after) for axis in machine.fabric.axes)
    fabric = msgspec.structs.replace(machine.fabric, axes=axes)
    return msgspec.structs.replace(machine, chip=_chip(machine.chip, after), fabric=fabric), tuple(changes.values())


def _chip(chip: ChipSpec, after: dict[str, float]) -> ChipSpec:
    fields = {name: after[name] for name in CHIP_FIELDS if name in after}
    if "memory_bytes" in fields:
        fields["memory_bytes"] = round(fields["memory_bytes"])
    peaks = {dtype: after.get(f"peak.{dtype}", peak) for dtype, peak in chip.peak_flops_per_s.items()}
    return msgspec.structs.replace(chip, **fields, peak_flops_per_s=peaks)


def _axis(axis: Axis, after: dict[str, float]) -> Axis:
    fields: dict[str, float | bool] = {"stated_bytes_per_s": axis.stated_bytes_per_s or axis.bytes_per_s}
    for before, (field, dimension) in AXIS_FIELDS.items():
        if (value := after.get(f"{before}.{axis.name}")) is not None:
            fields[field] = value if dimension else bool(value)
    return msgspec.structs.replace(axis, **fields)


def _meant(one: Wanted, known: dict[str, Target], machine: Machine) -> list[Target]:
    """Return the targets of a field as written: one, or those that a word stands for."""
    field = one.field.lower()
    field = ALIASES.get(field, field).replace("peak_flops_per_s.", "peak.")
    if field in known:
        return [known[field]]
    kind, _, level = field.partition(".")
    if kind in AXIS_FIELDS and level in (SCALE_UP, SCALE_OUT):
        inner = set(_scale_up(machine.fabric.axes))
        names = [axis.name for axis in machine.fabric.axes if (axis.name in inner) == (level == SCALE_UP)]
        if names:
            return [known[f"{kind}.{name}"] for name in names]
    words = [f"{kind}.{level}" for kind in AXIS_FIELDS for level in (SCALE_UP, SCALE_OUT)]
    raise unknown_name(f"field of {machine.chip.id} in --what-if", one.field[:LONGEST], [*known, *ALIASES, *words])


def _scale_up(axes: Sequence[Axis]) -> Iterator[str]:
    """Yield the names of the innermost level: one axis, or the dimensions of a torus."""
    torus = [axis.name for axis in axes if axis.geometry in ("ring", "line")]
    yield from torus if axes[0].geometry in ("ring", "line") else [axes[0].name]


def _value(one: Wanted, target: Target) -> float:
    """Return a value as written in SI: `+20%`, `2x`, a quantity, or a number where the field says its unit."""
    where = f"--what-if {one.field[:LONGEST]}={one.value[:LONGEST]}"
    if not target.dimension:
        if one.value.lower() not in ANSWERS:
            raise InferometerError(f"{where}: write yes or no")
        return ANSWERS[one.value.lower()]
    factor = _FACTOR.fullmatch(one.value)
    if factor is not None:
        value = target.before * _factor(where, *factor.groups())
    elif _NUMBER.fullmatch(one.value) and one.field.lower() in CHIP_FIELDS:
        value = float(one.value)
    else:
        try:
            value = parse_quantity(one.value, target.dimension)
        except InferometerError as error:
            raise InferometerError(f"{where}: {error}; or a change such as +20%, -10% or 2x") from None
    if not (0 < value < math.inf and (target.field != "memory_bytes" or value >= 1)):
        raise InferometerError(f"{where}: must be above 0 and finite")
    return value


def _factor(where: str, sign: str, digits: str, unit: str) -> float:
    number = float(digits)
    if (unit == "%") != bool(sign):
        raise InferometerError(f"{where}: write +20% or -10% for a change, 2x or 0.5x for a factor")
    if unit == "x":
        return number
    return 1 + number / 100 if sign == "+" else 1 - number / 100
