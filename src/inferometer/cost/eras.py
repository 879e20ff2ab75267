"""Software of another time: how many times longer an engine's steps took on a generation of chips than today's.

One scalar an engine and generation, on all kernels and messages alike, fitted to published runs of that time by
`inferometer.measurement.fit_eras`. It says nothing about today's software, and today's factors know nothing of it.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from inferometer.cost.factors import LONGER, SLOWER, Factors

ERAS_FILE = Path(__file__).parent / "data" / "eras.json"


class Scalar(msgspec.Struct, frozen=True, kw_only=True):
    """Times as long."""

    times: float
    n: int
    """Published numbers it is fitted to."""
    models: int


class Era(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's versions of one time."""

    name: str
    of: str
    """Engine, versions and source of its runs."""
    common: float
    """Times as long on a generation that has no scalar of its own: what those that have one share (assumed)."""
    scalars: dict[str, Scalar]
    """By generation of chips."""
    folds: tuple[dict[str, float], ...]
    """Fold -> generation (or `common`) -> scalar fitted to the other folds' pairs of model and chip."""
    low: float
    high: float
    """Ends of the band: measured over predicted time of rows held out."""
    figures: dict[str, float]
    """n, median and p90 of |predicted / measured - 1|, and bias, of rows held out."""

    def on(self, generation: str, fold: int | None = None) -> float:
        """Return the scalar of a generation, or what a fold that has not seen its own pairs says of it."""
        if fold is not None:
            return self.folds[fold].get(generation, self.folds[fold]["common"])
        own = self.scalars.get(generation)
        return self.common if own is None else own.times


class Eras(msgspec.Struct, frozen=True, kw_only=True):
    """Every era there is."""

    command: str
    date: str
    eras: tuple[Era, ...]


@cache
def load_eras() -> Eras:
    """Return the committed eras; read at the first call."""
    return msgspec.json.decode(ERAS_FILE.read_bytes(), type=Eras)


def find_era(name: object) -> Era | None:
    """Return the era called `name`; None where none is.

    >>> find_era("vllm-2024").name, find_era("my.toml")
    ('vllm-2024', None)
    """
    return next((era for era in load_eras().eras if era.name == name), None) if isinstance(name, str) else None


def aged(factors: Mapping[str, Factors], era: Era, fold: int | None = None) -> dict[str, Factors]:
    """Return factors under which every kernel takes an era's times as long: fixed times longer, rates lower."""
    found = {}
    for generation, own in factors.items():
        times = era.on(generation, fold)
        longer = {name: getattr(own, name) * times for name in LONGER}
        slower = {name: getattr(own, name) / times for name in SLOWER}
        basis = "calibrated" if own.basis == "calibrated" and generation in era.scalars else "assumed"
        found[generation] = msgspec.structs.replace(own, **longer, **slower, basis=basis)
    return found
