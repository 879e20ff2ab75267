"""Which arithmetic a stored format feeds on a chip, and the one line where there is none."""

import pytest

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
