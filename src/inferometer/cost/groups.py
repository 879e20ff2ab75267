"""Where a communication group lies on a fabric, and what each axis gives it.

A group takes every s-th position of an axis, f of them: p, p+s, ..., p+(f-1)s. The stride s is the product of
the factors of the roles nested inside, so s such groups are interleaved on the same stretch of the axis.

What an axis gives one group while all groups are busy (B, a: the axis' rate per direction and latency of one step):

* ring, line: a neighbour in the group is s hops away, and the s interleaved groups cross every physical link
  together: a link's share is B/s, a step takes s*a. The group closes to a ring only where the axis is a ring and
  f*s covers it; elsewhere it is a line of f. Where the torus is twisted, going round ends further along other axes:
  the ring closes for the group only if those positions are its own too (below).
* switch, pcie: the port belongs to the chip, so the stride divides nothing.
* mesh: a member has a link of its own to every other member, f-1 of its links; the stride divides nothing.
  (8 chips of a mesh cut to 2 keep 1/7 of the bandwidth: stas00/ml-engineering:network/README.md measures 47.7
  against 312.9 GB/s on MI300X.)
"""

from collections.abc import Sequence
from typing import NamedTuple

from inferometer.errors import InferometerError
from inferometer.specs.hardware import Axis, Fabric, Geometry

Span = tuple[int, int]
"""(factor, stride) of a group on one axis; (1, 1) where it does not extend."""

Signature = tuple[Span, ...]
"""One span per axis of the fabric, innermost first."""


class LinkRate(NamedTuple):
    """What a backend says of one axis, in the axis' own terms (a port, or ONE link; per direction)."""

    alpha_s: float
    bytes_per_s: float


class Leg(NamedTuple):
    """A group's part on one axis: n members, seen as a network of their own."""

    axis: str
    geometry: Geometry
    n: int
    alpha_s: float
    """One step between neighbours of the group."""
    link_bytes_per_s: float
    """Per direction, the group's share of one link (ring, line, mesh) or of the chip's port (switch, pcie)."""
    reduces: bool = False
    multicast: bool = False
    turn: tuple[int, ...] = ()
    """Members of each leg of the group that going once round this ring ends further along; empty: a plain ring."""

    @property
    def bytes_per_s(self) -> float:
        """What one member can take in from all its links of this axis at once; on a line, what its end can."""
        if self.geometry == "ring":
            return 2 * self.link_bytes_per_s
        if self.geometry == "mesh":
            return (self.n - 1) * self.link_bytes_per_s
        return self.link_bytes_per_s

    @property
    def hops(self) -> int:
        """Steps between the two members farthest apart."""
        if self.geometry == "ring":
            return self.n // 2
        return self.n - 1 if self.geometry == "line" else 1


def group_size(signature: Signature) -> int:
    """Members of the group.

    >>> group_size(((8, 1), (2, 1)))
    16
    """
    n = 1
    for factor, _ in signature:
        n *= factor
    return n


def closes(span: Span, axis: Axis) -> bool:
    """Whether the group goes all the way round a ring axis."""
    factor, stride = span
    return axis.geometry == "ring" and factor * stride == axis.size


def turn_of(i: int, signature: Signature, fabric: Fabric) -> tuple[int, ...] | None:
    """Members of each leg that going once round axis i ends further along; empty: none; None: it leaves the group.

    Where every turn stays inside, gathers, scatters and reductions cost what they cost on a plain torus: a chip that
    takes in n_i members along axis i, n_i/2 on either side, and then does so along the next axis, ends with a box of
    the lattice, which holds each member once however the box is moved and whatever the order of the axes. Where a
    turn leaves the group, the links that would close the ring belong to its partner's: what is left is a line. In
    truth the two make one ring of twice the length; that a group could borrow the other half of it is not sold.
    """
    if not fabric.twist:
        return ()
    turn = fabric.twist[i]
    for (factor, stride), axis, moved in zip(signature, fabric.axes, turn, strict=True):
        if moved and (factor * stride != axis.size or moved % stride):
            return None
    inside = [moved // stride for (factor, stride), moved in zip(signature, turn, strict=True) if factor != 1]
    return tuple(inside) if any(inside) else ()


def leg(span: Span, axis: Axis, rate: LinkRate, turn: tuple[int, ...] | None = ()) -> Leg:
    """The network that one axis is to a group, while the groups interleaved with it are busy too (`turn_of`)."""
    factor, stride = span
    if factor < 1 or stride < 1 or factor * stride > axis.size:
        raise InferometerError(
            f"a group of {factor} at stride {stride} does not fit {axis.name!r} of {axis.size} chips"
        )
    if axis.geometry in ("ring", "line"):
        whole = turn is not None and closes(span, axis)
        geometry: Geometry = "ring" if whole else "line"
        shared = rate.bytes_per_s / stride
        return Leg(axis.name, geometry, factor, stride * rate.alpha_s, shared, turn=turn or () if whole else ())
    return Leg(axis.name, axis.geometry, factor, rate.alpha_s, rate.bytes_per_s, axis.reduces, axis.multicast)


def legs(signature: Signature, fabric: Fabric, rates: Sequence[LinkRate]) -> tuple[Leg, ...]:
    """The axes on which the group extends, innermost first."""
    if not len(signature) == len(fabric.axes) == len(rates):
        raise InferometerError(
            f"a fabric of {len(fabric.axes)} axes needs as many spans and rates, got {len(signature)} and {len(rates)}"
        )
    return tuple(
        leg(span, axis, rate, turn_of(i, signature, fabric))
        for i, (span, axis, rate) in enumerate(zip(signature, fabric.axes, rates, strict=True))
        if span[0] != 1
    )
