"""Which arithmetic each stored format feeds on a chip, and what had to be widened."""

from typing import NamedTuple

from inferometer.blocks.indexer import keys as index_keys
from inferometer.blocks.kinds import parts
from inferometer.blocks.params import all_tensors
from inferometer.blocks.tensors import RESIDUAL
from inferometer.errors import InferometerError
from inferometer.specs.deployment import EngineSpec
from inferometer.specs.formats import find_format
from inferometer.specs.hardware import ChipSpec
from inferometer.specs.mixers import Indexed
from inferometer.specs.model import ModelSpec

NARROW = ("fp4", "fp8")
BITS = {"fp4": 4, "fp8": 8, "bf16": 16, "fp16": 16, "fp32": 32}


class Precision(NamedTuple):
    """Formats resolved against a chip."""

    dtypes: dict[str, str]
    """Format name -> arithmetic type of its GEMMs, and of scores of cached keys."""
    core_dtype: str
    """Arithmetic type of attention cores: the model's dtype, resolved."""
    widened: dict[str, str]
    """Format -> the wider type its GEMMs run in, where the chip lacks the narrowest: weights are unpacked."""

    @property
    def unpacked(self) -> frozenset[str]:
        """Formats multiplied in a type wider than their own: weight-only formats are unpacked by design, wherever."""
        return frozenset(n for n, d in self.widened.items() if BITS[find_format(n).compute[0]] < BITS[d])


def resolve_dtype(name: str, chip: ChipSpec, *, weight_only: bool = False) -> str:
    """Return the narrowest arithmetic type of format `name`'s ladder that the chip has.

    `weight_only` leaves out the narrow rungs above the first: what is unpacked is multiplied in 16 bits or more.
    Raises InferometerError where the chip has none of them.
    """
    ladder = find_format(name).compute
    rungs = (ladder[0], *(d for d in ladder[1:] if not weight_only or d not in NARROW))
    for dtype in rungs:
        if dtype in chip.peak_flops_per_s:
            return dtype
    has = ", ".join(sorted(chip.peak_flops_per_s))
    needs = " or ".join(rungs)
    why = f"{chip.id} has no arithmetic for {name} (needs {needs}; has {has})"
    raise InferometerError(f"{why}; --quant stores it as another")


def stored_precision(model: ModelSpec) -> Precision:
    """Return the arithmetic type that each stored format is made for; no chip is asked, so none is widened."""
    dtypes = {name: find_format(name).compute[0] for name in sorted(matrix_formats(model) | scored_formats(model))}
    return Precision(dtypes=dtypes, core_dtype=dtypes[model.dtype], widened={})


def matrix_formats(model: ModelSpec) -> frozenset[str]:
    """Return the formats of the model's matrices and its own."""
    return frozenset({t.format for t, _ in all_tensors(model) if t.multiplies and t.kind != RESIDUAL} | {model.dtype})


def scored_formats(model: ModelSpec) -> frozenset[str]:
    """Return the formats of the keys that indexers score, which are multiplied as they are stored."""
    mixers = [part for mixer in model.mixers for part in parts(mixer) if isinstance(part, Indexed)]
    own = [mixer.indexer for mixer in mixers if mixer.indexer is not None]
    return frozenset(index_keys(indexer).stored(model.kv_format) for indexer in own)


def resolve_precision(model: ModelSpec, chip: ChipSpec, engine: EngineSpec) -> Precision:
    """Return the arithmetic type of every format the model stores weights in, as the engine runs it.

    Keys that an indexer scores are multiplied in their own format.
    """
    stored, scored = matrix_formats(model), scored_formats(model)
    narrow = engine.unpacks_to_16_bits
    dtypes = {name: resolve_dtype(name, chip, weight_only=narrow) for name in sorted(stored | scored)}
    widened = {n: d for n, d in dtypes.items() if n in stored and d != find_format(n).compute[0]}
    core = dtypes[model.dtype]
    return Precision(dtypes=dtypes, core_dtype=core, widened=widened)
