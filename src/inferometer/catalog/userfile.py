"""Read a chip or a machine that a user wrote down (TOML or JSON), units as people write them."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from inferometer.errors import InferometerError
from inferometer.units import parse_quantity

MAX_FILE_BYTES = 1_000_000
"""A description of one product is a few kilobytes; anything larger is some other file."""

T = TypeVar("T")


def is_file_name(name: str) -> bool:
    """Return whether `name` names a description file rather than a catalogue row.

    >>> [is_file_name(n) for n in ("mine.toml", "h100")]
    [True, False]
    """
    return name.lower().endswith((".toml", ".json"))


def read_user_file(path: str | Path) -> dict[str, Any]:
    """Return the table a TOML or JSON file holds.

    Raises InferometerError where it cannot be read, is too large, or holds no table.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as err:
        raise InferometerError(f"{path}: {err.strerror}") from err
    if len(raw) > MAX_FILE_BYTES:
        raise InferometerError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
        table = tomllib.loads(text) if file.suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as err:
        raise InferometerError(f"{path}: {err}") from err
    if not isinstance(table, dict):
        raise InferometerError(f"{path}: holds no table of fields")
    return table


def quantity(where: str, value: Any, dimension: str) -> float:
    """Return a positive SI value: text with a unit of `dimension`, or a number already in SI.

    Raises InferometerError naming `where` for anything else.
    """
    if isinstance(value, str):
        try:
            result = parse_quantity(value, dimension)
        except InferometerError as err:
            raise InferometerError(f"{where}: {err}") from err
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            result = float(value)
        except OverflowError as err:
            raise InferometerError(f"{where}: out of range") from err
    else:
        raise InferometerError(f"{where}: {value!r} is neither a number nor a quantity with a unit")
    if not 0 < result < float("inf"):
        raise InferometerError(f"{where}: must be positive and finite, not {value!r}")
    return result


def in_si(where: str, table: Mapping[str, Any], dimensions: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of `table` with the fields of `dimensions` in SI; the others as they are."""
    return {k: quantity(f"{where}: {k}", v, dimensions[k]) if k in dimensions else v for k, v in table.items()}


def convert(where: str, table: Mapping[str, Any], spec: type[T]) -> T:
    """Return `table` as a `spec`; a missing, unknown or mistyped field is an InferometerError."""
    if table.get("id") == "":
        raise InferometerError(f"{where}: id is empty")
    try:
        return msgspec.convert(dict(table), spec)
    except msgspec.ValidationError as err:
        raise InferometerError(f"{where}: {err}") from err
