"""What a cost backend is: it turns counts and a chip into time, nothing else."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from inferometer.cost.groups import LinkRate
from inferometer.graph.ops import Column, Mask, OpKind, Work
from inferometer.specs.deployment import Kernels
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
    apart: float = 0.0
    """Two deployments of one model on one chip whose steps differ by less than this factor cannot be told apart: what
    is wrong with one is mostly wrong with the other. 0: high / low, as if they had nothing in common."""

    @property
    def alike(self) -> float:
        """The factor, `apart` or what the ends leave."""
        return self.apart or self.high / self.low


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


@runtime_checkable
class KnowsChips(Protocol):
    """What a backend may add that is surer of some chips than of others. `axes`: those that messages cross."""

    def basis_of(self, chip: ChipSpec, axes: Sequence[Axis]) -> str:
        """Return the basis of what it says of a chip: the weakest part's."""
        ...

    def band_of(self, chip: ChipSpec, axes: Sequence[Axis]) -> Band:
        """Return how far the truth may lie from a step time on that chip."""
        ...


def basis_of(backend: CostBackend, chip: ChipSpec, axes: Sequence[Axis] = ()) -> str:
    """Return the basis of a backend's times on a chip whose messages cross `axes`."""
    return backend.basis_of(chip, axes) if isinstance(backend, KnowsChips) else backend.basis


@runtime_checkable
class RunsKernels(Protocol):
    """A backend that tells kernels of engines apart."""

    def running(self, kernels: Kernels) -> CostBackend:
        """Return the backend for an engine that runs `kernels`."""
        ...


def running(backend: CostBackend, kernels: Kernels) -> CostBackend:
    """Return the backend for an engine's kernels; itself where it tells none apart."""
    return backend.running(kernels) if isinstance(backend, RunsKernels) else backend


def band_of(backend: CostBackend, chip: ChipSpec, axes: Sequence[Axis] = ()) -> Band:
    """Return the band of a backend's times on a chip whose messages cross `axes`."""
    return backend.band_of(chip, axes) if isinstance(backend, KnowsChips) else backend.band()


@runtime_checkable
class KnowsOps(Protocol):
    """What a backend may add that is surer of some operations than of others."""

    def timed(self, work: Work, chip: ChipSpec) -> Mask:
        """Return where an operation was timed on the chip, columns; elsewhere its basis is that of the chip."""
        ...


class Figure(NamedTuple):
    """How far predictions of one kind were off where the fit had not seen them."""

    what: str
    n: int
    median: float
    """Of |predicted / measured - 1|."""
    p90: float
    bias: float | None


class Covered(NamedTuple):
    """What a backend knows of a group of chips."""

    generation: str
    basis: Literal["measured", "calibrated", "analytic", "assumed"]
    dtypes: tuple[str, ...]
    """Arithmetic with timings of its own; other types are taken for the nearest."""
    n: int
    """Published serving numbers it is fitted to."""
    band: Band
    source: str
    figures: tuple[Figure, ...]
    chips: tuple[str, ...] = ()
    """Catalogue ids; empty: all of the generation."""


class Told(NamedTuple):
    """What a backend says of itself."""

    data: tuple[str, ...]
    """What it is fitted to."""
    commands: tuple[str, ...]
    """What fits it, with the date."""
    figures: tuple[Figure, ...]
    covered: tuple[Covered, ...]


@runtime_checkable
class Tells(Protocol):
    """What a backend may add that is fitted."""

    def told(self) -> Told:
        """Return what it is fitted to, and how far it was off."""
        ...
