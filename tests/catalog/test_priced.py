"""Every chip answers: a finite step, and where an arithmetic is missing what takes its place."""

import math

import pytest

from inferometer import estimate
from inferometer.catalog.chips import load_chips


@pytest.mark.parametrize("chip", load_chips().values(), ids=lambda c: c.id)
def test_one_chip_decodes(chip):
    priced = estimate("llama-3.1-8b", chip.id, batch=1, context=1, backend="roofline").estimate
    read = 2 * (8_030_261_248 - 128_256 * 4096)  # bf16 weights, all but the input embedding
    assert read / chip.memory_bytes_per_s <= priced.step_s < math.inf
    assert priced.feasible or priced.reasons[0].startswith("weights-do-not-fit")


@pytest.mark.parametrize(
    ("chip", "quant", "takes"),
    [
        ("t4", None, ("bf16->fp16",)),
        ("v100-32-sxm2", None, ("bf16->fp16",)),
        ("v100-32-sxm2", "fp8", ("bf16->fp16", "fp8->fp16")),
        ("arc-b60", "fp8", ("fp8->bf16",)),
        ("a100-80-pcie", "fp8", ("fp8->bf16",)),
        ("mi355x", "fp8", ()),
    ],
)
def test_a_missing_arithmetic_is_replaced_and_said(chip, quant, takes):
    given = {} if quant is None else {"quant": quant}
    priced = estimate("llama-3.1-8b", chip, batch=1, context=1, backend="roofline", **given).estimate
    assert priced.widened == takes
    for name in takes:
        wanted, taken = name.split("->")
        said = f"{chip} lacks {wanted} arithmetic: weights stay {wanted}, GEMMs run in {taken}"
        assert said in {note.text for note in priced.diagnostics}
