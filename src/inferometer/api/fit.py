"""Does it fit here: the accelerators of this machine, and the answer for each."""

import re
from dataclasses import dataclass, replace
from typing import Unpack

from inferometer.api.memory import answer
from inferometer.api.memory_ask import MemorySettings, ask, broken
from inferometer.api.memory_near import nearest
from inferometer.catalog.loader import load_chips
from inferometer.ingest.devices import Device, Sources, find_devices, host_memory
from inferometer.memory.plan import plan
from inferometer.memory.solve import max_batch, max_context
from inferometer.report.fit import Fit
from inferometer.specs.hardware import Axis, ChipSpec, Fabric, Machine
from inferometer.specs.model import ModelSpec

SAME_MEMORY = 0.06
"""Relative difference up to which a device's memory may be that of a chip of its name."""

LOOKED = "NVIDIA (nvidia-ml-py, nvidia-smi), AMD (/sys/class/drm), Apple (sysctl)"


@dataclass(frozen=True, kw_only=True)
class Fits:
    """The answers for this machine; empty where nothing was found."""

    fits: tuple[Fit, ...]
    looked: str = LOOKED


def fit(model: ModelSpec | str, sources: Sources | None = None, **settings: Unpack[MemorySettings]) -> Fits:
    """Return, for each accelerator of this machine alone, whether the model fits in all of it and in what is free.

    Engines that put layers on the host are also answered for its RAM. Settings are those of `memory`; raises
    InferometerError as it does.
    """
    where = sources or Sources()
    devices = find_devices(where)
    # A question on any chip says what the engine can do.
    rules = ask(model, machine_of(_nowhere()), {}, settings).asked.rules
    host = host_memory(where) if rules.splits_layers else None
    found = [*devices, *([host] if host else [])]
    return Fits(fits=tuple(_fit(model, device, settings) for device in found))


def _fit(model: ModelSpec | str, device: Device, settings: MemorySettings) -> Fit:
    question = ask(model, machine_of(device), {}, settings)
    question = replace(question, asked=replace(question.asked, unified=device.vendor in ("Apple", "CPU")))
    whole = answer(question)
    free = replace(question.asked, visible_bytes=float(max(device.free_bytes, 1)))
    legal = not broken(question)
    return Fit(
        device=device.name,
        vendor=device.vendor,
        source=device.source,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        fits_now=legal and plan(free).fits,
        max_batch=max_batch(question.asked) if legal else 0,
        max_context=max_context(question.asked, serve=question.serves) if legal else 0,
        memory=whole if whole.fits else replace(whole, nearest=tuple(nearest(question))),
    )


def _nowhere() -> Device:
    return Device(name="none", vendor="", total_bytes=1 << 40, free_bytes=1 << 40, source="")


def machine_of(device: Device) -> Machine:
    """Return one device as a machine: the chip of its name with the memory found, or one made up of what is known."""
    chip = known_chip(device)
    if chip is None:
        ident = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or "device"
        chip = ChipSpec(
            id=ident,
            name=device.name,
            vendor=device.vendor,
            memory_bytes=device.total_bytes,
            memory_bytes_per_s=1.0,
            peak_flops_per_s={},
            default_machine="",
        )
    else:
        chip = _with_memory(chip, device.total_bytes)
    axis = Axis(name="host", geometry="pcie", size=1, bytes_per_s=1.0, latency_s=0.0)
    return Machine(chip=chip, fabric=Fabric(axes=(axis,)), label="1")


def _with_memory(chip: ChipSpec, memory_bytes: int) -> ChipSpec:
    fields = {name: getattr(chip, name) for name in chip.__struct_fields__}
    return ChipSpec(**fields | {"memory_bytes": memory_bytes})


def known_chip(device: Device) -> ChipSpec | None:
    """Return the catalogue's chip with the numbers of a device's name and about its memory; None where none is so.

    >>> gib = 2**30
    >>> one = Device(name="NVIDIA H100 80GB HBM3", vendor="NVIDIA", total_bytes=81559 * 2**20, free_bytes=0, source="")
    >>> known_chip(one).id
    'h100-sxm'
    """
    words = _models(device.name)
    alike = [
        chip
        for chip in load_chips().values()
        if chip.vendor == device.vendor
        and words
        and words <= _models(f"{chip.name} {chip.id}")
        and abs(chip.memory_bytes / device.total_bytes - 1) < SAME_MEMORY
    ]
    return min(alike, key=lambda chip: abs(chip.memory_bytes - device.total_bytes), default=None)


def _models(name: str) -> set[str]:
    """Return the words of a name that have a digit and are no size or kind of memory: h100, 4090, mi300x."""
    words = re.findall(r"[a-z]*\d[a-z0-9]*", name.lower())
    return {
        word
        for word in words
        if not re.fullmatch(r"\d+g?b?|hbm\w+|sxm\w*|gddr\w+", word) or re.fullmatch(r"\d{4}", word)
    }
