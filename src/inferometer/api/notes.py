"""What to know about an answer that no single estimate can say: lengths, prices, how far the band holds."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from inferometer.cost.calibrated import Calibrated
from inferometer.cost.roofline import BAND_FILE
from inferometer.estimate.result import Diagnostic, Estimate
from inferometer.estimate.step import Problem
from inferometer.memory.asked import Asked
from inferometer.specs.hardware import ChipSpec
from inferometer.specs.memory import EngineMemory
from inferometer.specs.model import ModelSpec


def noted(problem: Problem, priced: Estimate, price_note: str) -> Estimate:
    """Return the estimate with these notes among its diagnostics."""
    return replace(priced, diagnostics=(*priced.diagnostics, *_notes(problem, price_note)))


def beyond_context(model: ModelSpec, tokens: int, change: str) -> Iterator[Diagnostic]:
    """Say where sequences grow longer than the model's config states."""
    if tokens > model.max_context:
        text = f"sequences reach {tokens} tokens, {model.name} states {model.max_context}; shorten {change}"
        yield Diagnostic(name="beyond-context", text=text)


def of_engine(rules: EngineMemory, chip: ChipSpec, *, eager: bool = False) -> Iterator[Diagnostic]:
    """Say where an engine runs on a chip only through a plug-in, and what of it changes nothing."""
    if through := rules.through(chip.vendor, chip.id):
        text = f"{rules.name} runs on {chip.id} through {through}, whose memory may differ from the rules of its own"
        yield Diagnostic(name="engine-plugged-in", text=text)
    if eager and not rules.graph_bytes_per_layer:
        yield Diagnostic(name="eager-for-nothing", text=f"{rules.name} captures no graphs: leave --enforce-eager out")


def _notes(problem: Problem, price_note: str) -> Iterator[Diagnostic]:
    yield from beyond_context(problem.model, problem.max_length, "--isl or --osl")
    if problem.asked is not None:
        yield from of_engine(problem.asked.rules, problem.machine.chip, eager=problem.asked.eager)
        yield from _untimed(problem.asked)
    if price_note:
        name = "price-assumed" if price_note.startswith("assumed") else "no-price"
        yield Diagnostic(name=name, text=price_note.removeprefix("assumed: "))
    yield from _of_another(problem)
    chip = problem.machine.chip.id
    reached = slowest_runs().get(chip, 0.0) if problem.backend.name == "roofline" else 0.0
    if reached > problem.backend.band().high:
        high = problem.backend.band().high
        text = f"the band ends at x{high:.3g}, p90 of all chips' runs; on {chip} published runs reach x{reached:.3g}"
        yield Diagnostic(name="band-too-narrow", text=text)


def _untimed(asked: Asked) -> Iterator[Diagnostic]:
    """Say what was counted in memory and not in time."""
    counted = {
        "weights on the host, which cross its link in every pass": asked.offload_bytes,
        "LoRA adapters": asked.adapters,
        "kernels started one by one": asked.eager,
    }
    if found := [what for what, given in counted.items() if given]:
        yield Diagnostic(name="not-in-time", text=f"memory counts it, the time does not: {'; '.join(found)}")


def _of_another(problem: Problem) -> Iterator[Diagnostic]:
    """Say where a calibration comes from another model or chip than the one asked for."""
    own = problem.backend.calibration if isinstance(problem.backend, Calibrated) else None
    if own is None:
        return
    asked = {"model": problem.model.name, "chip": problem.machine.chip.id}
    others = [f"{getattr(own, what)}, not {name}" for what, name in asked.items() if getattr(own, what) != name]
    if others:
        yield Diagnostic(
            name="calibration-of-another", text=f"its runs are of {' and '.join(others)}; run it and add it"
        )


@cache
def slowest_runs() -> Mapping[str, float]:
    """Return chip -> p90 of measured over roofline time, of its slowest series of published runs.

    >>> slowest_runs()["mi300x"] > 10
    True
    """
    series = json.loads(BAND_FILE.read_text(encoding="utf-8"))["series"]
    found: dict[str, float] = {}
    for name, spread in series.items():
        chip = name.rpartition(", ")[2]
        found[chip] = max(found.get(chip, 0.0), float(spread["p90"]))
    return MappingProxyType(found)
