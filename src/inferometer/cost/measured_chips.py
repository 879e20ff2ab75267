"""The chips that aiconfigurator-core has tables of, at the rates they were timed at."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from inferometer.specs.hardware import ChipSpec


class TimedChip(NamedTuple):
    """A chip whose kernels were timed."""

    generation: str
    memory_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]


TIMED_CHIPS = {
    "a100-80-sxm": TimedChip("ampere", 2.039e12, {"bf16": 312e12}),
    "h100-sxm": TimedChip("hopper", 3.35e12, {"bf16": 989e12, "fp8": 1979e12}),
    "h200-sxm": TimedChip("hopper", 4.8e12, {"bf16": 989e12, "fp8": 1979e12}),
    "b200-sxm": TimedChip("blackwell", 7.7e12, {"bf16": 2250e12, "fp8": 4500e12, "fp4": 9000e12}),
    "b300-sxm": TimedChip("blackwell", 7.75e12, {"bf16": 2250e12, "fp8": 4500e12, "fp4": 13500e12}),
    "gb200-nvl72": TimedChip("blackwell", 8e12, {"bf16": 2500e12, "fp8": 5000e12, "fp4": 10000e12}),
    "gb300-nvl72": TimedChip("blackwell", 8e12, {"bf16": 2500e12, "fp8": 5000e12, "fp4": 15000e12}),
    "l40s": TimedChip("ada", 0.864e12, {"bf16": 362e12, "fp8": 733e12}),
    "rtxpro6000-server": TimedChip("blackwell-pro", 1.792e12, {"bf16": 467.8e12, "fp8": 935.6e12, "fp4": 1871.2e12}),
}
"""Catalogue id -> what was timed; the catalogue's rates, which a test holds these against. A chip of that name at other
rates (`--what-if`) takes the same shares of its own: so no time rises when a rate does."""


def timed_chip(chip: ChipSpec) -> ChipSpec:
    """Return a chip at the rates of the one that was timed."""
    own = TIMED_CHIPS[chip.id]
    return msgspec.structs.replace(
        chip, memory_bytes_per_s=own.memory_bytes_per_s, peak_flops_per_s=dict(own.peak_flops_per_s)
    )
