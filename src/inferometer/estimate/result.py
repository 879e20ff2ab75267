"""What an estimate of one deployment says, with the parts it is made of."""

from dataclasses import dataclass, field

from inferometer.estimate.pick import Shape
from inferometer.memory.lines import Line
from inferometer.specs.deployment import Placement, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One operation as run: counts of the busiest chip for one layer and one microbatch."""

    name: str
    kind: str
    """An op kind, or the kind of a collective."""
    segment: str
    layers: int
    """Times it runs over the whole model."""
    shape: Shape
    dtype: str
    flops: float
    replication: float
    traffic_bytes: dict[str, float]
    """weights, kv, state, activations, message."""
    alone_s: float
    compute_s: float
    memory_s: float
    network_s: float
    share: float
    """Share of the passes it has these counts in."""
    plan: str
    """The choices it was taken under, or the algorithm of a collective."""
    basis: str = ""
    """measured, calibrated, analytic or assumed."""

    @property
    def bound(self) -> str:
        """What limits it: compute, memory or network."""
        if self.network_s > 0:
            return "network"
        return "compute" if self.compute_s > self.memory_s else "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """One Choice as taken, priced stand-alone for one layer; the residual layout by the step it gives."""

    name: str
    segment: str
    plan: str
    alone_s: float
    beaten_s: dict[str, float]
    """Plan -> seconds of those it beat; forbidden ones left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLines:
    """Bytes of one chip of the fullest stage."""

    visible_bytes: float
    reserve_bytes: float
    weights_bytes: float
    tower_bytes: float
    """Of the weights, those of towers."""
    kv_bytes_per_sequence: float
    state_bytes_per_sequence: float
    sequences: float
    """Sequences a DPA rank holds."""
    fits_sequences: float
    """Sequences a DPA rank could hold; below 1 nothing fits."""
    activation_bytes_per_token: float
    """Part of the reserve that each token of a DPA rank in a pass needs."""

    used_share: float = 1.0
    """Share of memory that the engine is told to take."""
    pass_tokens: int | None = None
    """Tokens of the largest pass that the engine runs in one; None: as many as are in it."""
    deficit_bytes: float = 0.0
    """What an engine's chip lacks for the sequences asked for."""
    lines: tuple[Line, ...] = ()
    """As the engine divides it; empty: weights, caches and the reserve."""

    @property
    def kv_bytes(self) -> float:
        """KV of all sequences."""
        return self.kv_bytes_per_sequence * self.sequences

    @property
    def state_bytes(self) -> float:
        """States of all sequences."""
        return self.state_bytes_per_sequence * self.sequences

    @property
    def free_bytes(self) -> float:
        """What is left; negative where it does not fit."""
        return self.visible_bytes - self.reserve_bytes - self.weights_bytes - self.kv_bytes - self.state_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """Something the user should know, by name, with what to change."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One deployment, priced. Seconds are of one pass: a decode step, or a prefill of the whole batch."""

    sizes: Sizes
    placement: Placement
    placements_priced: int
    batch: int
    """Sequences in flight over the whole deployment."""
    sequences: int
    """B: sequences of a DPA rank."""
    microbatches: int
    step_s: float
    low_s: float
    high_s: float
    alike: float
    """Another deployment of this model on this chip is told from it where its step differs by more than this factor."""
    basis: str
    band_source: str
    busy_s: dict[str, float]
    """compute, memory, network, overhead of a whole pass through the slowest stage."""
    mfu: float
    mbu: float
    useful_flops: float
    """Of the whole pass of one replica, GEMMs and attention cores."""
    memory: MemoryLines
    widened: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    reasons: tuple[str, ...]
    """Why it is not feasible; empty where it is."""
    residual: str
    ops: tuple[OpRow, ...] = field(default=())
    choices: tuple[ChoiceRow, ...] = field(default=())

    @property
    def basis_shares(self) -> dict[str, float]:
        """Basis -> its share of the time of all operations one after another, largest first."""
        spent: dict[str, float] = {}
        for op in self.ops:
            spent[op.basis] = spent.get(op.basis, 0.0) + op.alone_s * op.share * op.layers
        whole = sum(spent.values()) or 1.0
        return {basis: spent[basis] / whole for basis in sorted(spent, key=lambda one: -spent[one])}

    @property
    def feasible(self) -> bool:
        """Whether it is legal and fits."""
        return not self.reasons

    @property
    def bound(self) -> str:
        """The fullest resource of the slowest stage."""
        return max(self.busy_s, key=lambda k: self.busy_s[k])
