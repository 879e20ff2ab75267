"""From busy sums to the time of a stage's step. Columns in, columns out.

Letters: C compute, M memory and N network busy seconds of the step, a and b the shares of M and N that can hide.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from inferometer.errors import InferometerError, unknown_name
from inferometer.graph.ops import Column


class Busy(NamedTuple):
    """Seconds over a stage's step, columns."""

    compute_s: Column
    memory_s: Column
    work_s: Column
    """Ops one after another, each as long as it takes alone; messages left out."""
    network_s: Column


class Overlap(NamedTuple):
    """Shares of memory and network time that can hide behind the fullest resource."""

    memory: float = 0.9
    network: float = 0.65


class Scheduler(NamedTuple):
    """A way to time a step, and whether it asks for the ops' own times or for the resources' sums."""

    name: str
    seconds: Callable[[Busy, Overlap], Column]
    by_op: bool


def serial(busy: Busy, overlap: Overlap) -> Column:
    """Return the step time when kernels and messages run one after another."""
    del overlap
    return busy.work_s + busy.network_s


def overlapped(busy: Busy, overlap: Overlap) -> Column:
    """Return max(C, a M, b N) + (1-a) M + (1-b) N: at least any single sum.

    Written max(max(C, a M) + (1-b) N, N) + (1-a) M, which is the same in fewer passes over large columns.

    >>> z = np.array([0.0]); round(float(overlapped(Busy(z, z + 10, z, z + 4), Overlap(0.9, 0.65))[0]), 9)
    11.4
    >>> 9.0 + 1.0 + 1.4
    11.4
    """
    a, b = overlap
    local = np.maximum(busy.compute_s, a * busy.memory_s)
    exposed = local + (1 - b) * busy.network_s
    return np.maximum(exposed, busy.network_s) + (1 - a) * busy.memory_s


SCHEDULERS = {
    s.name: s for s in (Scheduler("serial", serial, by_op=True), Scheduler("overlap", overlapped, by_op=False))
}


def find_scheduler(name: str) -> Scheduler:
    """Return a scheduler by name; UnknownNameError lists the known ones."""
    if name not in SCHEDULERS:
        raise unknown_name("scheduler", name, SCHEDULERS)
    return SCHEDULERS[name]


def parse_overlap(text: str) -> Overlap:
    """Return the overlap shares written `A` or `A,B` (memory, network), each from 0 to 1.

    >>> parse_overlap("0.8,0.5")
    Overlap(memory=0.8, network=0.5)
    """
    parts = text.split(",")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if len(values) not in (1, 2) or not all(0 <= v <= 1 for v in values):
        raise InferometerError(f"--overlap {text!r}: give MEMORY or MEMORY,NETWORK, each from 0 to 1, as in 0.9,0.65")
    return Overlap(values[0], values[1] if len(values) > 1 else Overlap().network)
