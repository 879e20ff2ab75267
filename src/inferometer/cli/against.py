"""What stands in --against: CHIP, MACHINE, --model and options of explain that B has instead; the rest is A's."""

import re
import shlex
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from inferometer.api.engines import DEFAULT_ENGINE
from inferometer.cli.options import Options, flags
from inferometer.cli.verb_options import MEMORY, OUTPUT, PLACED, PRICE, REPEATED, SHARDING, STARTED, VERBS
from inferometer.errors import InferometerError, unknown_name

HELD = ("against", "placements", *OUTPUT)
"""What both share."""

MODEL = "--model"
"""How B's model is spelled: a bare word is a chip."""

INSTEAD: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (SHARDING, (*SHARDING, "placement")),
    (("chip",), ("placement", "usd_per_chip_hour")),
    (("machine",), ("placement",)),
    (MEMORY, MEMORY),
    (("usd_per_chip_hour",), PRICE),
    (("provider", "region", "tier"), ("usd_per_chip_hour",)),
    (("backend",), ("calibration",)),
    (("calibration",), ("backend",)),
    (("context",), ("isl", "osl", "images", "image_size")),
    (("isl", "osl", "images", "image_size"), ("context",)),
    (("phase",), ("draft_tokens",)),
)
"""Where B gives one of the first, it has none of A's of the second; but an extend has both a context and a prompt."""

LENGTHS = {"context", "isl", "osl", "images", "image_size"}

_SIZE = re.compile(r"\d+(x\d+)*", re.ASCII)
_SHOWN = 80


def against(a: Options, text: str) -> Options:
    """Return the options of B: those of A with what `text` says instead.

    A first word such as `8x2` is MACHINE, another is CHIP, and a second one MACHINE. Raises InferometerError for an
    option that explain does not take, and for one without its value.
    """
    given = _read(text)
    if not given:
        raise InferometerError("--against is empty: say what B has instead, as in --against 'b200 8x1 --quant fp8'")
    defaults = Options()
    extend = given.get("phase", a.phase) == "extend"
    replaced = [
        field
        for first, second in INSTEAD
        if given.keys() & set(first) and not (extend and LENGTHS.issuperset(first))
        for field in second
    ]
    if given.get("engine") == DEFAULT_ENGINE:
        replaced += [*STARTED, *PLACED]
    dropped = {field: getattr(defaults, field) for field in replaced}
    return replace(a, against=None, **(dropped | given))


def _read(text: str) -> dict[str, Any]:
    """Return field -> value of what is typed in `text`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InferometerError(f"--against {text[:_SHOWN]!r}: {error}") from None
    spellings = {flag: field for field in VERBS["explain"] if field not in HELD for flag in flags(field)}
    spellings[MODEL] = "model"
    given: dict[str, Any] = {}
    positional: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        field = spellings.get(name)
        if field is None:
            raise unknown_name("option in --against", name[:_SHOWN], spellings)
        if field in given and field not in REPEATED:
            raise InferometerError(f"--against gives {name} twice")
        given[field] = _value(field, name, value if equals else None, rest, given)
    return _positions(text, positional) | given


def _positions(text: str, words: list[str]) -> dict[str, Any]:
    names = ("machine",) if words and _SIZE.fullmatch(words[0]) else ("chip", "machine")
    if len(words) > len(names):
        raise InferometerError(f"--against {text[:_SHOWN]!r}: {words[len(names)]!r} is one word too many")
    return dict(zip(names, words, strict=False))


def _value(field: str, name: str, value: str | None, rest: Any, given: dict[str, Any]) -> Any:
    """Return the value of an option: typed after `=`, or the next word; True for a switch."""
    hint = get_type_hints(Options)[field]
    if hint is bool:
        if value is not None:
            raise InferometerError(f"--against: {name} takes no value")
        return True
    text = next(rest, None) if value is None else value
    if text is None:
        raise InferometerError(f"--against: {name} needs a value")
    if field in REPEATED:
        return [*given.get(field, []), text]
    kind = next((kind for kind in get_args(hint) if kind is not type(None)), hint)
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise InferometerError(f"--against: {name} {text[:_SHOWN]!r} is not {wanted}") from None
