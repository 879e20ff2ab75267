"""Candidates as columns: shardings, where their roles may lie, and blocks of rows to price.

A sharding is one set of role sizes. A pair is one sharding with one placement of all roles. Roles fall in two
groups that see the same chips: `mesh` (TP, DPA, DCP, PP and the stage they fill) and `experts` (EP, ETP). For each
group a sharding has a short list of slots, the ways its roles may lie; a pair names one slot a group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inferometer.blocks.model import split_layers, stage_kinds, unit_count
from inferometer.cost.groups import Signature
from inferometer.graph.ops import Column
from inferometer.specs.deployment import Sizes
from inferometer.specs.model import ModelSpec

Index = npt.NDArray[np.intp]

GROUPS: Mapping[str, tuple[str, ...]] = {"mesh": ("tp", "dpa", "stage", "dcp", "pp"), "experts": ("ep", "etp")}
"""Roles that exchange messages, by group."""

GROUP_OF = {role: group for group, roles in GROUPS.items() for role in roles}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shardings:
    """Role sizes and stage structure of m shardings, columns of shape (m,)."""

    sizes: Mapping[str, Column]
    """r pp dpa tp ep etp dcp."""
    multiplicities: npt.NDArray[np.float64]
    """(C, segments, m): occurrences of each segment in stage kind c."""
    stage_counts: npt.NDArray[np.float64]
    """(C, m): stages of kind c; 0 pads."""

    def __len__(self) -> int:
        """Return the number of shardings."""
        return len(self.sizes["tp"])

    def at(self, index: int) -> Sizes:
        """Return one sharding's sizes as a spec."""
        return Sizes(**{name: int(column[index]) for name, column in self.sizes.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Every placement of every sharding."""

    start: Index
    """(m + 1,) offsets: the pairs of sharding i are start[i]..start[i+1]-1."""
    slots: Mapping[str, Index]
    """Group -> (pairs,) slot within the sharding's own list."""
    slot_counts: Mapping[str, Index]
    """Group -> (m,) length of that list."""
    signatures: Mapping[str, Sequence[Signature]]
    """Role -> the distinct signatures it takes anywhere."""
    slot_signatures: Mapping[str, Index]
    """Role -> (S, m) signature index by slot of its group; past a sharding's own slots, its first again."""

    def signature(self, role: str, sharding: int, pair: int) -> Signature:
        """Return where a role of a pair lies."""
        slot = int(self.slots[GROUP_OF[role]][pair])
        return self.signatures[role][int(self.slot_signatures[role][slot, sharding])]


class Block(NamedTuple):
    """Rows to price at once: m shardings by G batches, up to P placements each."""

    sharding: Index
    """(m,)."""
    sequences: Column
    """(m, G) B: sequences of a DPA rank, over all microbatches; past a sharding's own batches, its last again."""
    pairs: Index
    """(P, m) pair by placement; past a sharding's own placements, its first again."""
    in_flight: Column | None = None
    """(m, G) sequences of a replica, where they are fewer than B x DPA."""


def pairs_of(sharding: Index, placements: Placements) -> Index:
    """Return (P, m) pairs of each sharding; past a sharding's own its first is repeated."""
    start = placements.start[sharding]
    counts = placements.start[sharding + 1] - start
    offset = np.arange(int(counts.max()))[:, None]
    return start + np.where(offset < counts, offset, 0)


def make_shardings(model: ModelSpec, sizes: Mapping[str, Column], partition: str) -> Shardings:
    """Return shardings with their stage structure; `sizes` are columns of shape (m,)."""
    stages, index = np.unique(sizes["pp"], return_inverse=True)
    by_pp = [stage_kinds(model, split_layers(unit_count(model), int(pp), partition)) for pp in stages]
    depth = max(len(kinds) for kinds in by_pp)
    n_segments = len(by_pp[0][0].multiplicities)
    multiplicities = np.zeros((depth, n_segments, len(by_pp)))
    counts = np.zeros((depth, len(by_pp)))
    for j, kinds in enumerate(by_pp):
        for c, kind in enumerate(kinds):
            multiplicities[c, :, j] = kind.multiplicities
            counts[c, j] = kind.count
    return Shardings(sizes=sizes, multiplicities=multiplicities[:, :, index], stage_counts=counts[:, index])
