"""Laws that every collective keeps on every fabric, and the tables made of them."""

from itertools import pairwise
from math import inf, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.cost.collectives import (
    KINDS,
    Line,
    LinkRate,
    collective_lines,
    envelope_table,
    lower_envelope,
)
from inferometer.cost.groups import Signature, group_size, legs
from inferometer.errors import InferometerError, UnknownNameError
from inferometer.specs.hardware import Axis, Fabric

CLOSE = 1 + 1e-9


def axis(geometry, size, name="x", *, capable=False):
    return Axis(
        name=name,
        geometry=geometry,
        size=size,
        bytes_per_s=1e9,
        latency_s=1e-6,
        multicast=capable,
        reduces=capable,
    )


@st.composite
def cases(draw):
    """A fabric of up to three axes, a group on it, and rates."""
    axes, spans, rates = [], [], []
    for i in range(draw(st.integers(1, 3))):
        factor, stride, more = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
        geometry = draw(st.sampled_from(["switch", "mesh", "pcie", "ring", "line"]))
        capable = draw(st.booleans()) and geometry == "switch"
        axes.append(axis(geometry, factor * stride * more, f"x{i}", capable=capable))
        spans.append((factor, stride))
        rates.append(LinkRate(draw(st.floats(1e-7, 1e-4)), draw(st.floats(1e8, 1e12))))
    return Fabric(axes=tuple(axes)), tuple(spans), tuple(rates)


kinds = st.sampled_from(KINDS)
sizes = st.one_of(st.just(0.0), st.floats(1, 1e12))


def cheapest(kind, signature, fabric, rates, n_bytes) -> float:
    return min(x.seconds(n_bytes) for x in collective_lines(kind, signature, fabric, rates))


@given(cases(), kinds, sizes, st.tuples(st.integers(0, 2), st.floats(1, 10), st.floats(0.01, 1)))
def test_time_never_rises_when_a_rate_rises_or_a_latency_falls(case, kind, n_bytes, change):
    fabric, signature, rates = case
    which, faster, sooner = change
    which %= len(rates)
    before = cheapest(kind, signature, fabric, rates, n_bytes)
    better = list(rates)
    better[which] = LinkRate(rates[which].alpha_s * sooner, rates[which].bytes_per_s * faster)
    assert cheapest(kind, signature, fabric, better, n_bytes) <= before * CLOSE


@given(cases(), kinds, sizes, sizes)
def test_time_never_falls_when_the_bytes_rise(case, kind, a, b):
    fabric, signature, rates = case
    for line in collective_lines(kind, signature, fabric, rates):
        assert line.alpha_s >= 0
        assert line.seconds(min(a, b)) <= line.seconds(max(a, b))


@given(cases(), kinds)
def test_no_algorithm_moves_less_than_must_arrive_or_faster_than_the_group_takes_in(case, kind):
    fabric, signature, rates = case
    n = group_size(signature)
    intake = sum(x.bytes_per_s for x in legs(signature, fabric, rates))
    for line in collective_lines(kind, signature, fabric, rates):
        if n == 1:
            assert line == Line("none", 0.0, 0.0)
            continue
        must = (n - 1) / n
        if kind == "all-reduce":  # n chips move 2(n-1) S; with the switch's help S must still arrive at each
            must = 1 if "in-switch" in line.algorithm else 2 * must
        assert line.s_per_byte * CLOSE >= must / intake


@given(cases(), kinds)
def test_no_algorithm_needs_fewer_steps_than_the_farthest_members_are_apart(case, kind):
    fabric, signature, rates = case
    parts = legs(signature, fabric, rates)
    flat = sum(x.alpha_s for x in parts)
    for line in collective_lines(kind, signature, fabric, rates):
        if kind == "p2p":
            assert line.alpha_s == max((x.alpha_s for x in parts), default=0.0)
        elif parts:
            assert line.alpha_s * CLOSE >= flat


@given(cases(), kinds, st.lists(sizes, min_size=1, max_size=8))
def test_the_envelope_is_the_least_of_all_lines(case, kind, many):
    fabric, signature, rates = case
    lines = collective_lines(kind, signature, fabric, rates)
    kept = lower_envelope(lines)
    assert set(kept) <= set(lines)
    for n_bytes in many:
        least = min(x.seconds(n_bytes) for x in lines)
        assert min(x.seconds(n_bytes) for x in kept) == pytest.approx(least, rel=1e-9)


@given(st.lists(st.builds(Line, st.just("x"), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
def test_the_envelope_keeps_no_line_that_is_nowhere_cheapest(lines):
    kept = lower_envelope(lines)
    assert [x.alpha_s for x in kept] == sorted({x.alpha_s for x in kept})
    assert [-x.s_per_byte for x in kept] == sorted({-x.s_per_byte for x in kept})
    turns = [
        (b.alpha_s - a.alpha_s) / (a.s_per_byte - b.s_per_byte) for a, b in pairwise(kept)
    ]  # from here on b is the cheaper
    assert turns == sorted(set(turns))
    for n_bytes in [0.0, *turns, 1e6]:
        assert min(x.seconds(n_bytes) for x in kept) == pytest.approx(min(x.seconds(n_bytes) for x in lines))


H100 = Fabric(axes=(axis("switch", 8, "nvlink", capable=True), axis("switch", 4, "nic")))
RATES = (LinkRate(1e-6, 450e9), LinkRate(5e-6, 50e9))
SIGNATURES: list[Signature] = [((1, 1), (1, 1)), ((8, 1), (1, 1)), ((4, 2), (4, 1)), ((1, 1), (2, 2))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_holds_the_envelope_of_every_signature(kind):
    alpha, beta, names = envelope_table(kind, SIGNATURES, H100, RATES)
    assert alpha.shape == beta.shape == (len(names), len(SIGNATURES))
    assert alpha.dtype == beta.dtype == np.float64
    for j, signature in enumerate(SIGNATURES):
        envelope = lower_envelope(collective_lines(kind, signature, H100, RATES))
        column = [(names[i][j], alpha[i, j], beta[i, j]) for i in range(len(names))]
        padding = [("", inf, 0.0)] * (len(names) - len(envelope))
        assert column == [*envelope, *padding]
    for n_bytes in (0.0, 1e3, 1e6, 1e9):
        least = [cheapest(kind, s, H100, RATES, n_bytes) for s in SIGNATURES]
        assert np.min(alpha + n_bytes * beta, axis=0) == pytest.approx(least)


def test_a_table_is_no_deeper_than_its_deepest_envelope():
    alpha, _, _ = envelope_table("all-gather", SIGNATURES[:2], H100, RATES)
    assert alpha.shape == (1, 2)
    assert envelope_table("all-gather", [], H100, RATES)[0].shape == (0, 0)


def test_only_the_algorithms_named_are_offered():
    names = frozenset({"ring", "two-shot"})
    lines = collective_lines("all-reduce", ((8, 1), (1, 1)), H100, RATES, only=names)
    assert {x.algorithm for x in lines} == names
    lines = collective_lines("all-reduce", ((8, 1), (4, 1)), H100, RATES, only=frozenset({"ring"}))
    assert {x.algorithm for x in lines} == {"ring"}
    lines = collective_lines("all-reduce", ((8, 1), (4, 1)), H100, RATES, only=frozenset({"ring", "hierarchical"}))
    assert {x.algorithm for x in lines} == {"ring", "hierarchical(ring@nvlink > ring@nic)"}
    alpha, _, names_left = envelope_table("all-to-all", SIGNATURES, H100, RATES, only=frozenset({"ring"}))
    assert list(alpha[0]) == [0.0, inf, inf, inf]
    assert names_left == [["none", "", "", ""]]


@given(cases(), kinds, st.sets(st.sampled_from(["ring", "line", "direct", "one-shot", "torus", "hierarchical"])))
def test_a_mask_never_makes_a_collective_cheaper(case, kind, names):
    fabric, signature, rates = case
    for line in collective_lines(kind, signature, fabric, rates, only=frozenset(names)):
        for n_bytes in (0.0, 1e4, 1e8):
            assert line.seconds(n_bytes) * CLOSE >= cheapest(kind, signature, fabric, rates, n_bytes)


def test_in_switch_takes_a_switch_that_can():
    for capable in (True, False):
        fabric = Fabric(axes=(axis("switch", 8, capable=capable),))
        lines = collective_lines("all-reduce", ((8, 1),), fabric, [RATES[0]])
        assert any(x.algorithm == "in-switch" for x in lines) == capable


@pytest.mark.parametrize("geometry", ["switch", "pcie", "mesh"])
def test_a_stride_divides_nothing_where_no_link_is_shared(geometry):
    fabric = Fabric(axes=(axis(geometry, 8),))
    for kind in KINDS:
        near, far = (collective_lines(kind, ((4, s),), fabric, [RATES[0]]) for s in (1, 2))
        assert near == far


def test_a_ring_wraps_only_where_the_group_goes_all_the_way_round():
    fabric = Fabric(axes=(axis("ring", 16),))
    for span, wraps in (((16, 1), True), ((8, 2), True), ((8, 1), False), ((4, 2), False)):
        names = {x.algorithm for x in collective_lines("all-gather", (span,), fabric, [RATES[0]])}
        assert names == ({"ring", "bidirectional-ring"} if wraps else {"line"})


@pytest.mark.parametrize(("span", "size"), [((4, 4), 8), ((0, 1), 8), ((2, 0), 8)])
def test_a_group_that_does_not_fit_its_axis_is_refused(span, size):
    with pytest.raises(InferometerError, match="does not fit"):
        collective_lines("p2p", (span,), Fabric(axes=(axis("ring", size),)), [RATES[0]])


def test_a_group_needs_a_span_and_a_rate_for_every_axis():
    with pytest.raises(InferometerError, match="2 axes"):
        collective_lines("p2p", ((2, 1),), H100, RATES)
    with pytest.raises(InferometerError, match="2 axes"):
        collective_lines("p2p", ((2, 1), (1, 1)), H100, RATES[:1])


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="did you mean 'all-reduce'"):
        collective_lines("allreduce", SIGNATURES[0], H100, RATES)
    with pytest.raises(UnknownNameError, match="known"):
        envelope_table("broadcast", SIGNATURES, H100, RATES)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4))
def test_a_group_has_the_product_of_its_factors(spans):
    assert group_size(tuple(spans)) == prod(f for f, _ in spans)
