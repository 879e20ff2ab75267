"""What a cost backend is: it turns counts and a chip into time, nothing else."""

from typing import NamedTuple, Protocol

from inferometer.cost.groups import LinkRate
from inferometer.graph.ops import Column, OpKind, Work
from inferometer.specs.hardware import Axis, ChipSpec


class Support(NamedTuple):
    """Whether a backend can price an op kind on a chip, and why not."""

    ok: bool
    reason: str = ""


class WorkPrice(NamedTuple):
    """Seconds of one op, columns: what each resource is busy for, and how long the op takes alone."""

    compute_s: Column
    memory_s: Column
    total_s: Column
    """At least the larger of the two."""


class Band(NamedTuple):
    """Step time lies between step x low and step x high, nine times in ten."""

    low: float
    high: float
    source: str


class CostBackend(Protocol):
    """The contract. Laws: price never falls when counts grow, nor rises when a rate rises, nor beats a bound."""

    @property
    def name(self) -> str:
        """As it is asked for."""
        ...

    @property
    def basis(self) -> str:
        """measured, calibrated, analytic or assumed."""
        ...

    def supports(self, kind: OpKind, chip: ChipSpec) -> Support:
        """Return whether ops of `kind` can be priced on `chip`."""
        ...

    def price(self, work: Work, chip: ChipSpec) -> WorkPrice:
        """Return the seconds of one op, columns."""
        ...

    def link(self, axis: Axis) -> LinkRate:
        """Return latency of one step and rate of one axis, for the collectives."""
        ...

    def band(self) -> Band:
        """Return how far the truth may lie from a step time."""
        ...


class BackendFactory(Protocol):
    """Makes a backend; what an entry point of group `inferometer.backends` names."""

    def __call__(self, calibration: object | None) -> CostBackend:
        """Return a backend for a calibration (None: its own)."""
        ...
