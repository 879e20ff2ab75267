"""From busy sums to the time of a stage's step. Columns in, columns out.

Letters: C compute, M memory and N network busy seconds of the step, a and b the shares of M and N that can hide, W the
ops' times one after another, W' the same with weights already on chip. Where a segment forks: l and r the two branches'
ops and messages one after another, c, m, n their compute, memory and network busy seconds together.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from inferometer.errors import InferometerError, unknown_name
from inferometer.graph.ops import NONE, Column


class Busy(NamedTuple):
    """Seconds over a stage's step, columns."""

    compute_s: Column
    memory_s: Column
    work_s: Column
    """Ops one after another, each as long as it takes alone; messages left out."""
    network_s: Column
    steady_s: Column = NONE
    """As `work_s` with no op waiting for its weights: a repeat of a layer, whose weights were fetched ahead."""
    left_s: Column = NONE
    """One branch of a segment that forks (`graph.ops.Branch`): its ops and messages one after another."""
    right_s: Column = NONE
    left_steady_s: Column = NONE
    """As `left_s` with no op waiting for its weights."""
    right_steady_s: Column = NONE
    fork_compute_s: Column = NONE
    """Seconds of both branches together."""
    fork_memory_s: Column = NONE
    fork_network_s: Column = NONE


def on_branch(busy: Busy, side: Literal["left", "right"]) -> Busy:
    """Return the sums of what runs on one branch, told as such; a branch does not fork again."""
    one, steady = busy.work_s + busy.network_s, busy.steady_s + busy.network_s
    left = side == "left"
    return busy._replace(
        left_s=one if left else NONE,
        right_s=NONE if left else one,
        left_steady_s=steady if left else NONE,
        right_steady_s=NONE if left else steady,
        fork_compute_s=busy.compute_s,
        fork_memory_s=busy.memory_s,
        fork_network_s=busy.network_s,
    )


class Overlap(NamedTuple):
    """Shares of memory and network time that can hide behind the fullest resource."""

    memory: float = 0.9
    network: float = 0.65


class Scheduler(NamedTuple):
    """A way to time a step, and which sums it asks for."""

    name: str
    seconds: Callable[[Busy, Overlap], Column]
    """The time of a stage from its sums; of one run of a segment where `later` is given."""
    needs: frozenset[str]
    """Fields of `Busy` it reads."""
    later: Callable[[Busy, Overlap], Column] | None = None
    """The time of each run of a segment after its first; None where a stage's sums say all."""
    forks: Literal["no", "free", "all"] = "no"
    """What it wants told by branch: nothing, nodes that no Choice is made of, or all. A plan is chosen by its time
    alone: counted on a branch, a faster link could choose one that hides less."""


def serial(busy: Busy, overlap: Overlap) -> Column:
    """Return the step time when kernels and messages run one after another."""
    del overlap
    return busy.work_s + busy.network_s


def streams(busy: Busy, overlap: Overlap) -> Column:
    """Return the step time of one after another, but for the branches of a fork, which run at once.

    As shared experts on a stream beside the routed ones do in vLLM, SGLang and TensorRT-LLM: a fork takes as long as
    its longer branch, or as its fullest resource. Branches are of what no Choice is made of (`Scheduler.forks`).

    >>> z = np.array([0.0]); left, right = Busy(z, z + 4, z + 5, z), Busy(z, z + 3, z + 4, z)
    >>> forked = Busy(*map(np.add, on_branch(left, "left"), on_branch(right, "right")))
    >>> float(streams(forked, Overlap())[0])  # 5 and 4 at once, whose memory is busy for 7
    7.0
    """
    return serial(busy, overlap) - _hidden(busy, busy.left_s, busy.right_s, busy.fork_memory_s)


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
    time_s = np.asarray(local + (1 - b) * busy.network_s)
    np.maximum(time_s, busy.network_s, out=time_s)
    time_s += (1 - a) * busy.memory_s
    return time_s


def dag_first(busy: Busy, overlap: Overlap) -> Column:
    """Return the time of a segment's first run with three streams: max(C, M, N, W + N - hidden).

    Each op waits for the one before it, so the critical path is the ops and messages one after another, but where the
    segment forks: l and r run at once, and take as long as the longer branch or their fullest stream. What hides is
    l + r - max(l, r, c, m, n). The stated overlap shares are not used: what hides follows from the order of the ops.

    >>> z = np.array([0.0]); first, then = Busy(z + 4, z, z + 4, z + 3), Busy(z, z + 2, z + 2, z)
    >>> forked = Busy(*map(np.add, on_branch(first, "left"), on_branch(then, "right")))
    >>> float(dag_first(forked, Overlap())[0])
    7.0
    """
    return np.maximum(_fullest(busy), streams(busy, overlap))


def dag_later(busy: Busy, overlap: Overlap) -> Column:
    """Return the time of each further run: max(C, M, N, W' + N - hidden).

    While one run computes, the memory stream fetches the weights of the next, so no op waits for them; the stream is
    still busy for as long as they take. What hides of a fork is l' + r' - max(l', r', c, n): what its ops read and
    write beside weights counts in l' and r', but is not added up over both.
    """
    del overlap
    path = busy.steady_s + busy.network_s - _hidden(busy, busy.left_steady_s, busy.right_steady_s, NONE)
    return np.maximum(_fullest(busy), path)


def _hidden(busy: Busy, left_s: Column, right_s: Column, memory_s: Column) -> Column:
    """Return how much shorter a fork is than its branches one after another."""
    longer = np.maximum(left_s, right_s)
    fullest = np.maximum(np.maximum(busy.fork_compute_s, busy.fork_network_s), memory_s)
    return left_s + right_s - np.maximum(longer, fullest)


def _fullest(busy: Busy) -> Column:
    return np.maximum(np.maximum(busy.compute_s, busy.memory_s), busy.network_s)


FORKED = frozenset({"work_s", "network_s", "left_s", "right_s", "fork_compute_s", "fork_memory_s", "fork_network_s"})
"""What the time of kernels one after another asks for, with two branches at once."""

SCHEDULERS = {
    scheduler.name: scheduler
    for scheduler in (
        Scheduler("serial", serial, frozenset({"work_s", "network_s"})),
        Scheduler("streams", streams, FORKED, forks="free"),
        Scheduler("overlap", overlapped, frozenset({"compute_s", "memory_s", "network_s"})),
        Scheduler("dag", dag_first, frozenset(Busy._fields), dag_later, "all"),
    )
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
