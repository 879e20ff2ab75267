"""Rows about chips and models, from specs."""

import math
from typing import Any

from inferometer.blocks.params import count_params
from inferometer.memory.footprint import Reserve, kv_bytes_per_token
from inferometer.report.text import attention_text, ffn_text
from inferometer.specs.hardware import ChipSpec
from inferometer.specs.model import ModelSpec


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


def params_row(model: ModelSpec) -> dict[str, Any]:
    """Return the keys of PARAMS in `report.schema`."""
    counted = count_params(model)
    return {
        "model": model.name,
        "total_params": counted.total,
        "active_params": counted.active,
        "active_params_one_table": counted.active_one_table,
        "mtp_params": counted.mtp,
        "by_kind": dict(counted.by_kind),
        "checkpoint_bytes": counted.checkpoint_bytes,
        "unknown_keys": list(model.unknown_keys),
        "assumed": list(model.assumed),
    }
