"""Errors a user can cause. Each is one clear line; the faces print it and exit 2."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_LISTED = 40
"""Known names an error lists."""


class InferometerError(ValueError):
    """Bad input: what was wrong, where, what is allowed."""


class UnknownNameError(InferometerError):
    """A name that no row claims, with the known ones and the closest match."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown `name` of a `kind`, listing what is known.

    >>> str(unknown_name("chip", "h20", ["h100", "h200"]))
    "unknown chip 'h20'; did you mean 'h200'? known: h100, h200"
    """
    names = sorted(set(known))
    close = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    more = f", ... ({len(names)} in all)" if len(names) > MOST_LISTED else ""
    listed = ", ".join(names[:MOST_LISTED]) + more
    return UnknownNameError(f"unknown {kind} {name!r}{hint} known: {listed}")
