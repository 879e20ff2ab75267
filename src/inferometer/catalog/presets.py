"""Model presets: published configs by short name. They are data; `ingest` gives them meaning."""

import json
import re
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from inferometer.catalog.names import name_index, normalise, resolve
from inferometer.catalog.tables import read_data
from inferometer.errors import InferometerError, unknown_name

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CONFIG = ',"config":'
"""What follows the names in a row: a row is read in full only when its preset is asked for."""


class Preset(NamedTuple):
    """A published model: its config as on the hub, less keys that say nothing about shape or format."""

    id: str
    config: dict[str, Any]
    quant_sidecar: dict[str, Any] | None
    """The repository's `hf_quant_config.json`, where it has one."""
    source: str
    hub: str
    """`org/name` on the hub."""
    assumed: tuple[str, ...] = ()
    """What the config rests on where it is not the published file."""


class _Entry(NamedTuple):
    id: str
    aliases: tuple[str, ...]
    hub: str
    line: str


@lru_cache(maxsize=1)
def _entries() -> MappingProxyType[str, _Entry]:
    out: dict[str, _Entry] = {}
    for line in read_data("models/models.jsonl").splitlines():
        head = json.loads(line.partition(_CONFIG)[0] + "}")
        if head["id"] in out:
            raise InferometerError(f"models.jsonl: {head['id']} appears twice")
        out[head["id"]] = _Entry(head["id"], tuple(head["aliases"]), head["hub"], line)
    return MappingProxyType(out)


@lru_cache(maxsize=1)
def preset_index() -> MappingProxyType[str, str]:
    """Return normalised name -> preset id; aliases and hub ids (`org/name`) included."""
    return MappingProxyType(name_index("model", ((e.id, (e.hub, *e.aliases)) for e in _entries().values())))


def preset_ids() -> tuple[str, ...]:
    """Return the ids of the presets, sorted."""
    return tuple(sorted(_entries()))


def preset_config(name: str) -> Preset:
    """Return the preset `name` (an id, an alias or a hub id); a new copy at each call.

    Raises UnknownNameError for a name that matches nothing, InferometerError for one that several ids begin with.

    >>> preset_config("kimi-k2").config["n_routed_experts"]
    384
    """
    ident = resolve("model", name, preset_index())
    if ident is None:
        check_described(name)
        raise unknown_name("model preset", name, preset_index())
    row = json.loads(_entries()[ident].line)
    sidecar = row["quant_sidecar"]
    return Preset(
        id=ident,
        config=expand(_config_of(row)),
        quant_sidecar=None if sidecar is None else expand(sidecar),
        source=row["source"],
        hub=row["hub"],
        assumed=tuple(row.get("assumed", ())),
    )


def check_described(name: str) -> None:
    """Refuse, with the reason, a released model of which no config was found.

    Raises InferometerError for such a name; nothing for any other.
    """
    for line in read_data("models/undescribed.csv").splitlines()[1:]:
        names, _, why = line.partition(",")
        if normalise(name) in names.split(" "):
            raise InferometerError(f"{name}: no preset: {why}")


def _config_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row's config: its own, or another row's with some keys changed."""
    config: dict[str, Any] = row["config"]
    if "same_as" not in row:
        return config
    base: dict[str, Any] = json.loads(_entries()[row["same_as"]].line)["config"]
    return base | config


def expand(value: Any) -> Any:
    """Return JSON data with each key and listed string such as `layers.{0..2}.gate` written out once a number.

    >>> expand({"ignore": ["lm_head", "layers.{0..2}.gate"]})
    {'ignore': ['lm_head', 'layers.0.gate', 'layers.1.gate', 'layers.2.gate']}
    >>> expand({"layers.{0..1}.up": {"bits": 4}})
    {'layers.0.up': {'bits': 4}, 'layers.1.up': {'bits': 4}}
    """
    if isinstance(value, dict):
        return {name: expand(v) for k, v in value.items() for name in _numbered(k)}
    if isinstance(value, list):
        return [e for item in value for e in (_numbered(item) if isinstance(item, str) else [expand(item)])]
    return value


def _numbered(text: str) -> list[str]:
    match = _RANGE.search(text)
    if match is None:
        return [text]
    first, last = int(match[1]), int(match[2])
    rest = _numbered(text[match.end() :])
    return [f"{text[: match.start()]}{n}{end}" for n in range(first, last + 1) for end in rest]
