"""What guesses tokens ahead of the model: listed apart, described so that speculation can be priced. Shapes only.

Letters: H hidden, V vocabulary.
"""

from inferometer.specs.block import Spec
from inferometer.specs.feedforward import FeedForward
from inferometer.specs.mixers import Mixer


class DraftLayer(Spec, frozen=True, kw_only=True):
    """One layer of a drafter, by index into the drafter's lists; None is none."""

    mixer: int | None = None
    ffn: int | None = None


class Drafter(Spec, frozen=True, kw_only=True):
    """A stack of layers that shares the model's embedding and head."""

    kind: str
    """mtp: multi-token prediction, a token a pass (DeepSeek-V3, arXiv:2412.19437 section 2.2); dspark: several."""
    mixers: tuple[Mixer, ...]
    ffns: tuple[FeedForward, ...]
    layers: tuple[DraftLayer, ...]
    shapes: dict[str, tuple[int, int, int]]
    """What it has beside its layers: tensor -> (rows, columns, times it occurs)."""
    tokens: int = 1
    """Tokens it guesses in one pass."""
