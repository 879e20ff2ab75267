"""An engine by name: what it can run, and how it divides memory."""

from typing import NamedTuple

import msgspec

from inferometer.catalog.engine_kernels import kernels_of
from inferometer.catalog.engine_memory import find_engine_memory
from inferometer.catalog.loader import find_engine, load_engines
from inferometer.errors import InferometerError, UnknownNameError
from inferometer.specs.deployment import EngineSpec
from inferometer.specs.hardware import ChipSpec
from inferometer.specs.memory import EngineMemory

DEFAULT_ENGINE = "ideal"


class Engine(NamedTuple):
    """One engine in one version."""

    spec: EngineSpec
    """What it can run; of an engine whose rules nobody wrote down, everything."""
    rules: EngineMemory
    full: str
    """Name, with the version asked for."""

    def check_chip(self, chip: ChipSpec) -> None:
        """Raise InferometerError for a chip that the engine has no support for."""
        rules, vendor = self.rules, chip.vendor
        if rules.supports(vendor, chip.id):
            return
        through = [f"{name} (through {what})" for name, what in rules.plugs_in.items()]
        where = ", ".join((*rules.runs_on, *through))
        raise InferometerError(f"--engine {rules.name} does not run on {chip.id} ({vendor}); it runs on {where}")

    @property
    def allocates(self) -> bool:
        """Whether it has an allocator of its own; the ideal engine has none."""
        return self.rules.name != DEFAULT_ENGINE


def engine_of(given: str | None, assumed: dict[str, str], *, priced: bool = False) -> Engine:
    """Return an engine's rules of sharding and of memory; what nobody said of them is added to `assumed`.

    Without a version it is the one whose sharding rules are known. A version whose sharding rules are not known takes
    those of the same engine, unless time is to be `priced` by them; an engine without any keeps the model's own.
    Raises UnknownNameError for a name that is none, InferometerError for a version that is none.
    """
    name = given or DEFAULT_ENGINE
    if given is None:
        assumed["engine"] = name
    base, _, version = name.strip().lower().partition("@")
    try:
        spec = find_engine(name)
    except UnknownNameError:
        find_engine_memory(name)
        known = [one for one in load_engines().values() if one.name == base]
        if known and priced:
            raise
        spec = find_engine(base) if known else EngineSpec(name=base, version=version)
        assumed["sharding rules"] = f"of {spec.id}" if known else f"the model's ({base}'s are not known)"
    full = f"{base}@{version or spec.version}" if version or spec.version else base
    spec = msgspec.structs.replace(spec, kernels=kernels_of(base))
    rules = find_engine_memory(full)
    if rules.id != full:
        assumed["memory rules"] = f"of {rules.id} on"
    return Engine(spec, rules, full)


def check_ideal(engine: Engine, *, conv_state: bool | None, cut_latents: bool | None) -> None:
    """Refuse, beside a named engine, what none does: to cut projections to latents, to keep no convolution's state."""
    given = {"--no-conv-state": conv_state is False, "--cut-latents": bool(cut_latents)}
    asked = [name for name, wanted in given.items() if wanted]
    if asked and engine.allocates:
        raise InferometerError(f"{' and '.join(asked)} is no rule of {engine.full}: leave it or --engine out")
