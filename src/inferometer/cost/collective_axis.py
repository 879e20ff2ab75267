"""Collectives on one axis: every legal algorithm as a straight line in the bytes.

Letters: n members; S bytes by the convention of the kind (below); a one step between neighbours of the group;
B bytes/s per direction of a chip's port (switch, pcie); b bytes/s per direction of one link (mesh, ring, line),
after sharing with interleaved groups. time = alpha + S * beta. A sum, where some texts take the larger of the two:
the sum is never less and never twice as much.

S: all-reduce, the full vector; all-gather, the whole gathered array; reduce-scatter, the whole array scattered;
all-to-all, a rank's whole send buffer (1/n of it stays); p2p, the message.
"""

from typing import NamedTuple

from inferometer.cost.groups import Leg

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "p2p")


class Line(NamedTuple):
    """One algorithm: time = alpha_s + bytes * s_per_byte."""

    algorithm: str
    alpha_s: float
    s_per_byte: float

    def seconds(self, n_bytes: float) -> float:
        """The time for so many bytes."""
        return self.alpha_s + n_bytes * self.s_per_byte


def axis_lines(kind: str, leg: Leg) -> tuple[Line, ...]:
    """Every legal algorithm of a collective (any kind but p2p) on one axis."""
    if kind == "all-to-all":
        return _all_to_all(leg)
    if kind == "all-reduce":
        return _all_reduce(leg)
    return _gather(leg, in_switch=leg.multicast if kind == "all-gather" else leg.reduces)


def _gather(leg: Leg, *, in_switch: bool) -> tuple[Line, ...]:
    """All-gather; reduce-scatter is the same schedule run backwards, adding where the other copies.

    * `ring` (switch, pcie, mesh, ring): n-1 steps of one chunk S/n: (n-1)a + (n-1)/n S/B.
      Source: NVIDIA/nccl-tests:doc/PERFORMANCE.md. On a switch the ring is logical. On a mesh as many rings run at
      once as it has link-disjoint directed Hamiltonian cycles: n-1, but 2 at n = 4 and 4 at n = 6 (Tillson 1980).
    * `direct` (switch, pcie, mesh): every member reads every other's chunk at once: a + (n-1)/n S/B, with
      B = (n-1)b on a mesh. Source: derived; the mesh's rate: stas00/ml-engineering:network/README.md.
      pcie: chips write to and read from host memory, both directions of the port at work; one such exchange is one
      step. Excluded: the host's own memory and socket limits, which a measured rate holds.
    * `in-switch` (an axis that multicasts gathers, one that reduces scatters): a + S/B: the switch hands a member all
      n chunks, its own too (or takes all n from it). Never better than direct here: it frees the other direction,
      which this model does not sell. Source: derived from the same count as the all-reduce.
    * `bidirectional-ring` (ring): each step brings a chunk from both sides, the last of an even n half of one from
      each: floor(n/2) a + (n-1)/n S/(2b). Source: jax-ml/scaling-book:sharding.md (V/W, 2V/(N W) a hop).
    * `line` (line): the end takes n-1 chunks through its only link: (n-1)a + (n-1)/n S/b. Source:
      jax-ml/scaling-book:tpus.md (no wrap: half the bandwidth, N-1 hops).
    """
    n, a, moved = leg.n, leg.alpha_s, (leg.n - 1) / leg.n
    whole = leg.bytes_per_s
    if leg.geometry == "line":
        return (Line("line", (n - 1) * a, moved / whole),)
    if leg.geometry == "ring":
        return (
            Line("ring", (n - 1) * a, moved / leg.link_bytes_per_s),
            Line("bidirectional-ring", leg.hops * a, moved / whole),
        )
    lines = (
        Line("direct", a, moved / whole),
        Line("ring", (n - 1) * a, moved / _ring_bytes_per_s(leg)),
    )
    return (*lines, Line("in-switch", a, 1 / whole)) if in_switch else lines


def _ring_bytes_per_s(leg: Leg) -> float:
    """The rate of all rings that fit beside each other (`_gather`)."""
    if leg.geometry != "mesh":
        return leg.bytes_per_s
    rings = {4: 2, 6: 4}.get(leg.n, leg.n - 1)
    return rings * leg.link_bytes_per_s


def _all_reduce(leg: Leg) -> tuple[Line, ...]:
    """All-reduce.

    * `two-shot` (direct), `ring`, `bidirectional-ring`, `line`: reduce-scatter, then all-gather, so twice the
      all-gather: 2(n-1)a + 2(n-1)/n S/B on a ring, 2a + 2(n-1)/n S/B direct, 2a + 2(S/n)/b on a mesh.
      Source: NVIDIA/nccl-tests:doc/PERFORMANCE.md; jax-ml/scaling-book:sharding.md (all-reduce = 2 all-gathers).
      Bound without help from the switch: n ranks move at least 2(n-1)S together, 2(n-1)/n S each.
    * `one-shot`: everyone gets everyone's whole vector and adds locally: an all-gather of nS, in half the steps:
      a + (n-1) S/B on a switch, a + S/b on a mesh, floor(n/2) a + (n-1) S/(2b) on a ring, (n-1)a + (n-1) S/b on a
      line. Source: derived; it is why engines' small all-reduces cost almost the same at n = 2 and 8.
    * `in-switch` (a switch that reduces and multicasts): member i owns shard i. Up, a member sends its part of all n
      shards (S) and its own reduced shard (S/n); down, it takes its reduced shard (S/n) and all n shards (S):
      a + (n+1)/n S/B. Source: stas00/ml-engineering:network/README.md (n+1 against 2n). Bound with the switch's
      help: a member must still take in S bytes that depend on the others: S/B. At n = 2 two-shot moves S, in-switch
      1.5 S; they meet at n = 3.
    Excluded: the additions themselves, and trees (NVIDIA/nccl:src/graph/tuning.cc), whose bytes are the ring's.
    """
    gathers = _gather(leg, in_switch=False)
    renamed = {"direct": "two-shot"}
    lines = [Line(renamed.get(g.algorithm, g.algorithm), 2 * g.alpha_s, 2 * g.s_per_byte) for g in gathers]
    widest = min(gathers, key=lambda g: (g.alpha_s, g.s_per_byte))
    lines.append(Line("one-shot", widest.alpha_s, leg.n * widest.s_per_byte))
    if leg.reduces and leg.multicast:
        lines.append(Line("in-switch", leg.alpha_s, (leg.n + 1) / leg.n / leg.bytes_per_s))
    return tuple(lines)


def _all_to_all(leg: Leg) -> tuple[Line, ...]:
    """All-to-all, S/n from every member to every other.

    * `direct` (switch, pcie, mesh): a + (n-1)/n S/B. Source: NVIDIA/nccl-tests:doc/PERFORMANCE.md.
    * `ring` (ring, one way round): step t carries on what has n-t steps to go: S/n * sum(n-t) = (n-1)/2 S, so
      (n-1)a + (n-1)/2 S/b: half the all-gather of nS. Source: jax-ml/scaling-book:sharding.md, question 10.
    * `bidirectional-ring` (ring): by the shortest way a member's messages travel floor(n^2/4) hops of S/n together;
      n members load 2n links evenly: floor(n/2) a + floor(n^2/4)/(2n) S/b, n S/(8b) at even n: a quarter of the
      all-gather of nS as n grows. Source: same; the distances summed here.
    * `line` (line): floor(n/2) members on one side send to ceil(n/2) on the other through one link:
      (n-1)a + floor(n^2/4)/n S/b, n S/(4b) at even n. Source: derived. A limit for messages cut fine: whole ones
      wait for each other while the middle link fills.
    """
    n, a, b = leg.n, leg.alpha_s, leg.link_bytes_per_s
    crossing = n * n // 4
    if leg.geometry == "line":
        return (Line("line", (n - 1) * a, crossing / n / b),)
    if leg.geometry == "ring":
        return (
            Line("ring", (n - 1) * a, (n - 1) / 2 / b),
            Line("bidirectional-ring", leg.hops * a, crossing / (2 * n) / b),
        )
    return (Line("direct", a, (n - 1) / n / leg.bytes_per_s),)
