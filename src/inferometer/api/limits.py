"""What an answer must keep, as people write it: `20` tok/s a user, or `tpot=50ms`."""

import math

from inferometer.errors import InferometerError, unknown_name
from inferometer.search.result import Slo
from inferometer.specs.deployment import PLAIN, Phase
from inferometer.units import parse_quantity

_FORM = "a number is tok/s a user, as in --slo 20; else tpot=50ms or ttft=2s"


def parse_slo(text: str, phase: Phase) -> Slo:
    """Return the limits that `text` says for a pass of `phase`.

    A bare number is tok/s a user: the step must take at most its inverse. Of a verify one token is certain, so its
    TPOT is that of a pass whose draft is refused. Raises InferometerError for text of
    another form, and for a limit that the phase has no figure for.

    >>> parse_slo("20", "decode"), parse_slo("tpot=40ms", "decode").tpot_s
    (Slo(tpot_s=0.05, ttft_s=None), 0.04)
    """
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            name, seconds = "tpot", 1 / _positive(text, name)
        elif name.lower() not in ("tpot", "ttft"):
            raise unknown_name("limit in --slo", name, ("tpot", "ttft"))
        else:
            seconds = _seconds(text, value)
        if name.lower() in limits:
            raise InferometerError(f"--slo {text[:60]!r} limits {name} twice")
        limits[name.lower()] = seconds
    prompts = PLAIN[phase] == "prefill"
    if "ttft" in limits and not prompts:
        raise InferometerError("--slo ttft needs --phase prefill or extend: TTFT under load is not modelled yet")
    if "tpot" in limits and prompts:
        raise InferometerError(f"--slo {text[:60]!r} limits TPOT, which {phase} has none of; give ttft=2s")
    return Slo(tpot_s=limits.get("tpot"), ttft_s=limits.get("ttft"))


def _positive(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (number.isascii() and 0 < value < math.inf and math.isfinite(1 / value)):
        raise InferometerError(f"--slo {text[:60]!r}: {_FORM}")
    return value


def _seconds(text: str, value: str) -> float:
    try:
        seconds = parse_quantity(value, "time")
    except InferometerError as error:
        raise InferometerError(f"--slo {text[:60]!r}: {error}") from None
    if seconds <= 0:
        raise InferometerError(f"--slo {text[:60]!r}: a limit must be above 0")
    return seconds
