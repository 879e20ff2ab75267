"""Engines: what each version can run, with the source of every rule."""

import tomllib
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from inferometer.catalog.tables import read_data
from inferometer.catalog.userfile import convert
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.deployment import PLAIN, EngineSpec

CHOICES: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {
        "residual": frozenset({"replicated", "sequence"}),
        "mla": frozenset({"absorbed", "expanded"}),
        "moe-dispatch": frozenset({"gather", "exchange"}),
        "moe-exchange": frozenset({"expanded", "coalesced", "expanded-etp-first", "coalesced-etp-first", "merged"}),
        "logits": frozenset({"gather", "local"}),
        "dcp-combine": frozenset({"gather-scatter", "exchange"}),
        "pp-send": frozenset({"whole", "sliced"}),
        "join-shared": frozenset({"add-split", "add-target"}),
        "unpack": frozenset({"in-kernel", "apart"}),
    }
)
"""Choice -> alternatives an engine may name. A key may end in a phase, such as `.prefill`; what it says of prefill
holds for extend, and of decode for verify, unless these are named."""

RULES = (
    "partition",
    "whole_experts",
    "block_aligned",
    "dcp_within_replication",
    "ep_spans_stage",
    "whole_latents",
    "unpacks_to_16_bits",
)


@lru_cache(maxsize=1)
def load_engines() -> MappingProxyType[str, EngineSpec]:
    """Return every engine of the catalogue by `name@version` (`ideal` has no version); read once."""
    specs = [engine_from_table(table) for table in tomllib.loads(read_data("engines.toml"))["engine"]]
    return MappingProxyType({spec.id: spec for spec in specs})


def engine_from_table(table: dict[str, Any]) -> EngineSpec:
    """Return an engine; raises InferometerError for a rule without source or an alternative that does not exist."""
    spec = convert(f"engines.toml: {table.get('name')}", table, EngineSpec)
    where = f"engines.toml: {spec.id}"
    for key, names in spec.allows.items():
        choice, _, phase = key.partition(".")
        if choice not in CHOICES or phase not in ("", *PLAIN):
            raise InferometerError(f"{where}: unknown choice {key!r}")
        if not names or set(names) - CHOICES[choice]:
            raise InferometerError(f"{where}: {key} may name {', '.join(sorted(CHOICES[choice]))}; not {names}")
    stated = [*spec.allows, *(rule for rule in RULES if rule in table)]
    if missing := [rule for rule in stated if not spec.sources.get(rule)]:
        raise InferometerError(f"{where}: no source for {', '.join(missing)}")
    return spec


def find_engine(name: str) -> EngineSpec:
    """Return an engine: `ideal`, `vllm@0.24`, `vllm@0.24.1` (its 0.24), or `vllm` (its newest version here).

    Raises UnknownNameError listing the engines and versions known.

    >>> [find_engine(n).id for n in ("ideal", "vllm", "vllm@0.24.0")]
    ['ideal', 'vllm@0.24', 'vllm@0.24']
    """
    known = load_engines()
    wanted, _, version = name.strip().lower().partition("@")
    versions = {spec.version: spec for spec in known.values() if spec.name == wanted}
    if versions and not version:
        return versions[max(versions, key=version_numbers)]
    for own, spec in versions.items():
        if version == own or (own and version.startswith(f"{own}.")):
            return spec
    raise unknown_name("engine", name, known)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for ordering.

    >>> version_numbers("0.24.1")
    (0, 24, 1)
    """
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
