"""Chips: the datasheet table, and a chip of the user's own."""

from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from inferometer.catalog.names import close_names, name_index, resolve
from inferometer.catalog.tables import Row, cell_quantity, read_table, split_names
from inferometer.catalog.userfile import convert, in_si, is_file_name, quantity, read_user_file
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.hardware import ChipSpec

PEAK_TYPES = ("fp4", "fp8", "int8", "fp16", "bf16", "fp32")
"""Arithmetic types a peak may be given for."""

NVIDIA_VISIBLE_SHARE = 0.975
"""Share of a part's label, read as GiB, that a process sees where no one has published it (assumed)."""

GENERIC_MACHINE = "generic-pcie"
"""Machine of a user's chip that names none."""

_COLUMNS = ("chip", "field", "value", "unit", "source", "date", "confidence")
_QUANTITIES = {"memory_bytes": "bytes", "memory_bytes_per_s": "bytes_per_s", "tdp_w": "power"}


def visible_bytes(label_gb: float, vendor: str) -> int:
    """Return the bytes a process is assumed to see of a part sold as `label_gb` GB.

    A label counts GiB: label x 2^30, less what NVIDIA's driver and ECC hold back.

    >>> visible_bytes(24, "NVIDIA") == int(24 * 2**30 * 0.975)
    True
    >>> visible_bytes(192, "AMD") == 192 * 2**30
    True
    """
    return int(label_gb * 2**30 * (NVIDIA_VISIBLE_SHARE if vendor == "NVIDIA" else 1.0))


@lru_cache(maxsize=1)
def load_chips() -> MappingProxyType[str, ChipSpec]:
    """Return every chip of the catalogue by id, in file order; read once, at the first call.

    Raises InferometerError for a value without unit, source or date.
    """
    return MappingProxyType(chips_from_rows(read_table("chips.csv", _COLUMNS)))


def chips_from_rows(rows: list[Row]) -> dict[str, ChipSpec]:
    """Return chips by id from rows of (chip, field, value, unit, source, date, confidence)."""
    grouped: dict[str, dict[str, Row]] = {}
    for row in rows:
        fields = grouped.setdefault(row["chip"], {})
        if row["field"] in fields:
            raise InferometerError(f"chips.csv: {row['chip']} gives {row['field']} twice")
        fields[row["field"]] = row
    return {ident: _chip(ident, fields) for ident, fields in grouped.items()}


def _chip(ident: str, rows: dict[str, Row]) -> ChipSpec:
    values: dict[str, Any] = {"id": ident, "peak_flops_per_s": {}}
    sources: dict[str, str] = {}
    assumed: list[str] = []
    for field, row in rows.items():
        name = _put(ident, values, field, row)
        if name is None:
            continue
        sources[name] = f"{row['source']}, {row['date']}"
        if row["confidence"] == "C":
            assumed.append(name)
    if "memory_bytes" not in values and (label := rows.get("memory_label")):
        values["memory_bytes"] = visible_bytes(float(label["value"]), values.get("vendor", ""))
        sources["memory_bytes"] = f"label {label['value']} GB of {label['source']}, {label['date']}, read as GiB"
        if values.get("vendor") == "NVIDIA":
            sources["memory_bytes"] += f" x {NVIDIA_VISIBLE_SHARE}"
        assumed.append("memory_bytes")
    return convert(f"chips.csv: {ident}", values | {"sources": sources, "assumed": assumed}, ChipSpec)


def _put(ident: str, values: dict[str, Any], field: str, row: Row) -> str | None:
    """Store one row; return the field's name in the spec, None where the row only serves others."""
    where = f"chips.csv: {ident}: {field}"
    if field == "memory_label":
        return None
    if field in _QUANTITIES:
        value = cell_quantity(where, row["value"], row["unit"], _QUANTITIES[field])
        values[field] = round(value) if field == "memory_bytes" else value
        return field
    if field == "units":
        if row["unit"] != "count":
            raise InferometerError(f"{where}: unit {row['unit']!r} where a count belongs")
        values[field] = float(row["value"])
        return field
    if field.startswith("peak."):
        kind = field.removeprefix("peak.")
        if kind not in PEAK_TYPES:
            raise unknown_name("arithmetic type", kind, PEAK_TYPES)
        values["peak_flops_per_s"][kind] = cell_quantity(where, row["value"], row["unit"], "flops_per_s")
        return f"peak_flops_per_s.{kind}"
    if row["unit"] != "text":
        raise InferometerError(f"{where}: unit {row['unit']!r} where text belongs")
    values[field] = split_names(row["value"]) if field == "aliases" else row["value"]
    return field


@lru_cache(maxsize=1)
def chip_index() -> MappingProxyType[str, str]:
    """Return normalised name -> chip id, aliases included."""
    return MappingProxyType(name_index("chip", ((c.id, c.aliases) for c in load_chips().values())))


def find_chip(name: str) -> ChipSpec:
    """Return the chip `name`: an id, an alias, or the path of a `.toml` or `.json` description.

    Raises UnknownNameError for a name that matches nothing, InferometerError for one that several ids begin with.

    >>> find_chip("h100").id
    'h100-sxm'
    """
    if is_file_name(name):
        return chip_file(name)
    ident = resolve("chip", name, chip_index())
    if ident is None:
        raise unknown_name("chip", name, [*load_chips(), *close_names(name, chip_index())])
    return load_chips()[ident]


def chip_file(path: str | Path) -> ChipSpec:
    """Return a user's own chip: `ChipSpec` fields in TOML or JSON, each in SI or as text with its unit.

    Needed: id, memory_bytes, memory_bytes_per_s, peak_flops_per_s. A file without `default_machine` gets a
    generic PCIe host. Raises InferometerError naming the file and the field.
    """
    return chip_from_table(str(path), read_user_file(path))


def chip_from_table(where: str, table: dict[str, Any]) -> ChipSpec:
    """Return the chip that `table` (as read from the file `where`) describes."""
    fields = in_si(where, table, _QUANTITIES)
    if "memory_bytes" in fields:
        fields["memory_bytes"] = round(fields["memory_bytes"])
    peaks = fields.get("peak_flops_per_s")
    if not isinstance(peaks, dict) or not peaks:
        raise InferometerError(f"{where}: peak_flops_per_s must be a table such as {{bf16 = '989 TFLOP/s'}}")
    for kind in peaks:
        if kind not in PEAK_TYPES:
            raise unknown_name("arithmetic type", str(kind), PEAK_TYPES)
    fields["peak_flops_per_s"] = {k: quantity(f"{where}: peak {k}", v, "flops_per_s") for k, v in peaks.items()}
    fields.setdefault("name", fields.get("id", ""))
    fields.setdefault("vendor", "user")
    if "default_machine" not in fields:
        fields["default_machine"] = GENERIC_MACHINE
        fields["assumed"] = [*fields.get("assumed", ()), "default_machine"]
    fields.setdefault("sources", dict.fromkeys(table, f"user file {where}"))
    return convert(where, fields, ChipSpec)
