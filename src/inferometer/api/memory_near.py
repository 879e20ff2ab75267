"""Where something does not fit: what would, with one thing changed, each computed by the same plan."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from inferometer.api.legal_sizes import legal_sizes
from inferometer.api.load import in_formats, load_machine
from inferometer.api.memory_ask import Question, broken
from inferometer.blocks.model import stage_layers
from inferometer.errors import InferometerError
from inferometer.memory.plan import plan
from inferometer.memory.solve import max_batch, max_context, most
from inferometer.report.text import sizes_flag

MOST_CHIPS = 1024
"""Chips up to which a machine that holds the model is looked for."""


def nearest(question: Question) -> Iterator[str]:
    """Yield what would fit with one thing changed: context, batch, formats, chips; each computed by the same plan."""
    if not broken(question):
        yield from _less(question)
        yield from _fewer_layers(question)
        yield from _narrower(question)
    yield from _more_chips(question)


def _less(question: Question) -> Iterator[str]:
    asked = question.asked
    tokens = max_context(asked, serve=question.serves)
    if 0 < tokens < asked.context:
        yield f"--context {tokens}"
    elif not question.serves:
        tokens = max_context(asked, serve=True)
        if 0 < tokens < asked.max_model_len:
            yield f"--max-model-len {tokens}"
    sequences = max_batch(asked)
    if 0 < sequences < asked.batch:
        yield f"--batch-size {sequences}"


def _fewer_layers(question: Question) -> Iterator[str]:
    asked = question.asked
    if asked.rules.splits_layers and asked.gpu_layers is None:
        layers = most(lambda n: plan(replace(asked, gpu_layers=n)).fits, len(asked.model.layers))
        if layers:
            yield f"--n-gpu-layers {layers}"


def _narrower(question: Question) -> Iterator[str]:
    before = sum(plan(question.asked).tightest.weights_bytes.values())
    for scheme in question.asked.rules.schemes:
        model = in_formats(question.plain, scheme, None)
        tried = plan(replace(question.asked, model=model))
        if tried.fits and sum(tried.tightest.weights_bytes.values()) < before:
            yield f"--quant {scheme}"
            return


def _more_chips(question: Question) -> Iterator[str]:
    machine, asked = question.machine, question.asked
    n = machine.fabric.n_chips
    while (n := 2 * n) <= MOST_CHIPS:
        try:
            larger = load_machine(machine.product or machine.chip.id, None, n)
            if larger.chip.id != machine.chip.id:
                return
            larger = msgspec.structs.replace(larger, chip=machine.chip)
            given = {r: s for r, s in question.given.items() if r not in ("tp", "ep", "etp")}
            sizes = legal_sizes(asked.model, given, n)
        except InferometerError:
            return
        splits = stage_layers(asked.model, sizes.pp, question.spec.partition)
        tried = replace(question, machine=larger, asked=replace(asked, sizes=sizes, splits=splits))
        if not broken(tried) and plan(tried.asked).fits:
            yield f"{n} chips: {machine.chip.id} {larger.name}, {sizes_flag(sizes)}"
            return
