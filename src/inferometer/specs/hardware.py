"""Chips, and the fabric that joins them. SI units; bandwidths are per direction."""

from typing import Literal

from inferometer.specs.block import Spec

Geometry = Literal["switch", "mesh", "pcie", "ring", "line"]
"""switch: any to any through a switch. mesh: a direct link to every peer. pcie: through the host.
ring, line: nearest neighbours, with and without wrap-around (one torus axis)."""


class ChipSpec(Spec, frozen=True, kw_only=True):
    """One accelerator, from its datasheet."""

    id: str
    name: str
    vendor: str
    memory_bytes: int
    """Bytes a process can see."""
    memory_bytes_per_s: float
    peak_flops_per_s: dict[str, float]
    """Dense peaks by arithmetic type (`bf16 fp16 fp8 fp4 int8 fp32`)."""
    tdp_w: float | None = None
    units: float | None = None
    """Arithmetic units that run a tile each (streaming multiprocessors); None where nobody says."""
    aliases: tuple[str, ...] = ()
    generation: str = ""
    """Architecture that kernels are fitted by: hopper, blackwell, cdna3, tpu ...; empty where nobody says."""
    default_machine: str
    """Id of the machine a bare `AxB` builds on."""
    assumed: tuple[str, ...] = ()
    """Fields whose value is assumed, not read from a source."""
    sources: dict[str, str] = {}
    """Field -> source, date."""

    def __post_init__(self) -> None:
        """Check that a chip has at least one unit."""
        if self.units is not None and not 1 <= self.units < float("inf"):
            raise ValueError(f"units must be a number from 1 on, not {self.units:g}")


class Axis(Spec, frozen=True, kw_only=True):
    """One physical axis of a fabric as used: `size` chips along it."""

    name: str
    geometry: Geometry
    size: int
    bytes_per_s: float
    """Per direction. switch, pcie: a chip's port. mesh, ring, line: ONE link."""
    latency_s: float
    """Datasheet-grade latency of one step (alpha); a backend may use its own."""
    multicast: bool = False
    reduces: bool = False
    """The switch can reduce in flight (NVLink SHARP)."""
    stated_bytes_per_s: float = 0.0
    """The rate before a what-if changed it, 0 where none did: by it a backend knows which link it is."""


class Fabric(Spec, frozen=True, kw_only=True):
    """Ordered axes, innermost (fastest) first. Chips = product of the sizes."""

    axes: tuple[Axis, ...]
    twist: tuple[tuple[int, ...], ...] = ()
    """By axis, how many positions along each axis going once round it ends further on; empty: nothing is twisted."""

    @property
    def n_chips(self) -> int:
        """Chips in the fabric."""
        n = 1
        for axis in self.axes:
            n *= axis.size
        return n


class Level(Spec, frozen=True, kw_only=True):
    """One level of a machine, of which a deployment may use a part."""

    name: str
    geometry: Geometry
    max_size: int
    bytes_per_s: float
    latency_s: float
    multicast: bool = False
    reduces: bool = False
    wrap_multiple: int = 0
    """A ring closes only where the slice spans a multiple of this many chips; 0: never."""
    oversubscription_ratio: float = 1.0
    """What a chip's rate is divided by where more than `oversubscribed_beyond` positions are in use."""
    oversubscribed_beyond: int = 1
    """Positions under one leaf of the network."""


class MachineSpec(Spec, frozen=True, kw_only=True):
    """A product: levels, innermost first. Torus machines have one level per dimension, then the network, if any."""

    id: str
    chip: str
    levels: tuple[Level, ...]
    torus: bool = False
    twist: Literal["never", "offered", "default"] = "never"
    """Whether slices of k x k x 2k and k x 2k x 2k (k a multiple of the wrap's) may be twisted, or are unless told."""
    aliases: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    @property
    def dimensions(self) -> int:
        """Levels that one slice or one node takes up: all of a torus but the network beyond it, else the innermost."""
        if not self.torus:
            return 1
        beyond = 0
        while beyond < len(self.levels) - 1 and self.levels[-1 - beyond].geometry == "switch":
            beyond += 1
        return len(self.levels) - beyond


class Machine(Spec, frozen=True, kw_only=True):
    """A chip and the fabric of the slice in use: what an estimate takes."""

    chip: ChipSpec
    fabric: Fabric
    label: str
    """As the user wrote it: `8x2`, `4x4x8`."""
    product: str = ""
    """Id of the machine, or the cloud instance named; empty where nobody said."""

    @property
    def name(self) -> str:
        """What it is called beside its chip: `8x2`; with the product where that is not the chip's usual machine."""
        if self.product in ("", self.chip.default_machine, self.label):
            return self.label
        return f"{self.product} {self.label}"


class Price(Spec, frozen=True, kw_only=True):
    """One dated price of one chip for one hour."""

    chip: str
    usd_per_chip_hour: float
    provider: str
    tier: str
    region: str = ""
    instance: str = ""
    instance_chips: int = 1
    """Chips of an instance, which is let whole."""
    date: str
    source: str
    marketplace: bool = False
