"""Sequences that the engine of a published row admits: its own rules of memory, those that `memory --engine` prints.

Rows of older versions are taken to have kept the newest rules (assumed).
"""

from inferometer.blocks.model import stage_layers
from inferometer.catalog.engine_memory import find_engine_memory
from inferometer.estimate.step import Problem
from inferometer.measurement.questions import Setup
from inferometer.memory.asked import Asked
from inferometer.memory.plan import Divider, Sharding
from inferometer.memory.solve import max_rounds


def divider_of(problem: Problem, setup: Setup) -> Divider:
    """Return what divides the memory of a setup, whatever the length of its sequences."""
    splits = stage_layers(problem.model, setup.sizes.pp, problem.engine.partition)
    asked = Asked(
        model=problem.model,
        chip=problem.machine.chip.id,
        visible_bytes=float(problem.machine.chip.memory_bytes),
        sizes=setup.sizes,
        splits=splits,
        rules=find_engine_memory(setup.engine),
        context=1,
        max_model_len=1,
    )
    return Divider(asked, (Sharding(setup.sizes, splits),))


def admitted(divider: Divider, length: int, most: int) -> int:
    """Return the sequences of an attention rank that fit at `length` tokens each: 0 to `most`."""
    own = divider.at_length(length)
    return most if own.plan(0, most * own.asked.ranks).fits else max_rounds(own, 0)
