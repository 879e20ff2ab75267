"""Machines: products with their levels, cloud instances, and a machine of the user's own."""

import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from inferometer.catalog.names import close_names, name_index, normalise, resolve
from inferometer.catalog.tables import Row, read_table, split_names, yes
from inferometer.catalog.userfile import convert, in_si, is_file_name, read_user_file
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.hardware import Level, MachineSpec
from inferometer.units import parse_quantity

_MACHINE_COLUMNS = ("machine", "chip", "torus", "source", "date", "confidence")
_LEVEL_COLUMNS = ("machine", "name", "geometry", "max_size", "bandwidth", "latency", "multicast", "reduces",
                  "wrap_multiple", "source", "latency_source", "date", "confidence")  # fmt: skip
_TWIST_COLUMNS = ("machine", "twist", "source", "date", "confidence")
_INSTANCE_COLUMNS = ("instance", "machine", "chips", "provider", "source", "date")
_LEVEL_QUANTITIES = {"bytes_per_s": "bytes_per_s", "latency_s": "time"}


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud instance: a whole machine, or some of its chips."""

    name: str
    machine: str
    chips: int
    provider: str


@lru_cache(maxsize=1)
def load_machines() -> MappingProxyType[str, MachineSpec]:
    """Return every machine of the catalogue by id; cloud instance names are among the aliases.

    Raises InferometerError for a value without unit, source or date.
    """
    return MappingProxyType(
        machines_from_rows(
            read_table("machines.csv", _MACHINE_COLUMNS),
            read_table("levels.csv", _LEVEL_COLUMNS),
            load_instances().values(),
            read_table("twists.csv", _TWIST_COLUMNS),
        )
    )


@lru_cache(maxsize=1)
def load_instances() -> MappingProxyType[str, Instance]:
    """Return cloud instances by normalised name."""
    rows = read_table("instances.csv", _INSTANCE_COLUMNS)
    return MappingProxyType(
        {
            normalise(r["instance"]): Instance(
                name=r["instance"], machine=r["machine"], chips=int(r["chips"]), provider=r["provider"]
            )
            for r in rows
        }
    )


@lru_cache(maxsize=1)
def host_chips() -> MappingProxyType[str, int]:
    """Return torus machine id -> chips of one host, the smallest part that is let."""
    rows = read_table("machines.csv", _MACHINE_COLUMNS)
    return MappingProxyType({r["machine"]: int(r["host_chips"]) for r in rows if r.get("host_chips")})


def machines_from_rows(
    machines: list[Row], levels: list[Row], instances: Iterable[Instance], twists: Iterable[Row] = ()
) -> dict[str, MachineSpec]:
    """Return machines by id from the rows of `machines.csv`, `levels.csv` (innermost first) and `twists.csv`."""
    by_machine: dict[str, list[Row]] = {r["machine"]: [] for r in machines}
    for row in levels:
        if row["machine"] not in by_machine:
            raise unknown_name("machine", row["machine"], by_machine)
        by_machine[row["machine"]].append(row)
    names: dict[str, list[str]] = {}
    for instance in instances:
        names.setdefault(instance.machine, []).append(instance.name)
    found = {r["machine"]: _machine(r, by_machine[r["machine"]], names.get(r["machine"], [])) for r in machines}
    for row in twists:
        found[row["machine"]] = _twisted(found[row["machine"]], row)
    return found


def _twisted(spec: MachineSpec, row: Row) -> MachineSpec:
    """Return a machine with what `twists.csv` says of it."""
    fields = {
        **msgspec.to_builtins(spec),
        "twist": row["twist"],
        "sources": {**spec.sources, "twist": f"{row['source']}, {row['date']}"},
        "assumed": (*spec.assumed, "twist") if row["confidence"] == "C" else spec.assumed,
    }
    return convert(f"twists.csv: {spec.id}", fields, MachineSpec)


def _machine(row: Row, levels: list[Row], instances: list[str]) -> MachineSpec:
    ident = row["machine"]
    if not levels:
        raise InferometerError(f"levels.csv: machine {ident} has no level")
    sources = {"machine": f"{row['source']}, {row['date']}"}
    assumed: list[str] = []
    for level in levels:
        name = level["name"]
        sources[f"{name}.bytes_per_s"] = f"{level['source']}, {level['date']}"
        sources[f"{name}.latency_s"] = f"{level['latency_source']}, {level['date']}"
        if level["confidence"] == "C":
            assumed.append(f"{name}.bytes_per_s")
        if level["latency_source"].startswith("assumed"):
            assumed.append(f"{name}.latency_s")
    return MachineSpec(
        id=ident,
        chip=row["chip"],
        levels=tuple(_level(level) for level in levels),
        torus=yes(f"machines.csv: {ident}", row["torus"]),
        aliases=(*split_names(row.get("aliases", "")), *instances),
        assumed=tuple(assumed),
        sources=sources,
    )


def _level(row: Row) -> Level:
    where = f"levels.csv: {row['machine']} {row['name']}"
    return convert(
        where,
        {
            "name": row["name"],
            "geometry": row["geometry"],
            "max_size": int(row["max_size"]),
            "bytes_per_s": parse_quantity(row["bandwidth"], "bytes_per_s"),
            "latency_s": parse_quantity(row["latency"], "time"),
            "multicast": yes(where, row["multicast"]),
            "reduces": yes(where, row["reduces"]),
            "wrap_multiple": int(row["wrap_multiple"]),
        },
        Level,
    )


@lru_cache(maxsize=1)
def machine_index() -> MappingProxyType[str, str]:
    """Return normalised name -> machine id; aliases and cloud instances included."""
    return MappingProxyType(name_index("machine", ((m.id, m.aliases) for m in load_machines().values())))


def plain_name(name: str) -> str:
    """Return a machine's name without Azure's `Standard_`.

    >>> plain_name("Standard_ND96isr_H100_v5")
    'nd96isr-h100-v5'
    """
    return normalise(name).removeprefix("standard-")


def find_machine(name: str) -> MachineSpec:
    """Return the machine `name`: an id, an alias, a cloud instance, or the path of a `.toml` or `.json` file.

    Raises UnknownNameError for a name that matches nothing, InferometerError for one that several ids begin with.

    >>> find_machine("p5.48xlarge").id
    'aws-p5'
    """
    if is_file_name(name):
        return machine_file(name)
    ident = resolve("machine", plain_name(name), machine_index())
    if ident is None:
        raise unknown_name("machine", name, [*load_machines(), *close_names(name, machine_index())])
    return load_machines()[ident]


def machine_file(path: str | Path) -> MachineSpec:
    """Return a user's own machine: `MachineSpec` fields in TOML or JSON, innermost level first.

    Rates and latencies are in SI or text with its unit. Raises InferometerError naming the file and the field.
    """
    return machine_from_table(str(path), read_user_file(path))


def machine_from_table(where: str, table: dict[str, Any]) -> MachineSpec:
    """Return the machine that `table` (as read from the file `where`) describes."""
    levels = table.get("levels")
    if not isinstance(levels, list) or not levels or not all(isinstance(level, dict) for level in levels):
        raise InferometerError(f"{where}: levels must be a list of tables, innermost first")
    fields = dict(table)
    fields["levels"] = [in_si(f"{where}: level {i}", level, _LEVEL_QUANTITIES) for i, level in enumerate(levels)]
    fields.setdefault("sources", {"machine": f"user file {where}"})
    spec = convert(where, fields, MachineSpec)
    names = [level.name for level in spec.levels]
    if len(set(names)) < len(names):
        raise InferometerError(f"{where}: each level has a name of its own, not {', '.join(names)}")
    for level in spec.levels:
        if level.max_size < 1 or level.wrap_multiple < 0:
            raise InferometerError(f"{where}: level {level.name}: max_size is 1 or more, wrap_multiple 0 or more")
        if not (1 <= level.oversubscription_ratio < math.inf and level.oversubscribed_beyond >= 1):
            raise InferometerError(
                f"{where}: level {level.name}: oversubscription_ratio and oversubscribed_beyond are 1 or more"
            )
    return spec
