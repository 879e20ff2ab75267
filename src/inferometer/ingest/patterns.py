"""Which modules a quantisation rule names: exact names, ancestors, suffixes, globs and regexes."""

import re
from collections.abc import Iterable

from inferometer.errors import InferometerError
from inferometer.ingest.read_json import show

MAX_REPEATS = 5
"""Most repeats (`* + {` and optional parts) in one pattern, and most groups less one.

Backtracking costs a power of the name's length: five repeats over 60 characters are 8 million steps at worst.
"""
MAX_LENGTH = 500

_WRAPPERS = re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.|backbone\.)")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPEAT = re.compile(r"[*+{]|(?<!\()\?")
_EXPERT = re.compile(r"experts(?:\\?\.)(\d{1,6})(?!\d)")


class PatternSet:
    """Patterns of one rule, in the dialects of the engines.

    `re:` begins a regex, matched from the start of the module's full name (compressed-tensors).
    A pattern with `*` or `?` is a glob over the full name of the module or of an ancestor (ModelOpt).
    Anything else is a run of whole name components (transformers and AWQ lists): `lm_head`,
    `mlp.gate` (which is not `mlp.gate_proj`), `model.layers.0`.
    """

    def __init__(self, patterns: Iterable[str], where: str) -> None:
        """Sort `patterns` by dialect; `where` begins the error for one that cannot be used.

        Raises InferometerError for a regex that does not compile or could take for ever.
        """
        names: set[str] = set()
        wild: list[str] = []
        for pattern in dict.fromkeys(patterns):
            if pattern.startswith("re:") or "*" in pattern or "?" in pattern:
                wild.append(pattern)
            else:
                names.add(_unwrapped(pattern))
        self.names = frozenset(names)
        self.wild = tuple(_compiled(pattern, where) for pattern in wild)
        self.cost: int = 1 + sum(1 << 3 * len(_REPEAT.findall(pattern)) for pattern in wild)
        """Steps of one look-up, roughly: a repeat multiplies the ways to match by about the name's parts."""
        found = (match for pattern in (*names, *wild) for match in _EXPERT.findall(pattern))
        self.experts = frozenset(int(digits) for digits in found)
        """Expert indices that some pattern spells out."""

    def names_module(self, module: str) -> bool:
        """Return whether a pattern without wildcards names `module`, an ancestor or its suffix."""
        if not self.names:
            return False
        parts = module.split(".")
        runs = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
        return not self.names.isdisjoint(runs)

    def matches(self, module: str) -> bool:
        """Return whether any pattern covers the module of that full name."""
        return self.names_module(module) or any(pattern.match(module) for pattern in self.wild)


def _unwrapped(name: str) -> str:
    """Return a module name without the prefix that multimodal wrappers put before the language model.

    >>> _unwrapped("model.language_model.layers.0.mlp"), _unwrapped("language_model.lm_head")
    ('model.layers.0.mlp', 'lm_head')
    """
    match = _WRAPPERS.match(name)
    if match is None:
        return name
    rest = name[match.end() :]
    return rest if match.group() == "language_model." else f"model.{rest}"


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    """Return the compiled regex of a `re:` pattern or a glob; refuse what could run for ever."""
    regex = pattern[3:] if pattern.startswith("re:") else _glob_regex(_unwrapped(pattern))
    body = regex if pattern.startswith("re:") else pattern
    slow = len(_REPEAT.findall(body)) > MAX_REPEATS or body.count("(") >= MAX_REPEATS
    if slow or len(body) > MAX_LENGTH or _REPEATED_GROUP.search(body):
        raise InferometerError(
            f"{where} has the pattern {show(pattern)}; allowed: at most {MAX_LENGTH} characters, "
            f"{MAX_REPEATS} repeats, {MAX_REPEATS - 1} groups, and no repeated group"
        )
    try:
        return re.compile(regex)
    except (re.error, RecursionError, OverflowError) as error:
        raise InferometerError(f"{where} has a bad regex {show(pattern)}: {error}") from None


def _glob_regex(glob: str) -> str:
    """Return a regex for a glob over a module or an ancestor of it.

    >>> re.match(_glob_regex("model.layers.*.self_attn"), "model.layers.7.self_attn.q_proj") is not None
    True
    """
    body = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in re.sub(r"\*+", "*", glob))
    return rf"(?:{body})(?:\..*)?\Z"
