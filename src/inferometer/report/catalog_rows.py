"""Rows about chips and models, from specs."""

import math
from collections.abc import Iterable
from typing import Any

from inferometer.blocks.params import LayerRun, ParamCount, count_params, layer_runs
from inferometer.errors import InferometerError, unknown_name
from inferometer.memory.footprint import Reserve, kv_bytes_per_token
from inferometer.report.kinds import attention_text, ffn_text, layer_text
from inferometer.specs.checkpoint import Checkpoint
from inferometer.specs.hardware import ChipSpec, Level, MachineSpec, Price
from inferometer.specs.model import ModelSpec
from inferometer.units import parse_quantity


def least_chips(weights_bytes: float, chip: ChipSpec, reserve: Reserve) -> int:
    """Return ceil(weights / room of a chip): the least number that holds the weights, no KV, evenly cut.

    A sharding may need more, where it copies weights or where its sizes must divide heads.
    """
    visible = float(chip.memory_bytes)
    return math.ceil(weights_bytes / (visible - reserve.of(visible)))


def chip_row(chip: ChipSpec, price: tuple[float | None, str], least: int | None) -> dict[str, Any]:
    """Return the keys of CHIP in `report.schema`."""
    return {
        "chip": chip.id,
        "name": chip.name,
        "vendor": chip.vendor,
        "memory_bytes": chip.memory_bytes,
        "memory_bytes_per_s": chip.memory_bytes_per_s,
        "peak_flops_per_s": dict(chip.peak_flops_per_s),
        "tdp_w": chip.tdp_w,
        "default_machine": chip.default_machine,
        "usd_per_chip_hour": price[0],
        "price_source": price[1],
        "assumed": list(chip.assumed),
        "least_chips": least,
    }


SORTS: dict[str, tuple[str, bool]] = {
    "chip": ("chip", False),
    "vendor": ("vendor", False),
    "memory": ("memory_bytes", True),
    "memory_bytes": ("memory_bytes", True),
    "bandwidth": ("memory_bytes_per_s", True),
    "hbm_bandwidth": ("memory_bytes_per_s", True),
    "memory_bytes_per_s": ("memory_bytes_per_s", True),
    "tdp": ("tdp_w", False),
    "tdp_w": ("tdp_w", False),
    "price": ("usd_per_chip_hour", False),
    "usd_per_chip_hour": ("usd_per_chip_hour", False),
    "least_chips": ("least_chips", False),
}
"""What --sort takes beside peak.DTYPE -> key of a chip row, and whether the largest comes first."""


def sorted_chips(rows: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return chip rows in the order of a field, the best first; those without a value are last.

    Raises UnknownNameError for a field that no chip has.
    """
    peaks = {f"peak.{dtype}": dtype for row in rows for dtype in row["peak_flops_per_s"]}
    name = by.lower()
    if name not in SORTS and name not in peaks:
        raise unknown_name("field in --sort", by[:40], [*SORTS, *peaks])
    key, largest = SORTS.get(name, ("", True))

    def value(row: dict[str, Any]) -> Any:
        return row["peak_flops_per_s"].get(peaks[name]) if name in peaks else row[key]

    known = [row for row in rows if value(row) is not None]
    return sorted(known, key=value, reverse=largest) + [row for row in rows if value(row) is None]


def chosen_chips(chips: Iterable[ChipSpec], vendor: str | None, min_memory: str | None) -> list[ChipSpec]:
    """Return the chips of a vendor that have at least `min_memory` (text with its unit) of visible memory."""
    listed = list(chips)
    if vendor is not None:
        if not any(chip.vendor.lower() == vendor.lower() for chip in listed):
            raise unknown_name("vendor", vendor[:40], (chip.vendor.lower() for chip in listed))
        listed = [chip for chip in listed if chip.vendor.lower() == vendor.lower()]
    if min_memory is None:
        return listed
    try:
        least_bytes = parse_quantity(min_memory, "bytes")
    except InferometerError as error:
        raise InferometerError(f"--min-memory: {error}") from None
    return [chip for chip in listed if chip.memory_bytes >= least_bytes]


def full_chip_row(
    chip: ChipSpec, price: tuple[float | None, str], least: int | None, machine: MachineSpec, prices: Iterable[Price]
) -> dict[str, Any]:
    """Return the keys of CHIP_IN_FULL in `report.schema`; `machine` is the one that a bare AxB builds on."""
    return chip_row(chip, price, least) | {
        "default_machine": machine.id,
        "aliases": list(chip.aliases),
        "sources": dict(chip.sources),
        "links": [_link(machine, level) for level in machine.levels],
        "prices": [
            {
                "usd_per_chip_hour": one.usd_per_chip_hour,
                "provider": one.provider,
                "tier": one.tier,
                "region": one.region,
                "instance": one.instance,
                "date": one.date,
                "source": one.source,
            }
            for one in prices
        ],
    }


def _link(machine: MachineSpec, level: Level) -> dict[str, Any]:
    fields = ("bytes_per_s", "latency_s")
    return {
        "level": level.name,
        "geometry": level.geometry,
        "max_size": level.max_size,
        "bytes_per_s": level.bytes_per_s,
        "latency_s": level.latency_s,
        "multicast": level.multicast,
        "reduces": level.reduces,
        "assumed": [field for field in fields if f"{level.name}.{field}" in machine.assumed],
        "sources": {f: machine.sources[f"{level.name}.{f}"] for f in fields if f"{level.name}.{f}" in machine.sources},
    }


def model_row(model: ModelSpec) -> dict[str, Any]:
    """Return the keys of MODEL in `report.schema`."""
    counted = count_params(model)
    return {
        "model": model.name,
        "architecture": model.architecture,
        "total_params": counted.total,
        "active_params": counted.active,
        "layers": len(model.layers),
        "attention": attention_text(model),
        "ffn": ffn_text(model),
        "checkpoint_bytes": counted.checkpoint_bytes,
        "kv_bytes_per_token": kv_bytes_per_token(model),
        "max_context": model.max_context,
        "source": model.source,
    }


def params_row(model: ModelSpec, stored: Checkpoint | None = None) -> dict[str, Any]:
    """Return the keys of PARAMS in `report.schema`; `stored` is what files beside the config hold."""
    counted = count_params(model)
    files = None if stored is None else _files(counted, stored)
    held = counted.checkpoint_bytes if files is None else files["stored_bytes"] - files["mtp_bytes"]
    return {
        "model": model.name,
        "total_params": counted.total,
        "active_params": counted.active,
        "active_params_one_table": counted.active_one_table,
        "mtp_params": counted.mtp,
        "by_kind": dict(counted.by_kind),
        "by_dtype": dict(counted.by_dtype),
        "checkpoint_bytes": held,
        "bytes_by_kind": dict(counted.bytes_by_kind),
        "layers": [_run(model, run) for run in layer_runs(model)],
        "files": files,
        "unknown_keys": list(model.unknown_keys),
        "assumed": list(model.assumed),
    }


def _run(model: ModelSpec, run: LayerRun) -> dict[str, Any]:
    return {
        "first": run.first,
        "last": run.last,
        "kind": layer_text(model, run.layer),
        "mixer_params": run.mixer_params,
        "ffn_params": run.ffn_params,
        "other_params": run.other_params,
        "stored_bytes": run.stored_bytes,
    }


def _files(counted: ParamCount, stored: Checkpoint) -> dict[str, Any]:
    """Return the keys of FILES: a checkpoint on disk held against what its config says."""
    kinds, ours = dict(stored.bytes_by_kind), counted.bytes_by_kind
    mtp = kinds.pop("mtp", 0)
    names = [*ours, *(kind for kind in kinds if kind not in ours)] if kinds else []
    differs = {kind: kinds.get(kind, 0) - ours.get(kind, 0) for kind in names}
    return {
        "files": stored.files,
        "tensors": stored.tensors,
        "stored_bytes": stored.stored_bytes,
        "mtp_bytes": mtp,
        "derived_bytes": counted.checkpoint_bytes,
        "bytes_by_kind": kinds,
        "difference_by_kind": {kind: more for kind, more in differs.items() if more},
    }
