"""Reading a JSON file that nobody vouches for: every failure is one line, none is a traceback."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferometer.errors import InferometerError

MAX_BYTES = 64 * 1024 * 1024
"""Largest file that is parsed; the largest config seen is below 1 MB."""

_BINARY_MARKS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x1f\x8b": "a gzip archive",
    b"PK": "a zip archive",
    b"GGUF": "a GGUF model",
}

_MAX_SHOWN = 60
"""Characters of a value, and bits of an integer times three, that an error repeats."""
_MAX_ITEMS = 8
_MAX_NAME = 300


def show(value: object) -> str:
    """Return `value` as JSON would spell it, on one short line, whatever it is.

    >>> show(True), show(None), show("a" * 100)[:8], show([128, 64]), show({"a": 1})
    ('true', 'null', "'aaaaaaa", '[128, 64]', 'an object of 1')
    """
    match value:
        case str():
            return f"{value[:_MAX_SHOWN]!r}" if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]!r}..."
        case int() if value.bit_length() > 3 * _MAX_SHOWN:
            return f"an integer of {value.bit_length()} bits"
        case None | bool() | int() | float():
            return json.dumps(value)
        case list() if len(value) <= _MAX_ITEMS and not any(isinstance(item, list | Mapping) for item in value):
            return f"[{', '.join(show(item) for item in value)}]"
        case list() | Mapping():
            return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
        case _:
            return f"a {type(value).__name__}"


def one_line(text: object) -> str:
    r"""Return a name or path as it is, or quoted and cut where it would break the line.

    >>> one_line("models/llama"), one_line("a\nb")
    ('models/llama', "'a\\nb'")
    """
    plain = str(text)
    return plain if plain.isprintable() and plain and len(plain) <= _MAX_NAME else show(plain)


def read_json(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in the file at `path`.

    `NaN` and `Infinity` are let through (real configs have them); whoever wants a number refuses
    them. Of duplicate keys the last wins, as in every JSON reader of the field.

    Raises InferometerError, one line, for a file that is missing, unreadable, no regular file, over
    MAX_BYTES, not UTF-8, not JSON (with line and column), nested too deep, or not an object.
    """
    shown = one_line(path)
    text = _decode(_read_bytes(Path(path), shown), shown)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InferometerError(
            f"{shown} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InferometerError(f"{shown} is nested too deep to be a config") from None
    except ValueError:
        raise InferometerError(f"{shown} holds an integer too long to be a config's") from None
    if not isinstance(value, dict):
        raise InferometerError(f"{shown} holds {_kind(value)} where a JSON object is wanted")
    return value


def _read_bytes(path: Path, shown: str) -> bytes:
    """Return the bytes of a regular file of at most MAX_BYTES; the size is asked before reading."""
    try:
        if not path.exists():
            raise InferometerError(f"{shown} does not exist")
        if not path.is_file():
            raise InferometerError(f"{shown} is not a regular file")
        size = path.stat().st_size
        if size <= MAX_BYTES:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            size = max(size, len(data))
    except OSError as error:
        raise InferometerError(f"{shown} cannot be read: {error.strerror or type(error).__name__}") from None
    except ValueError as error:
        if isinstance(error, InferometerError):
            raise
        raise InferometerError(f"{shown} is not a path: {error}") from None
    if size > MAX_BYTES:
        raise InferometerError(f"{shown} has {size} bytes; a config has at most {MAX_BYTES}")
    return data


def _decode(data: bytes, shown: str) -> str:
    """Return UTF-8 text (a byte-order mark is dropped)."""
    for mark, what in _BINARY_MARKS.items():
        if data.startswith(mark):
            raise InferometerError(f"{shown} is {what}, not UTF-8 JSON")
    if b"\x00" in data:
        raise InferometerError(f"{shown} is binary or UTF-16, not UTF-8 JSON")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InferometerError(f"{shown} is not UTF-8: bad byte at offset {error.start}") from None


def _kind(value: object) -> str:
    """Return what a JSON value is, with its article."""
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else show(value)
