import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.catalog.chips import load_chips
from inferometer.catalog.machines import (
    find_machine,
    load_instances,
    load_machines,
    machine_file,
    machine_from_table,
    machines_from_rows,
)
from inferometer.catalog.slices import build_machine, cubic_slice, parse_sizes
from inferometer.errors import InferometerError, UnknownNameError

WRAPS = {"tpu-v5e-pod": 16, "tpu-v6e-pod": 16, "aws-inf2": 12}
"""Chips along an axis of which a multiple closes, where it is not four: the full axis only."""


def axes(*args):
    return [(a.name, a.geometry, a.size) for a in build_machine(*args).fabric.axes]


@pytest.mark.parametrize("machine", load_machines().values(), ids=lambda m: m.id)
def test_every_machine_is_whole_and_sourced(machine):
    assert machine.chip in load_chips() or machine.chip == "any"
    for level in machine.levels:
        assert level.bytes_per_s > 0
        assert level.latency_s > 0
        assert machine.sources[f"{level.name}.bytes_per_s"]
        assert f"{level.name}.latency_s" in machine.assumed
    if machine.torus:
        torus, beyond = machine.levels[: machine.dimensions], machine.levels[machine.dimensions :]
        assert {(lv.geometry, lv.wrap_multiple) for lv in torus} == {("ring", WRAPS.get(machine.id, 4))}
        assert [lv.geometry for lv in beyond] == ["switch"]
    elif machine.levels[0].geometry == "switch" and machine.levels[0].name == "nvlink":
        assert [lv.name for lv in machine.levels] == ["nvlink", "network"]
        assert machine.levels[1].geometry == "switch"


def test_rates_are_per_direction_of_a_port_or_of_one_link():
    assert find_machine("hgx-h100").levels[0].bytes_per_s == 450e9
    assert find_machine("hgx-h100").levels[1].bytes_per_s == 400e9 / 8
    assert find_machine("hgx-mi300x").levels[0].bytes_per_s == 64e9
    assert find_machine("tpu-v5p-pod").levels[0].bytes_per_s == 90e9
    assert find_machine("tpu-v7x-pod").levels[0].bytes_per_s == 100e9
    assert find_machine("workstation-rtx4090").levels[0].bytes_per_s == 15e9


def test_latencies():
    step = {"nvlink": 1e-6, "x": 1e-6, "pcie": 5e-6, "xgmi": 5e-6, "network": 5e-6}
    for machine in load_machines().values():
        for level in machine.levels:
            if level.name in step:
                assert level.latency_s == pytest.approx(step[level.name])


def test_only_nvswitch_3_and_later_reduces_and_multicasts():
    for machine in load_machines().values():
        for level in machine.levels:
            switch = level.name == "nvlink" and level.geometry == "switch" and level.max_size > 1
            later = switch and not machine.chip.startswith("a100")
            assert (level.reduces, level.multicast) == (later, later), machine.id


@pytest.mark.parametrize("instance", load_instances().values(), ids=lambda i: i.name)
def test_an_instance_stands_where_a_chip_does(instance):
    machine = build_machine(instance.name)
    assert machine.chip.id == find_machine(instance.machine).chip
    assert machine.fabric.n_chips == instance.chips


def test_chips_times_nodes():
    assert axes("h100", "8x2") == [("nvlink", "switch", 8), ("network", "switch", 2)]
    assert axes("h100", "8") == axes("h100", "8x1") == axes("h100", " 8 X 1 ") == axes("h100", "8×1")
    assert axes("gb200-nvl72", "32x1") == [("nvlink", "switch", 32), ("network", "switch", 1)]
    assert axes("mi300x", "8x2")[0] == ("xgmi", "mesh", 8)
    assert axes("4090", "4x1")[0] == ("pcie", "pcie", 4)
    assert build_machine("h100", "8x2").label == "8x2"


def test_a_slice_closes_where_it_spans_a_multiple_of_four():
    assert [a[1:] for a in axes("tpu-v5p", "4x4x8")] == [("ring", 4), ("ring", 4), ("ring", 8)]
    assert [a[1:] for a in axes("tpu-v7x", "2x4x6")] == [("line", 2), ("ring", 4), ("line", 6)]
    assert axes("tpu-v5p", "4x4") == axes("tpu-v5p", "4x4x1")
    assert axes("tpu-v5p", "28x4x4") != axes("tpu-v5p", "4x4x28")
    assert [a[2] for a in axes("tpu-v5p", "8")] == [2, 2, 2]


def test_machines_and_instances_in_either_place():
    assert axes("p5.48xlarge") == axes("h100", "p5.48xlarge") == axes("aws-p5", None, 8)
    assert axes("p5.48xlarge", "8x4")[1] == ("network", "switch", 4)
    assert axes("h100", "aws-p5", 16) == axes("p5.48xlarge", "8x2")
    assert build_machine("h100", "p5.48xlarge").label == "p5.48xlarge"
    assert build_machine("gcp-a3-mega").fabric.axes[1].bytes_per_s == 25e9
    assert axes("Standard_ND96isr_H100_v5") == axes("h100", "8x1")
    assert axes("gb200", "gb200-nvl72")[0][2] == 72
    assert math.prod(a[2] for a in axes("ct5p-hightpu-4t")) == 4


def test_without_a_machine_as_few_equal_nodes_as_hold_the_chips():
    assert build_machine("h100").label == "1x1"
    assert build_machine("h100", None, 8).label == "8x1"
    assert build_machine("h100", None, 12).label == "6x2"
    assert build_machine("h100", None, 64).label == "8x8"
    assert build_machine("gb200", None, 64).label == "64x1"
    assert build_machine("tpu-v5p", None, 64).label == "4x4x4"
    assert build_machine("m2-ultra").label == "1"


@given(st.integers(1, 4096), st.sampled_from(["h100", "gb200", "a100-80gb", "mi300x"]))
def test_the_fabric_has_the_chips_asked_for(n, chip):
    fabric = build_machine(chip, None, n).fabric
    assert fabric.n_chips == n
    inner = find_machine(load_chips()[build_machine(chip).chip.id].default_machine).levels[0].max_size
    fewer = [m for m in range(1, fabric.axes[1].size) if n % m == 0 and n // m <= inner]
    assert fewer == []


@given(st.tuples(*[st.integers(1, 16)] * 3))
def test_the_cubic_slice_is_no_longer_than_any_other(sides):
    found = cubic_slice(math.prod(sides), (16, 20, 28))
    assert math.prod(found) == math.prod(sides)
    assert sum(found) <= sum(sides)


@pytest.mark.parametrize(
    "text",
    ["", " ", "0x2", "8x0", "-8x2", "8x-2", "8x", "x8", "8xx2", "8.5x2", "+8", "9x1", "8x2x2", "1000x4000", "8x5000",
     "9" * 5000, "999999999999x1", "1e3", "tpu-v5p-pod", "p5e.48xlarge", "nonsense", "8x2 please", "٨x٢"],
)  # fmt: skip
def test_a_bad_machine_is_one_clear_line(text):
    with pytest.raises(InferometerError) as error:
        build_machine("h100", text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["4x4x4x4x4", "32x4x4", "21x21x1", "4x4x4x5000", "0x4x4", "29"])
def test_a_bad_slice_is_refused(text):
    with pytest.raises(InferometerError):
        build_machine("tpu-v5p", text)


@pytest.mark.parametrize("n", [0, -1, 1_000_001, 10**30])
def test_absurd_numbers_of_chips_are_refused(n):
    with pytest.raises(InferometerError, match="from 1 to 1000000"):
        build_machine("h100", None, n)


def test_names_that_do_not_decide():
    with pytest.raises(InferometerError, match="choose one of: a100-40-pcie, a100-40-sxm, a100-80-pcie, a100-80-sxm"):
        build_machine("a100")
    with pytest.raises(InferometerError, match="gcp-a3-high, gcp-a3-mega, gcp-a3-ultra"):
        build_machine("gcp-a3")
    with pytest.raises(UnknownNameError, match=r"did you mean 'p5\.48xlarge'"):
        build_machine("p5.48xlrge")
    with pytest.raises(InferometerError, match="carries h200-sxm, not h100-sxm"):
        build_machine("h100", "aws-p5en")
    with pytest.raises(InferometerError, match="name a chip first"):
        build_machine("generic-pcie")


@given(st.text(max_size=30))
def test_any_text_is_sizes_a_name_or_one_error(text):
    try:
        sizes = parse_sizes(text)
    except InferometerError:
        return
    assert sizes is None or all(s >= 1 for s in sizes)


FILE = """
id = "box"
chip = "h100-sxm"
[[levels]]
name = "nvlink"
geometry = "switch"
max_size = 4
bytes_per_s = "300 GB/s"
latency_s = "2 us"
"""


def test_a_machine_of_ones_own(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text(FILE)
    assert machine_file(path).levels[0].latency_s == pytest.approx(2e-6)
    assert axes(str(path)) == axes("h100", str(path)) == [("nvlink", "switch", 4)]
    assert axes(str(path), "2") == [("nvlink", "switch", 2)]
    with pytest.raises(InferometerError):
        build_machine(str(path), "5")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"switch"', '"star"'),
        ("max_size = 4", "max_size = 0"),
        ('"300 GB/s"', '"300 GB"'),
        ("[[levels]]", "[levels]"),
        ('chip = "h100-sxm"', ""),
    ],
)
def test_a_bad_machine_file_names_the_file(tmp_path, old, new):
    path = tmp_path / "box.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InferometerError, match=r"box\.toml"):
        machine_file(path)


def test_a_chip_of_ones_own_on_a_machine_of_the_catalogue(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('id = "mine"\nmemory_bytes = "1 GiB"\nmemory_bytes_per_s = 1e9\npeak_flops_per_s = {bf16 = 1e12}\n')
    assert axes(str(path), "8x2") == [("pcie", "pcie", 8), ("network", "switch", 2)]
    assert axes(str(path), "aws-p5", 8)[0] == ("nvlink", "switch", 8)


def test_levels_and_machines_must_match():
    machine = {"machine": "m", "chip": "c", "torus": "no", "source": "s", "date": "d", "confidence": "A"}
    with pytest.raises(InferometerError, match="no level"):
        machines_from_rows([machine], [], [])
    with pytest.raises(UnknownNameError):
        machines_from_rows([machine], [{"machine": "other"}], [])
    level = {"machine": "m", "name": "l", "source": "s", "latency_source": "s", "date": "d", "confidence": "A",
             "geometry": "switch", "max_size": "1", "bandwidth": "1 GB/s", "latency": "1 us", "multicast": "?",
             "reduces": "no", "wrap_multiple": "0"}  # fmt: skip
    with pytest.raises(InferometerError, match="neither yes nor no"):
        machines_from_rows([machine], [level], [])


def test_one_node_of_a_machine_without_a_network_is_itself():
    assert axes("m3-max", "1x1") == axes("m3-max")
    with pytest.raises(InferometerError, match="no more chips than 1"):
        build_machine("m3-max", "1x2")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("h200", "8x2"), "8x2"),
        (("hgx-h200", "8x2"), "8x2"),
        (("gcp-a3-high", "8x2"), "gcp-a3-high 8x2"),
        (("a3-highgpu-8g", "8x2"), "a3-highgpu-8g 8x2"),
        (("h100", "p5.48xlarge"), "p5.48xlarge"),
        (("P5.48xlarge",), "p5.48xlarge 8x1"),
    ],
)
def test_what_is_not_the_usual_machine_is_named(words, name):
    assert build_machine(*words).name == name


def test_aliases_are_suggested():
    with pytest.raises(UnknownNameError, match="did you mean 'h100-sxm5'"):
        build_machine("h100-smx5")


@pytest.mark.parametrize(
    ("chip", "text", "label", "turns"),
    [
        ("tpu-v5p", "4x4x8", "4x4x8_twisted", ((0, 0, 4), (0, 0, 4), (0, 0, 0))),
        ("tpu-v5p", "4x4x8_untwisted", "4x4x8_untwisted", ()),
        ("tpu-v5p", "128", "128_twisted", ((0, 0, 4), (0, 0, 4), (0, 0, 0))),
        ("tpu-v5p", "8x16x16", "8x16x16_twisted", ((0, 8, 8), (0, 0, 0), (0, 0, 0))),
        ("tpu-v5p", "4x4x8x2", "4x4x8x2_twisted", ((0, 0, 4, 0), (0, 0, 4, 0), (0, 0, 0, 0), (0, 0, 0, 0))),
        ("tpu-v5p", "4x4x4", "4x4x4", ()),
        ("tpu-v5p", "4x4x16", "4x4x16", ()),
        ("tpu-v5p", "2x4x4", "2x4x4", ()),
        ("tpu-v5p", "4x8x16", "4x8x16", ()),
        ("tpu-v4", "4x4x8", "4x4x8", ()),
        ("tpu-v4", "8x4x8_Twisted", "8x4x8_Twisted", ((0, 0, 0), (4, 0, 4), (0, 0, 0))),
        ("tpu-v7", "4x4x8", "4x4x8", ()),
    ],
)
def test_a_slice_is_twisted_where_its_product_is_by_default_or_on_request(chip, text, label, turns):
    machine = build_machine(chip, text)
    assert (machine.label, machine.fabric.twist) == (label, turns)
    assert build_machine(chip, label) == machine


def test_where_a_slice_is_twisted_is_sourced():
    twisted = {m.id: m for m in load_machines().values() if m.twist != "never"}
    assert {name: m.twist for name, m in twisted.items()} == {"tpu-v4-pod": "offered", "tpu-v5p-pod": "default"}
    assert all(m.sources["twist"] and m.torus and m.dimensions == 3 for m in twisted.values())


@pytest.mark.parametrize(
    ("chip", "text", "says"),
    [
        ("tpu-v5p", "4x4x4_twisted", "a multiple of 4, as in 4x4x8_twisted"),
        ("tpu-v5p", "2x2x4_twisted", "a multiple of 4"),
        ("tpu-v5p", "4x8x16_twisted", "k x k x 2k or k x 2k x 2k"),
        ("tpu-v7", "4x4x8_twisted", "tpu-v7x-pod has no twisted slices"),
        ("h200", "8x2_untwisted", "hgx-h200 has no twisted slices"),
        ("tpu-v5p", "4x4x8_twistd", "_twisted, _untwisted or nothing"),
        ("tpu-v5p", "4x4x8_", "_twisted, _untwisted or nothing"),
    ],
)
def test_a_twist_that_is_not_offered_is_one_clear_line(chip, text, says):
    with pytest.raises(InferometerError, match=says) as error:
        build_machine(chip, text)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_levels_of_one_name_are_refused():
    level = {"name": "nvlink", "geometry": "switch", "max_size": 8, "bytes_per_s": "450 GB/s", "latency_s": "1 us"}
    levels = [level, level]
    with pytest.raises(InferometerError, match="each level has a name of its own, not nvlink, nvlink"):
        machine_from_table("mine.toml", {"id": "mine", "chip": "h100-sxm", "levels": levels})
