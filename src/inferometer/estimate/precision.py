"""Which arithmetic each stored format feeds on a chip, and what had to be widened."""

from typing import NamedTuple

from inferometer.blocks.params import all_tensors
from inferometer.errors import InferometerError
from inferometer.specs.formats import find_format
from inferometer.specs.hardware import ChipSpec
from inferometer.specs.model import ModelSpec


class Precision(NamedTuple):
    """Formats resolved against a chip."""

    dtypes: dict[str, str]
    """Format name -> arithmetic type of its GEMMs."""
    core_dtype: str
    """Arithmetic type of attention cores: the model's dtype, resolved."""
    widened: tuple[str, ...]
    """`format->dtype` where the chip lacks the narrowest type."""


def resolve_dtype(name: str, chip: ChipSpec) -> str:
    """Return the narrowest arithmetic type of format `name`'s ladder that the chip has.

    Raises InferometerError where the chip has none of them.
    """
    ladder = find_format(name).compute
    for dtype in ladder:
        if dtype in chip.peak_flops_per_s:
            return dtype
    has = ", ".join(sorted(chip.peak_flops_per_s))
    needs = " or ".join(ladder)
    why = f"{chip.id} has no arithmetic for {name} (needs {needs}; has {has})"
    raise InferometerError(f"{why}; --quant stores it as another")


def resolve_precision(model: ModelSpec, chip: ChipSpec) -> Precision:
    """Return the arithmetic type of every format the model stores weights in."""
    formats = sorted({t.format for t, _ in all_tensors(model) if t.cols > 1} | {model.dtype})
    dtypes = {name: resolve_dtype(name, chip) for name in formats}
    widened = tuple(f"{n}->{d}" for n, d in dtypes.items() if d != find_format(n).compute[0])
    core = dtypes[model.dtype]
    return Precision(dtypes=dtypes, core_dtype=core, widened=widened)
