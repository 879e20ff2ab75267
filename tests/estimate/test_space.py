"""Every sharding and placement, against brute force on small fabrics; stages; what engines and models refuse."""

from itertools import product
from math import prod

import msgspec
import numpy as np
import pytest
from blocks.made_up import axis, model
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics, models

from inferometer.blocks.model import layer_kinds, split_layers, stage_kinds, unit_count
from inferometer.catalog.loader import find_engine
from inferometer.estimate.candidates import GROUP_OF, make_shardings
from inferometer.estimate.estimate import IDEAL
from inferometer.estimate.legality import broken_rules
from inferometer.estimate.space import enumerate_space
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.hardware import Fabric
from inferometer.specs.mixers import Attention

ROLES = ("r", "pp", "dpa", "tp", "ep", "etp", "dcp")


def ways_to_cut(size, moe):
    """Return every (r, pp, dpa, tp, ep, etp, dcp) of one axis, by trying all numbers."""
    numbers = [n for n in range(1, size + 1) if size % n == 0]
    found = []
    for r, pp, dpa, tp, ep, etp, dcp in product(numbers, repeat=7):
        stage = dpa * tp
        if r * pp * stage != size or tp % dcp:
            continue
        if (ep * etp == stage) if moe else (dpa == ep == etp == 1):
            found.append((r, pp, dpa, tp, ep, etp, dcp))
    return found


def brute_force(fabric, moe):
    """Return placements: role factors by axis; alike axes in any order count once."""
    found = {}
    for cuts in product(*(ways_to_cut(a.size, moe) for a in fabric.axes)):
        sizes = tuple(prod(column) for column in zip(*cuts, strict=True))
        alike = {}
        for a, cut in zip(fabric.axes, cuts, strict=True):
            alike.setdefault((a.geometry, a.size, a.bytes_per_s, a.latency_s, a.multicast, a.reduces), []).append(cut)
        found.setdefault(sizes, set()).add(tuple(sorted((k, tuple(sorted(v))) for k, v in alike.items())))
    return found


SMALL = {
    "8 on a switch": (axis(8),),
    "4 and 2": (axis(4), axis(2, "ring", "x1")),
    "2 by 2 alike": (axis(2, "ring"), axis(2, "ring", "x1")),
    "3 on a line": (axis(3, "line"),),
    "2 by 2 by 2 alike": (axis(2, "ring"), axis(2, "ring", "x1"), axis(2, "ring", "x2")),
    "6 and a lone chip": (axis(6, "mesh"), axis(1, name="x1")),
}


@pytest.mark.parametrize("moe", [True, False], ids=["moe", "dense"])
@pytest.mark.parametrize("name", SMALL)
def test_shardings_and_placements_are_all_there_once(name, moe):
    fabric = Fabric(axes=SMALL[name])
    columns, placements = enumerate_space(fabric, moe=moe)
    sizes = list(zip(*(columns[role].astype(int).tolist() for role in ROLES), strict=True))
    expected = brute_force(fabric, moe)
    assert len(set(sizes)) == len(sizes)
    assert set(sizes) == set(expected)
    for i, one in enumerate(sizes):
        assert int(placements.start[i + 1] - placements.start[i]) == len(expected[one]), one


@settings(max_examples=60)
@given(fabrics(), st.booleans())
def test_no_pair_is_listed_twice_and_every_role_spans_its_size(fabric, moe):
    columns, placements = enumerate_space(fabric, moe=moe)
    assert (columns["r"] * columns["pp"] * columns["dpa"] * columns["tp"] == fabric.n_chips).all()
    if moe:
        assert (columns["dpa"] * columns["tp"] == columns["ep"] * columns["etp"]).all()
    for i in range(len(columns["r"])):
        seen = set()
        for pair in range(placements.start[i], placements.start[i + 1]):
            spans = {role: placements.signature(role, i, pair) for role in GROUP_OF}
            seen.add(tuple(sorted(spans.items())))
            for role, want in [*((r, columns[r][i]) for r in GROUP_OF if r != "stage"), ("stage", None)]:
                reach = prod(factor for factor, _ in spans[role])
                assert reach == (columns["dpa"][i] * columns["tp"][i] if want is None else want)
                assert all(f * s <= a.size for (f, s), a in zip(spans[role], fabric.axes, strict=True))
        assert len(seen) == placements.start[i + 1] - placements.start[i]


@settings(max_examples=60)
@given(fabrics(), st.booleans(), st.data())
def test_pinned_sizes_pick_the_same_candidates(fabric, moe, data):
    columns, placements = enumerate_space(fabric, moe=moe)
    i = data.draw(st.integers(0, len(columns["r"]) - 1))
    roles = data.draw(st.lists(st.sampled_from(ROLES), unique=True))
    fixed = {role: int(columns[role][i]) for role in roles}
    some, fewer = enumerate_space(fabric, moe=moe, fixed=fixed)
    keep = np.all([columns[role] == size for role, size in fixed.items()], axis=0) & np.ones(len(columns["r"]), bool)
    assert {r: c.tolist() for r, c in some.items()} == {r: c[keep].tolist() for r, c in columns.items()}
    assert np.diff(fewer.start).tolist() == np.diff(placements.start)[keep].tolist()


@pytest.mark.parametrize("rule", ["even", "vllm"])
@given(st.integers(1, 130), st.integers(1, 40))
def test_layers_are_split_into_stages_that_differ_by_one(rule, layers, stages):
    if stages <= layers:
        splits = split_layers(layers, stages, rule)
        assert (len(splits), sum(splits)) == (stages, layers)
        assert max(splits) - min(splits) <= 1


def test_vllm_spares_the_last_stage_that_holds_the_head():
    assert split_layers(61, 8, "vllm")[-1] == min(split_layers(61, 8, "vllm"))


@given(models(), st.integers(1, 8), st.sampled_from(["even", "vllm"]))
def test_stage_kinds_hold_every_layer_once(spec, stages, rule):
    if stages <= unit_count(spec):
        kinds = stage_kinds(spec, split_layers(unit_count(spec), stages, rule))
        held = np.array([np.array(kind.multiplicities) * kind.count for kind in kinds]).sum(axis=0)
        assert held[:-3].tolist() == [kind.visits * spec.layers.count(kind) for kind in layer_kinds(spec)]
        assert held[-3:].tolist() == [1, 1, stages - 1]
        assert sum(kind.count for kind in kinds) == stages
        assert len({kind.multiplicities for kind in kinds}) == len(kinds)


def test_make_shardings_pads_shallow_ones_with_empty_stages():
    spec = model(Attention(heads=4, kv_heads=4, head_dim=32), Ffn(width=256), layers=4)
    made = make_shardings(spec, {"pp": np.array([1.0, 4.0]), "tp": np.ones(2)}, "even")
    assert made.stage_counts.sum(axis=0).tolist() == [1, 4]
    assert (made.multiplicities[0, 0] * made.stage_counts[0]).tolist() == [4, 1]


def broken(spec, engine=IDEAL, **sizes):
    columns = {role: np.array([float(sizes.get(role, 1))]) for role in ROLES}
    return {rule.name for rule in broken_rules(spec, engine, columns) if rule.broken.any()}


def heads(n, kv):
    return model(Attention(heads=n, kv_heads=kv, head_dim=128), Ffn(width=96 * 128))


def test_36_heads_may_take_tp_12():
    assert broken(heads(36, 36), tp=12) == set()


def test_heads_kv_heads_and_width_must_divide():
    assert broken(heads(8, 8), tp=3) >= {"heads-not-divisible", "kv-heads-not-divisible"}
    assert broken(heads(12, 8), tp=12) == {"kv-heads-not-divisible"}
    assert broken(heads(16, 8), tp=16) == set()
    assert "tp-exceeds-heads" in broken(heads(8, 8), tp=16)
    assert "width-not-divisible" in broken(model(Attention(heads=8, kv_heads=8, head_dim=128), Ffn(width=250)), tp=4)


def fp8_experts(width, n=128):
    formats = dict.fromkeys(("gate", "up", "down"), "fp8-block")
    return model(Attention(heads=64, kv_heads=4, head_dim=128), Moe(experts=n, top_k=8, width=width, formats=formats))


def test_fp8_blocks_of_128_may_not_be_cut_by_an_engine():
    vllm = find_engine("vllm@0.24")
    assert "block-not-divisible" in broken(fp8_experts(1536), vllm, tp=8, etp=8)
    assert "block-not-divisible" in broken(fp8_experts(768), vllm, tp=4, etp=4)
    assert broken(fp8_experts(1536), vllm, tp=8, ep=8) == set()
    assert broken(fp8_experts(1536), tp=8, etp=8) == set()


def test_stages_experts_and_context_shards_have_limits():
    assert broken(heads(8, 8), pp=3) == {"stages-exceed-layers"}
    assert broken(heads(8, 8), tp=4, dcp=3) >= {"dcp-not-divisor"}
    assert "ep-exceeds-experts" in broken(fp8_experts(256, n=8), ep=16)
    assert "engine-refuses-ep" in broken(fp8_experts(256), find_engine("vllm"), tp=4, ep=2, etp=2)
    assert "experts-not-divisible" in broken(fp8_experts(256), find_engine("vllm"), tp=6, ep=6)
    assert "engine-refuses-dcp" in broken(heads(8, 8), find_engine("vllm"), tp=8, dcp=2)


def test_an_engine_that_pads_the_vocabulary_divides_it():
    """96 heads and a vocabulary of 151552 = 64 x 2368: 2368 x 64 is no multiple of 6 (vllm issue 31474)."""
    spec = msgspec.structs.replace(heads(96, 96), vocab=151552)
    assert broken(spec, find_engine("vllm"), tp=6) == {"vocabulary-not-divisible"}
    assert broken(spec, find_engine("vllm"), tp=8) == set()
    assert broken(spec, tp=6) == set()
