"""Nodes of the graph. Every count is a column: one value a row (m shardings x G batches).

A graph says what work a pass is made of. It knows no chip and no axis: a Message names the role it
spans, a Choice lists legal alternatives, and whoever prices the graph takes the cheapest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]
"""Values over the rows of a block; shapes (m, G), (m, 1) and () broadcast against each other."""

ONE = np.ones(())
NONE = np.zeros(())
Mask = npt.NDArray[np.bool_]


def _one() -> Column:
    return ONE


class OpKind(StrEnum):
    """The closed set of things a chip does."""

    GEMM = "gemm"
    GROUPED_GEMM = "grouped-gemm"
    ATTENTION = "attention"
    SCAN = "scan"
    """A recurrent state, updated and read token by token or chunk by chunk."""
    ELEMENTWISE = "elementwise"
    LOOKUP = "lookup"


class Traffic(StrEnum):
    """What the bytes an op moves are."""

    WEIGHTS = "weights"
    KV = "kv"
    STATE = "state"
    ACTIVATIONS = "activations"


class CollectiveKind(StrEnum):
    """The closed set of messages; byte conventions as in `cost.collectives`."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    P2P = "p2p"


LATENTS = "latent-"
"""In front of the format of a cache whose entries are K and V at once (`Work.stored`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operation of the busiest chip."""

    name: str
    kind: OpKind
    dtype: str
    """Arithmetic type, already resolved against the chip."""
    flops: Column
    """Floating point operations issued by the busiest chip; a multiply-add is two."""
    traffic_bytes: Mapping[Traffic, Column]
    """Bytes moved to and from memory by the busiest chip."""
    replication: Column
    """Issued over useful work: copies on other ranks, and the busiest rank's excess."""
    shape: str
    """Shapes in -> out; a name in braces stands for one of `sizes`."""
    sizes: Mapping[str, Column] = field(default_factory=dict)
    """Sizes of a chip's part, by their names in `shape`."""
    rows: Column = field(default_factory=_one)
    """Rows of each matrix product; of an attention core, queries of a sequence."""
    features: Column | None = None
    """Output columns of each matrix product; of an attention core, query heads that share a kv head; None elsewhere."""
    items: Column = field(default_factory=_one)
    """Independent pieces: experts or heads of a product, pairs of sequence and kv head of an attention core."""
    stored: str = ""
    """Format of the weights that a product multiplies, or of the cache that a core reads, after LATENTS where its
    entries are K and V at once; nothing where it has none."""
    kernels: float | Column = 1.0
    """Kernels an engine launches for it."""
    summed: Column | None = None
    """Ranks over which an all-reduce has just summed what it takes in; None where none has."""
    sequences: Column | None = None
    """Sequences that the host hands a token each: picked, written down, streamed; None where it does nothing."""
    share: float = 1.0
    """Share of the passes in which the op has these counts (a quadrature weight over contexts)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One collective over a role."""

    name: str
    kind: CollectiveKind
    role: str
    message_bytes: Column
    merged_bytes: Callable[[Column], Column] | None = None
    """An all-to-all that sends copies for one part of the role once: its bytes, by the number of equal parts.

    `message_bytes` then counts what is passed on inside a part. How a role is cut into parts is the fabric's.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One legal way through a Choice."""

    name: str
    nodes: "tuple[Item, ...]"
    legal: Mask | None = None
    """Rows where the plan is legal; None is everywhere."""
    never_beats: str = ""
    """A plan that is legal wherever this one is and costs no more there: where both may be taken, that one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Alternatives that do the same thing; the cheapest is taken, priced stand-alone."""

    name: str
    plans: tuple[Plan, ...]


Node = Work | Message | Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Nodes of one of the two branches of a segment, which wait for nothing of the other one.

    A segment forks once: all that is on a side, wherever it stands in the segment, is one branch, in order; both start
    when what neither holds has run so far, and what follows waits for both. Only the `dag` scheduler runs them at once.
    """

    side: Literal["left", "right"]
    nodes: tuple[Node, ...]


Item = Node | Branch


def unwrapped(items: Iterable[Item]) -> Iterator[Node]:
    """Yield nodes in order, those of branches among them."""
    for item in items:
        if isinstance(item, Branch):
            yield from item.nodes
        else:
            yield item


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Work done once a layer of one kind (or once a pass: embedding, head, stage boundary)."""

    name: str
    nodes: tuple[Item, ...]
    """Work that no residual layout changes."""
    edges: Mapping[str, tuple[Item, ...]]
    """By residual layout: norms, and the way into and out of the block."""
    blocks: "tuple[Segment, ...]" = ()
    """The mixer, the feed-forward and what else a layer is made of, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A pass of one model: segments, and the layouts the residual stream may take."""

    segments: tuple[Segment, ...]
    residuals: tuple[str, ...]
    """Layouts of the residual stream; one is chosen for the whole model."""
