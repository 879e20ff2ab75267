"""Pinned deployments: what was held to which bounds, as lines and as JSON."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from inferometer.report.answer import Answer
from inferometer.report.row import deployment_row
from inferometer.report.schema import DEPLOYMENT
from inferometer.report.text import count
from inferometer.units import format_gib, format_seconds, format_usd

NUMBERS = ("number", "number?", "integer", "integer?")

NOT_BOUND = ("batch", "n_chips", "low", "high")
"""Numbers of a row that are asked for, or that say nothing of their own."""

DERIVED: Mapping[str, Callable[[Answer], float | None]] = {
    "memory_bytes_per_chip": lambda one: one.estimate.memory.weights_bytes + one.estimate.memory.kv_bytes,
    "usd_per_mtok": lambda one: one.usd_per_mtok,
}
"""Bounds beside the keys of a row: weights and KV of a chip; dollars of the pass's own tokens."""

BOUND_KEYS = (*(f.name for f in DEPLOYMENT if f.type in NUMBERS and f.name not in NOT_BOUND), *DERIVED)


class Bound(NamedTuple):
    """What a number must keep to, in its own unit; None is no limit."""

    key: str
    least: float | None
    most: float | None


class Held(NamedTuple):
    """A bound with what the number is; None where nobody knows it."""

    bound: Bound
    value: float | None

    @property
    def ok(self) -> bool:
        """Whether the number is known and within its bounds."""
        _, least, most = self.bound
        known = self.value is not None
        return known and not (self.too_small(least) or self.too_large(most))

    def too_small(self, least: float | None) -> bool:
        """Whether the number is below a limit."""
        return self.value is not None and least is not None and self.value < least

    def too_large(self, most: float | None) -> bool:
        """Whether the number is above a limit."""
        return self.value is not None and most is not None and self.value > most


class Pin(NamedTuple):
    """One pinned deployment, asked again."""

    name: str
    answer: Answer
    feasible: bool
    """Whether it is to be feasible."""
    held: tuple[Held, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing moved."""
        return self.answer.estimate.feasible == self.feasible and all(one.ok for one in self.held)


def hold(name: str, answer: Answer, bounds: tuple[Bound, ...], *, feasible: bool) -> Pin:
    """Return a pin with the numbers that its bounds are about."""
    row = deployment_row(answer)
    values = {key: row[key] if key in row else DERIVED[key](answer) for key in (bound.key for bound in bounds)}
    return Pin(name, answer, feasible, tuple(Held(bound, values[bound.key]) for bound in bounds))


def pin_row(pin: Pin) -> dict[str, Any]:
    """Return the keys of PIN in `report.schema`."""
    problem, priced = pin.answer.problem, pin.answer.estimate
    bounds = [
        {"key": one.bound.key, "value": one.value, "min": one.bound.least, "max": one.bound.most, "ok": one.ok}
        for one in pin.held
    ]
    return {
        "pin": pin.name,
        "ok": pin.ok,
        "model": problem.model.name,
        "chip": problem.machine.chip.id,
        "machine": problem.machine.name,
        "feasible": priced.feasible,
        "reasons": list(priced.reasons),
        "bounds": bounds,
    }


def pin_line(pin: Pin) -> str:
    """Return one line: `ok` with every number, or `moved` with those that did."""
    if pin.ok:
        said = [_within(one) for one in pin.held] or ["feasible" if pin.feasible else "not feasible, as pinned"]
        return f"ok     {pin.name}: {'; '.join(said)}"
    said = [_outside(one) for one in pin.held if not one.ok]
    priced = pin.answer.estimate
    if priced.feasible != pin.feasible:
        said.insert(0, "feasible, pinned as not" if priced.feasible else f"not feasible: {'; '.join(priced.reasons)}")
    return f"moved  {pin.name}: {'; '.join(said)}"


def _within(held: Held) -> str:
    key, least, most = held.bound
    limits = [f"at least {_shown(key, least)}"] if least is not None else []
    limits += [f"at most {_shown(key, most)}"] if most is not None else []
    return f"{key} {_shown(key, held.value)} ({', '.join(limits)})"


def _outside(held: Held) -> str:
    key, least, most = held.bound
    if held.value is None:
        return f"{key} is not known"
    word, limit = ("below", least) if held.too_small(least) else ("above", most)
    shown = [_shown(key, number) for number in (held.value, limit)]
    if shown[0] == shown[1]:
        shown = [repr(held.value), repr(limit)]
    return f"{key} {shown[0]} is {word} {shown[1]}"


def _shown(key: str, value: float | None) -> str:
    if value is None:
        return "not known"
    if "usd" in key:
        return format_usd(value)
    if "bytes" in key:
        return format_gib(value)
    return format_seconds(value) if key.endswith("_s") and not key.endswith("per_s") else count(value)
