"""Which kernels an engine runs, with the source of every statement."""

import tomllib
from functools import lru_cache
from types import MappingProxyType

from inferometer.catalog.tables import read_data
from inferometer.catalog.userfile import convert
from inferometer.errors import InferometerError
from inferometer.specs.block import Spec
from inferometer.specs.deployment import NO_KERNELS, Kernels

FILE = "engine_kernels.toml"

STATED = ("families", "launches", "reduced")
"""What is said of an engine, each with its source."""


class Stated(Spec, frozen=True, kw_only=True):
    """One engine of the file."""

    name: str
    families: tuple[str, ...] = ()
    launches: dict[str, float] = {}
    reduced: tuple[str, ...] = ()
    sources: dict[str, str] = {}


@lru_cache(maxsize=1)
def load_kernels() -> MappingProxyType[str, Kernels]:
    """Return engine -> its kernels; raises InferometerError for a statement without source."""
    found = {}
    for table in tomllib.loads(read_data(FILE))["engine"]:
        own = convert(f"{FILE}: {table.get('name')}", table, Stated)
        if missing := [name for name in STATED if getattr(own, name) and not own.sources.get(name)]:
            raise InferometerError(f"{FILE}: {own.name}: no source for {', '.join(missing)}")
        found[own.name] = Kernels(**{name: getattr(own, name) for name in STATED})
    return MappingProxyType(found)


def kernels_of(engine: str) -> Kernels:
    """Return the kernels that an engine runs; those of none in particular where nobody wrote them down.

    >>> kernels_of("trtllm").families[0], kernels_of("ideal") == Kernels()
    ('xqa', True)
    """
    return load_kernels().get(engine, NO_KERNELS)
