"""Which arithmetic a stored format feeds on a chip, and the one line where there is none."""

import pytest

from inferometer import estimate
from inferometer.catalog.chips import find_chip
from inferometer.errors import InferometerError
from inferometer.estimate.precision import resolve_dtype


def test_the_narrowest_type_of_the_ladder_that_the_chip_has_is_taken() -> None:
    assert resolve_dtype("fp8", find_chip("h200-sxm")) == "fp8"
    assert resolve_dtype("fp8", find_chip("a100-sxm-80gb")) == "bf16"
    assert resolve_dtype("nvfp4", find_chip("h200-sxm")) == "fp8"


def test_a_chip_without_any_type_of_the_ladder_is_named_with_what_it_has_and_what_to_do() -> None:
    with pytest.raises(InferometerError, match=r"no arithmetic for fp32 \(needs fp32; has bf16, fp8\); --quant"):
        resolve_dtype("fp32", find_chip("tpu-v7x"))


def test_weight_only_kernels_skip_the_8_bit_rungs() -> None:
    assert resolve_dtype("nvfp4", find_chip("h200-sxm"), weight_only=True) == "bf16"
    assert resolve_dtype("nvfp4", find_chip("b200-sxm"), weight_only=True) == "fp4"
    assert resolve_dtype("fp8", find_chip("h200-sxm"), weight_only=True) == "fp8"


def test_an_engine_decides_what_unpacked_weights_are_multiplied_in() -> None:
    ideal = estimate("qwen3-8b", "h200", quant="nvfp4", batch=1, backend="roofline").estimate
    vllm = estimate("qwen3-8b", "h200", quant="nvfp4", batch=1, backend="roofline", engine="vllm@0.24").estimate
    assert (ideal.widened, vllm.widened) == (("nvfp4->fp8",), ("nvfp4->bf16",))


def ways_to_unpack(chip: str, quant: str, **more: str) -> dict[str, set[str]]:
    """Plan of each `unpack` taken, with the plans it beat."""
    priced = estimate("qwen3-8b", chip, quant=quant, batch=4, backend="roofline", **more).estimate
    return {c.plan: set(c.beaten_s) for c in priced.choices if c.name == "unpack"}


def test_kernels_that_unpack_are_priced_against_a_pass_apart() -> None:
    assert ways_to_unpack("a100-80gb", "fp8") == {"in-kernel": {"apart"}}
    assert ways_to_unpack("h200", "fp8") == {}
    assert ways_to_unpack("t4", "int4-g128") == {}  # no chip multiplies int4: its kernels unpack by design


def test_unpacking_apart_writes_the_weights_wide_and_reads_them_again() -> None:
    given = {"quant": "fp8", "batch": 4, "backend": "roofline", "scheduler": "serial"}
    inside = estimate("qwen3-8b", "a100-80gb", **given).estimate
    apart = estimate("qwen3-8b", "a100-80gb", choice="unpack=apart", **given).estimate
    params = 36 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 12288 * 4096)
    written, read = 2 * params, 2 * params
    bandwidth = find_chip("a100-80gb").memory_bytes_per_s
    assert apart.step_s - inside.step_s == pytest.approx((written + read) / bandwidth, rel=1e-3)
    assert {note.name for note in apart.diagnostics} >= {"dtype-widened", "weights-unpacked"}
    assert "weights-unpacked" not in {note.name for note in inside.diagnostics}


def test_16_bit_weights_on_a_chip_with_the_other_16_bit_type_are_not_unpacked() -> None:
    priced = estimate("qwen3-8b", "t4", batch=1, backend="roofline").estimate
    assert priced.widened == ("bf16->fp16",)
    assert "unpack" not in {choice.name for choice in priced.choices}
