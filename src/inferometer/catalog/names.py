"""Names people type: ids, aliases, and the ambiguous ones."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from inferometer.errors import InferometerError


def normalise(name: str) -> str:
    """Return `name` as ids are written: lower case, hyphens for spaces and underscores.

    >>> normalise(" RTX 4090 ")
    'rtx-4090'
    """
    return "-".join(name.lower().replace("_", " ").split())


def name_index(kind: str, rows: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """Return normalised name -> id over (id, aliases).

    Raises InferometerError where two ids claim one name.
    """
    index: dict[str, str] = {}
    for ident, aliases in rows:
        for name in (ident, *aliases):
            if index.setdefault(normalise(name), ident) != ident:
                raise InferometerError(f"{kind} name {name!r} is claimed by {index[normalise(name)]} and {ident}")
    return index


def resolve(kind: str, name: str, index: Mapping[str, str]) -> str | None:
    """Return the id that claims `name`, or None where none does.

    A name that no row claims and the names of several rows begin with is an InferometerError that lists those rows.
    A number counts whole: `h20` does not begin `h200`.

    >>> resolve("chip", "a100", {"a100-40-sxm": "a100-40-sxm", "a100-80-sxm": "a100-80-sxm"})
    Traceback (most recent call last):
    inferometer.errors.InferometerError: chip 'a100' is ambiguous; choose one of: a100-40-sxm, a100-80-sxm
    >>> resolve("chip", "h20", {"h200-sxm": "h200-sxm", "h200-nvl": "h200-nvl"})
    """
    key = normalise(name)
    if key in index:
        return index[key]
    matches = sorted({ident for known, ident in index.items() if _begins(key, known)})
    if len(matches) > 1:
        raise InferometerError(f"{kind} {name!r} is ambiguous; choose one of: {', '.join(matches)}")
    return None


def _begins(key: str, name: str) -> bool:
    if not key or not name.startswith(key):
        return False
    return not (key[-1].isdigit() and name[len(key)].isdigit())


def close_names(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three of `names` that look like `name`.

    >>> close_names("p5.48xlrge", ["p5.48xlarge", "aws-p5"])
    ['p5.48xlarge']
    """
    return get_close_matches(normalise(name), list(names), n=3)
