"""Sequences that the engine of a published row admits: its own rules of memory, those that `memory --engine` prints."""

from inferometer.blocks.model import stage_layers
from inferometer.catalog.engine_memory import find_engine_memory
from inferometer.estimate.step import Problem
from inferometer.measurement.questions import Setup
from inferometer.memory.asked import Asked
from inferometer.memory.plan import Divider, Sharding
from inferometer.memory.solve import max_rounds


def admitted(problem: Problem, setup: Setup, length: int, most: int) -> int:
    """Return the sequences of an attention rank that fit at `length` tokens each: 0 to `most`."""
    asked = Asked(
        model=problem.model,
        chip=problem.machine.chip.id,
        visible_bytes=float(problem.machine.chip.memory_bytes),
        sizes=setup.sizes,
        splits=stage_layers(problem.model, setup.sizes.pp, problem.engine.partition),
        rules=find_engine_memory(setup.engine),
        context=length,
        max_model_len=length,
    )
    divider = Divider(asked, (Sharding(asked.sizes, asked.splits),))
    return most if divider.plan(0, most * asked.ranks).fits else max_rounds(divider, 0)
