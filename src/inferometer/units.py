"""Units at the edge: text such as `3.35 TB/s` becomes SI once, and SI is formatted once.

Decimal prefixes are powers of 1000 and binary ones powers of 1024 (IEC 80000-13); `b` is a bit, `B` a byte.
"""

import math
import re

from inferometer.errors import InferometerError

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


def _table() -> dict[str, dict[str, float]]:
    prefixes = _DECIMAL | _BINARY
    return {
        "bytes": {f"{p}B": f for p, f in prefixes.items()},
        "bytes_per_s": {f"{p}B/s": f for p, f in prefixes.items()} | {f"{p}b/s": f / 8 for p, f in _DECIMAL.items()},
        "flops_per_s": {f"{p}{u}": f for p, f in _DECIMAL.items() for u in ("FLOP/s", "FLOPS", "OP/s", "OPS")},
        "power": {f"{p}W": f for p, f in _DECIMAL.items() if p in ("", "k", "M")},
        "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
        "usd_per_hour": {"$/h": 1.0, "USD/h": 1.0},
    }


UNITS: dict[str, dict[str, float]] = _table()
"""Dimension -> unit -> factor to SI (dollars an hour stay dollars an hour)."""

_LONGEST = 100
"""Characters of the longest text taken for a quantity."""

_SHOWN = 5
"""Units an error lists."""

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*", re.ASCII)


def parse_quantity(text: str, dimension: str) -> float:
    """Return the SI value of `text`, which must carry a unit of `dimension`.

    `dimension` is a key of `UNITS`. Raises InferometerError for text that is no number and unit, for a unit of
    another dimension, and for a value that is negative or not finite.

    >>> parse_quantity("3.35 TB/s", "bytes_per_s")
    3350000000000.0
    >>> parse_quantity("80 GiB", "bytes") == 80 * 2**30
    True
    >>> parse_quantity("400 Gb/s", "bytes_per_s")
    50000000000.0
    >>> parse_quantity("989", "flops_per_s")
    Traceback (most recent call last):
    inferometer.errors.InferometerError: '989' has no unit; give one of: FLOP/s, FLOPS, OP/s, OPS, kFLOP/s, ...
    """
    units = UNITS[dimension]
    match = _QUANTITY.fullmatch(text) if len(text) < _LONGEST else None
    if match is None:
        raise InferometerError(f"{text[:_LONGEST]!r} is no number with a unit, such as '1 {next(iter(units))}'")
    number, unit = match.groups()
    some = ", ".join(list(units)[:_SHOWN]) + (", ..." if len(units) > _SHOWN else "")
    if unit is None:
        raise InferometerError(f"{text!r} has no unit; give one of: {some}")
    if unit not in units:
        raise InferometerError(f"unit {unit!r} of {text!r} is not one of {dimension}: {some}")
    value = float(number) * units[unit]
    if not math.isfinite(value) or value < 0:
        raise InferometerError(f"{text!r} must be finite and not negative")
    return value


def format_gib(n_bytes: float) -> str:
    """Return bytes as GiB.

    >>> format_gib(80 * 2**30)
    '80.00 GiB'
    """
    return f"{n_bytes / 2**30:,.2f} GiB"


def format_rate(bytes_per_s: float) -> str:
    """Return bytes per second as GB/s (1e9).

    >>> format_rate(3.35e12)
    '3,350 GB/s'
    """
    return f"{_digits(bytes_per_s / 1e9)} GB/s"


def format_flops(flops_per_s: float) -> str:
    """Return FLOP per second as TFLOP/s (1e12).

    >>> format_flops(989e12)
    '989 TFLOP/s'
    """
    return f"{_digits(flops_per_s / 1e12)} TFLOP/s"


def format_seconds(seconds: float) -> str:
    """Return a time in us, ms or s, whichever reads best.

    >>> [format_seconds(s) for s in (5e-6, 0.0123, 2.5)]
    ['5.00 us', '12.3 ms', '2.50 s']
    """
    times = UNITS["time"]
    unit = next((u for u in ("s", "ms") if abs(seconds) >= times[u]), "us")
    return f"{_digits(seconds / times[unit])} {unit}"


def format_usd(usd: float) -> str:
    """Return dollars, with four decimals below one dollar.

    >>> [format_usd(v) for v in (2.95, 0.1621)]
    ['$2.95', '$0.1621']
    """
    return f"${usd:,.2f}" if abs(usd) >= 1 else f"${usd:.4f}"


def _digits(value: float) -> str:
    """Return three significant digits, and all of the whole part."""
    whole = int(math.log10(abs(value))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, 2 - whole)}f}"
