"""Pinned deployments of a TOML or JSON file, asked again: for the checks of other repositories.

A file holds tables `[[pin]]`: a name, a deployment in the words of `estimate`, and bounds of what it gives. What
`[defaults]` says, every pin takes that does not say it itself.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from inferometer.api.questions import estimate
from inferometer.api.settings import Settings
from inferometer.catalog.userfile import read_user_file
from inferometer.errors import InferometerError, unknown_name
from inferometer.report.pins import BOUND_KEYS, Bound, Pin, hold
from inferometer.units import parse_quantity

SUBJECT = {"name": str, "model": str, "chip": str, "machine": str}
NEEDED = ("name", "model", "chip")

KINDS: dict[str, type | UnionType] = {
    **SUBJECT,
    "sizes": str | dict,
    "batch": int,
    "placement": str,
    "slo": str | int | float,
    "feasible": bool,
}
"""Key of a pin -> what TOML must hold; the settings of `estimate` and the bounds beside these."""

_DIMENSIONS = {"_bytes": "bytes", "bytes_per_chip": "bytes", "_s": "time", "usd_per_hour": "usd_per_hour"}
"""End of a bound's key -> dimension of a limit written with its unit."""

_SHOWN = 80


def check_pins(path: str | Path) -> list[Pin]:
    """Return every pin of a file, asked again, in the file's order.

    Raises InferometerError, naming the file, the pin and the key, for a file that is none, for a key that is unknown or
    of another type, and for a deployment that makes no sense.
    """
    table = read_user_file(path)
    for key in table:
        if key not in ("pin", "defaults"):
            raise InferometerError(f"{path}: {unknown_name('key', key[:_SHOWN], ('pin', 'defaults'))}")
    defaults, pins = table.get("defaults", {}), table.get("pin")
    if not isinstance(pins, list) or not pins or not all(isinstance(pin, dict) for pin in pins):
        raise InferometerError(f"{path}: holds no [[pin]]")
    if not isinstance(defaults, dict):
        raise InferometerError(f"{path}: defaults must be a table")
    names = [pin.get("name") for pin in pins]
    for place, name in enumerate(names, 1):
        if name in names[: place - 1]:
            raise InferometerError(f"{path}: two pins are called {str(name)[:_SHOWN]!r}")
    checked = [_checked(f"{path}: pin {pin.get('name', n)!r}", defaults | pin) for n, pin in enumerate(pins, 1)]
    return [_asked(f"{path}: pin {pin['name']!r}", pin) for pin in checked]


def _checked(where: str, pin: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pin whose keys are known and of their type, bounds as `Bound`."""
    kinds = KINDS | {name: _kind(hint) for name, hint in get_type_hints(Settings).items()}
    for key in NEEDED:
        if key not in pin:
            raise InferometerError(f"{where}: {key} is missing")
    found: dict[str, Any] = {}
    for key, value in pin.items():
        if key in BOUND_KEYS:
            found[key] = _bound(f"{where}: {key}", key, value)
        elif key not in kinds:
            raise InferometerError(f"{where}: {unknown_name('key', key[:_SHOWN], [*kinds, *BOUND_KEYS])}")
        elif not _fits(value, kinds[key]):
            raise InferometerError(f"{where}: {key} {str(value)[:_SHOWN]!r} is not {_spelled(kinds[key])}")
        else:
            found[key] = value
    return found


def _asked(where: str, pin: dict[str, Any]) -> Pin:
    """Return one pin, asked again."""
    rest = dict(pin)
    bounds = tuple(rest.pop(key) for key in pin if key in BOUND_KEYS)
    name, feasible = rest.pop("name"), rest.pop("feasible", True)
    machine = " ".join(part for part in (rest.pop("chip"), rest.pop("machine", "")) if part)
    try:
        answer = estimate(rest.pop("model"), machine, rest.pop("sizes", None), **rest)
    except InferometerError as error:
        raise InferometerError(f"{where}: {error}") from None
    return hold(name, answer, bounds, feasible=feasible)


def _kind(hint: Any) -> type | UnionType:
    """Return what TOML must hold for a setting; a sequence is a list."""
    names = [arg for arg in get_args(hint) if arg is not type(None)]
    kinds = [arg if isinstance(arg, type) else list for arg in names]
    if float in kinds:
        kinds.append(int)
    found: type | UnionType = kinds[0]
    for kind in kinds[1:]:
        found |= kind
    return found


def _fits(value: object, kind: type | UnionType) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, list):
        return isinstance(value, kind) and all(isinstance(one, str) for one in value)
    return isinstance(value, kind)


def _spelled(kind: type | UnionType) -> str:
    words = {
        str: "text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        dict: "a table",
        list: "list",
    }
    return " or ".join(words[one] for one in get_args(kind) or (kind,))


def _bound(where: str, key: str, value: object) -> Bound:
    """Return the bound written `{min = 3000, max = 4000}`, either left out; limits in SI, or text with a unit."""
    if not isinstance(value, dict) or not value:
        raise InferometerError(f"{where}: write bounds, as in {{min = 3000, max = 4000}}")
    for name in value:
        if name not in ("min", "max"):
            raise InferometerError(f"{where}: {unknown_name('bound', str(name)[:_SHOWN], ('min', 'max'))}")
    least, most = (_limit(f"{where}.{name}", key, value[name]) if name in value else None for name in ("min", "max"))
    if least is not None and most is not None and least > most:
        raise InferometerError(f"{where}: min {least:g} is above max {most:g}")
    return Bound(key, least, most)


def _limit(where: str, key: str, value: object) -> float:
    """Return a limit in the unit of its key."""
    dimension = next((d for end, d in _DIMENSIONS.items() if key.endswith(end) and not key.endswith("per_s")), None)
    if isinstance(value, str) and dimension is not None:
        try:
            return parse_quantity(value, dimension)
        except InferometerError as error:
            raise InferometerError(f"{where}: {error}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InferometerError(f"{where}: {str(value)[:_SHOWN]!r} is not a number" + " or a quantity" * bool(dimension))
    return float(value)
