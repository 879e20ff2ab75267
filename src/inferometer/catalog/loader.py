"""The catalogue's front: sourced chips, machines, prices, engines and model presets, read when first asked for."""

from inferometer.catalog.chips import chip_file, find_chip, load_chips
from inferometer.catalog.engines import find_engine, load_engines
from inferometer.catalog.machines import find_machine, load_machines, machine_file
from inferometer.catalog.presets import Preset, preset_config, preset_ids
from inferometer.catalog.prices import Quote, chips_billed, default_price, load_prices, need_of, prices_for, quote
from inferometer.catalog.slices import build_machine, subject

__all__ = [
    "Preset",
    "Quote",
    "build_machine",
    "chip_file",
    "chips_billed",
    "default_price",
    "find_chip",
    "find_engine",
    "find_machine",
    "load_chips",
    "load_engines",
    "load_machines",
    "load_prices",
    "machine_file",
    "need_of",
    "preset_config",
    "preset_ids",
    "prices_for",
    "quote",
    "subject",
]
