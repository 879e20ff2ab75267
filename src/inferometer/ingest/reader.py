"""Typed reads from a foreign JSON object: aliases, class defaults, and a record of what was read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from inferometer.errors import InferometerError
from inferometer.ingest.read_json import show

_ABSENT = object()

Default = int | bool | str | None


@dataclass(slots=True)
class ConfigReader:
    """One JSON object, read by canonical field name.

    A field is looked up under its own name, then its `aliases`. One that is absent takes the
    dialect's class default, which is recorded and later said to the user.
    """

    values: Mapping[str, object]
    where: str
    """Begins every error: the model's name, and the key of a nested object."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Default] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    """Keys that were read, or that say nothing about shapes."""
    taken_from_class: dict[str, Default] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def error(self, key: str, problem: str) -> InferometerError:
        """Return the error for `key`: where, key, what is wrong with it."""
        return InferometerError(f"{self.where}: {key} {problem}")

    def wrong(self, key: str, value: object, allowed: str) -> InferometerError:
        """Return the error for a value of `key` that is not `allowed`."""
        return self.error(key, f"is {show(value)}; allowed: {allowed}")

    def find(self, name: str) -> tuple[str, object]:
        """Return (key used, value) of a field; the value is a class default where it is absent.

        Raises InferometerError for a field that is absent and has no class default.
        """
        present = [key for key in (name, *self.aliases.get(name, ())) if key in self.values]
        self.known.update(present)
        if not present:
            if name not in self.defaults:
                raise self.error(name, "is missing")
            self.taken_from_class[name] = self.defaults[name]
            return name, self.defaults[name]
        key, value = present[0], self.values[present[0]]
        for other in present[1:]:
            if value is None:
                key, value = other, self.values[other]
            elif self.values[other] is not None and self.values[other] != value:
                self.remark(f"both {key} and {other} are given and disagree; {key} = {show(value)} is taken")
        return key, value

    def skip(self, *names: str) -> None:
        """Mark fields as understood although they say nothing here."""
        for name in names:
            self.known.update((name, *self.aliases.get(name, ())))

    def remark(self, text: str) -> None:
        """Say something that was assumed, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def integer(self, name: str, *, low: int = 1, high: int) -> int:
        """Return a field as an integer in [low, high]; an integral float counts as one.

        Raises InferometerError for a missing, null, mistyped or out-of-range value.
        """
        key, value = self.find(name)
        return self._integer(key, value, low, high)

    def integer_or_none(self, name: str, *, low: int = 1, high: int) -> int | None:
        """Return a field as an integer in [low, high], or None where it is null.

        An absent field takes the class default, and is None without one. Raises as `integer`.
        """
        if not self.has(name) and name not in self.defaults:
            return None
        key, value = self.find(name)
        return None if value is None else self._integer(key, value, low, high)

    def integers(self, name: str, *, low: int, high: int) -> tuple[int, ...] | None:
        """Return a list of integers in [low, high], or None where the field is absent or null."""
        if not self.has(name):
            return None
        key, value = self.find(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(key, value, "a list of integers")
        return tuple(self._integer(f"{key}[{index}]", item, low, high) for index, item in enumerate(value))

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean field; absent or null is `default`, recorded as taken from the class."""
        key, value = self.find(name) if self.has(name) else (name, None)
        if value is None:
            self.taken_from_class[name] = default
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def text(self, name: str) -> str | None:
        """Return a string field, or None where it is absent or null."""
        key, value = self.find(name) if self.has(name) else (name, None)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, value, "a string")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings; absent or null is empty, a lone string is a list of one."""
        key, value = self.find(name) if self.has(name) else (name, None)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list):
            raise self.wrong(key, value, "a list of strings")
        items: list[str] = []
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise self.wrong(f"{key}[{index}]", item, "a string")
            items.append(item)
        return tuple(items)

    def mapping(self, name: str) -> Mapping[str, object] | None:
        """Return a nested object, or None where it is absent or null."""
        key, value = self.find(name) if self.has(name) else (name, None)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, value, "an object")
        return value

    def number(self, name: str, *, low: float, high: float) -> float | None:
        """Return a finite number in [low, high], or None where the field is absent or null."""
        key, value = self.find(name) if self.has(name) else (name, None)
        if value is None:
            return None
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not low <= value <= high:  # type: ignore[operator]  # mypy does not follow `real`
            raise self.wrong(key, value, f"a number from {low:g} to {high:g}")
        return float(value)  # type: ignore[arg-type]  # same

    def has(self, name: str) -> bool:
        """Return whether the field, or an alias of it, is present (null counts)."""
        return any(key in self.values for key in (name, *self.aliases.get(name, ())))

    def unknown(self) -> tuple[str, ...]:
        """Return the keys that nobody read, sorted."""
        return tuple(sorted(str(key) for key in self.values if key not in self.known))

    def said(self, what: str) -> tuple[str, ...]:
        """Return what was assumed while reading `what`, one sentence each."""
        taken = "; ".join(f"{key} = {show(value)}" for key, value in self.taken_from_class.items())
        first = (f"Absent from the {what}, so as its class has it: {taken}.",) if taken else ()
        return (*first, *(f"{remark}." for remark in self.remarks))

    def _integer(self, key: str, value: object, low: int, high: int) -> int:
        whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
        number = int(value) if whole else value  # type: ignore[call-overload]  # as `whole` says
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise self.wrong(key, value, f"an integer from {low} to {high}")
        return number
