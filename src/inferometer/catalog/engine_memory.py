"""How engines divide memory: rows by first version, each with the source of every rule."""

import tomllib
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from inferometer.catalog.engines import version_numbers
from inferometer.catalog.tables import read_data
from inferometer.catalog.userfile import convert
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.memory import EngineMemory

FILE = "engine_memory.toml"

UNSOURCED = ("name", "since", "assumed", "sources", "logit_rows")
"""Fields that need no source of their own."""


@lru_cache(maxsize=1)
def load_engine_memory() -> MappingProxyType[str, tuple[EngineMemory, ...]]:
    """Return name -> its rows, oldest first; read once."""
    found: dict[str, list[EngineMemory]] = {}
    before: dict[str, dict[str, Any]] = {}
    for table in tomllib.loads(read_data(FILE))["engine"]:
        name = table.get("name", "")
        merged = before.get(name, {}) | table
        merged["sources"] = before.get(name, {}).get("sources", {}) | table.get("sources", {})
        before[name] = merged
        found.setdefault(name, []).append(memory_from_table(merged))
    return MappingProxyType({name: tuple(rows) for name, rows in found.items()})


def memory_from_table(table: dict[str, Any]) -> EngineMemory:
    """Return the rules of one row; raises InferometerError for a rule without source."""
    where = f"{FILE}: {table.get('name')}@{table.get('since', '')}"
    spec = convert(where, table, EngineMemory)
    if missing := [rule for rule in table if rule not in UNSOURCED and not spec.sources.get(rule)]:
        raise InferometerError(f"{where}: no source for {', '.join(missing)}")
    return spec


def find_engine_memory(engine: str) -> EngineMemory:
    """Return the memory rules of `vllm@0.24`: the newest row not younger than the version; without one, the newest.

    Raises UnknownNameError for an engine that is not known, InferometerError for a version that is none or too old.

    >>> [find_engine_memory(name).since for name in ("vllm@0.24", "vllm@0.25.1", "vllm@0.26", "vllm", "ideal")]
    ['0.21', '0.21', '0.26', '0.29', '']
    """
    name, _, version = engine.strip().lower().partition("@")
    rows = load_engine_memory().get(name)
    if rows is None:
        raise unknown_name("engine", engine, load_engine_memory())
    if not version or not rows[0].since:
        return rows[-1]
    if not version[0].isdecimal():
        raise InferometerError(f"--engine {engine[:60]!r}: {version[:40]!r} is no version; write {rows[-1].id}")
    old_enough = [row for row in rows if version_numbers(row.since) <= version_numbers(version)]
    if not old_enough:
        raise InferometerError(f"--engine {engine[:60]}: memory rules are known from {rows[0].id} on")
    return old_enough[-1]
