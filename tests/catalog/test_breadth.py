"""The wide catalogue: figures with their derivations, links, wrap rules, names, and machines of every size."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.catalog.chips import find_chip, load_chips
from inferometer.catalog.machines import find_machine, load_instances, load_machines, machine_file
from inferometer.catalog.prices import default_price, load_prices, quote
from inferometer.catalog.slices import build_machine, subject
from inferometer.cost.collectives import collective_lines
from inferometer.cost.groups import LinkRate
from inferometer.errors import InferometerError

GIB, MIB, TERA, GIGA = 2**30, 2**20, 10**12, 10**9


def peak(chip, kind):
    return find_chip(chip).peak_flops_per_s[kind] / TERA


def axes(*args):
    return [(a.name, a.geometry, a.size) for a in build_machine(*args).fabric.axes]


@pytest.mark.parametrize(
    ("chip", "kind", "tflops"),
    [
        ("dgx-spark", "bf16", 48 * 4 * 128 * 2 * 2.418e-3),  # SMs x tensor cores x FMAs a clock x 2 x GHz
        ("b300", "fp4", 108e3 / 8),  # a DGX is sold with 108 PFLOP/s dense
        ("gaudi3", "bf16", 1835 * 1.6 / 1.75),  # the whitepaper's clock was not shipped
        ("mi350x", "bf16", 2516 * 2200 / 2400),  # an MI355X at a lower clock
        ("mi355x", "fp8", 2 * 2516),  # 10.1 PFLOP/s is with sparsity
        ("h200-nvl", "fp8", 2 * 835.5),
        ("l40", "bf16", 362 / 2),  # 362 is with sparsity
        ("trn2", "fp8", 1299),  # 2563 is with 4:1 sparsity
        ("mi250x-gcd", "bf16", 383 / 2),
        ("mi250", "fp16", 208 * 1024 * 1.7e-3),  # compute units x operations a clock x GHz
        ("rtx4000-ada", "fp8", 427.6 / 2),  # sold with the figure of sparse FP8
        ("rtx5000-ada", "bf16", 1044.4 / 4),
        ("m3-max-30c", "fp16", 14.2 * 30 / 40),
        ("m4-max-32c", "fp16", 18.4 * 32 / 40),
    ],
)
def test_dense_peaks(chip, kind, tflops):
    assert peak(chip, kind) == pytest.approx(tflops, rel=3e-3)


def test_geforce_boards_accumulate_at_half_the_rate_of_professional_ones():
    for name in ("rtx3060", "rtx3070", "rtx3080-ti", "rtx4060", "rtx4070", "rtx4070-ti", "rtx5080", "rtx5090"):
        assert peak(name, "bf16") == pytest.approx(2 * peak(name, "fp32"), rel=2e-2)  # 64 FMAs a tensor core and clock
    for name in ("a40", "rtx4000-ada", "rtx5000-ada", "rtx6000-ada", "rtxpro6000-ws"):  # 128
        assert peak(name, "bf16") == pytest.approx(4 * peak(name, "fp32"), rel=2e-2)


@pytest.mark.parametrize(
    ("chip", "n_bytes"),
    [
        ("b300", 275040 * MIB),
        ("gb300", 284208 * MIB),
        ("a10g", 22888 * MIB),
        ("t4", 15 * GIB),
        ("mi355x", 288 * GIB),
        ("tpu-v6e", 32 * GIB),
        ("trn3", 144 * GIB),
        ("dgx-spark", 119 * GIB),
        ("h20", int(96 * GIB * 0.975)),
        ("gaudi3", 128 * GIB),
        ("m3-ultra", 512 * GIB),
    ],
)
def test_visible_bytes(chip, n_bytes):
    assert find_chip(chip).memory_bytes == n_bytes


def test_integer_arithmetic_that_was_cut_is_kept_cut():
    assert peak("b300", "int8") == 150
    assert peak("gb300", "int8") == 165
    assert peak("h20", "bf16") == 148


def test_what_is_recalled_or_derived_is_assumed():
    for chip in (
        "l40",
        "rtx3070",
        "rtx5000-ada",
        "ascend-910b",
        "strix-halo",
        "jetson-orin",
        "m3-max-30c",
        "m4-max-32c",
    ):
        assert "peak_flops_per_s.bf16" in find_chip(chip).assumed
    assert {"peak_flops_per_s.fp8", "peak_flops_per_s.fp4"} <= set(find_chip("mi455x").assumed)
    assert "peak_flops_per_s.bf16" not in find_chip("mi455x").assumed


@pytest.mark.parametrize(
    ("machine", "chip_gb_per_s"),
    [
        ("hgx-mi325x", 7 * 64),
        ("hgx-mi355x", 7 * 76.8),
        ("hls-gaudi2", 7 * 3 * 100 / 8),
        ("hls-gaudi3", 7 * 3 * 200 / 8),
        ("node-mi300a", 3 * 2 * 64),
        ("server-h200-nvl", 3 * 150),
        ("hgx-v100", 6 * 25),
        ("tpu-v4-pod", 6 * 45),
        ("tpu-v5e-pod", 4 * 50),
        ("tpu-v6e-pod", 4 * 100),
        ("aws-trn1", 4 * 48),
        ("aws-trn2", 4 * 128),
        ("aws-trn2-ultra", 4 * 128 + 2 * 64),
        ("aws-inf2", 2 * 48),
        ("cloudmatrix384", 392),
        ("aws-trn3", 1100),
        ("vera-rubin-nvl72", 1800),
    ],
)
def test_a_chip_s_links_add_up(machine, chip_gb_per_s):
    spec = find_machine(machine)
    total = 0.0
    for level in spec.levels[: spec.dimensions]:
        links = {"ring": 2, "mesh": level.max_size - 1}.get(level.geometry, 1)
        total += links * level.bytes_per_s / GIGA
    assert total == pytest.approx(chip_gb_per_s, rel=1e-3)


@pytest.mark.parametrize(
    ("machine", "nics", "gbit_per_s", "chips"),
    [
        ("hgx-b300", 8, 800, 8),
        ("aws-p6-b300", 16, 400, 8),
        ("gb300-nvl72", 72, 800, 72),
        ("vera-rubin-nvl72", 144, 800, 72),
        ("mi455x-helios", 216, 800, 72),
        ("hgx-v100", 4, 100, 8),
        ("aws-p3dn", 1, 100, 8),
        ("hls-gaudi3", 8 * 3, 200, 8),
        ("aws-trn1n", 16, 100, 16),
        ("aws-trn2", 16, 200, 16),
        ("aws-trn3", 1, 28_800, 144),
        ("aws-trn3-gen1", 1, 12_800, 64),
        ("aws-g5", 1, 100, 8),
        ("azure-nc-h100-nvl", 1, 80, 2),
        ("tpu-v5p-pod", 1, 200, 4),
        ("tpu-v5e-pod", 2, 100, 8),
        ("tpu-v6e-pod", 4, 200, 8),
        ("tpu-v7x-pod", 1, 400, 4),
        ("dgx-spark-pair", 1, 200, 1),
    ],
)
def test_a_chip_s_share_of_its_nics(machine, nics, gbit_per_s, chips):
    assert find_machine(machine).levels[-1].bytes_per_s == pytest.approx(nics * gbit_per_s / 8 / chips * GIGA, rel=3e-3)


def test_boards_without_peer_to_peer_have_half_their_link():
    assert find_machine("workstation-rtx5090").levels[0].bytes_per_s == 31 * GIGA
    assert find_machine("workstation-rtxpro6000-ws").levels[0].bytes_per_s == 63 * GIGA


@pytest.mark.parametrize(
    ("machine", "sides", "closed"),
    [
        ("tpu-v4", "4x4x8", "yyy"),
        ("tpu-v4", "2x4x4", "nyy"),
        ("tpu-v5e", "8x16", "ny"),
        ("tpu-v5e", "4x4", "nn"),
        ("tpu-v6e", "16x16", "yy"),
        ("trn2", "4x4", "yy"),
        ("trn2", "2x4", "ny"),
        ("aws-trn2-ultra", "4x4x2", "yyn"),
        ("inf2", "12", "y"),
        ("inf2", "6", "n"),
    ],
)
def test_each_product_wraps_by_its_own_rule(machine, sides, closed):
    assert "".join("y" if g == "ring" else "n" for _, g, _ in axes(machine, sides)) == closed


@pytest.mark.parametrize("spec", [m for m in load_machines().values() if m.chip != "any"], ids=lambda m: m.id)
def test_every_machine_builds_one_chip_its_natural_size_and_two_nodes(spec):
    assert build_machine(spec.id, None, 1).fabric.n_chips == 1
    natural = build_machine(spec.chip, spec.id).fabric  # a rack may have its chip's name
    below = spec.levels[:-1] or spec.levels
    if not spec.torus:
        assert natural.n_chips == math.prod(level.max_size for level in below)
    fabrics = [natural]
    if len(spec.levels) > spec.dimensions:
        inner = math.prod(level.max_size for level in spec.levels[:-1])
        sides = [level.max_size for level in spec.levels[:-1]]
        two = build_machine(spec.id, "x".join(map(str, (*sides, 2)))).fabric
        assert two.n_chips == 2 * inner
        assert two.axes[-1].name == spec.levels[-1].name
        assert build_machine(spec.id, None, 2 * inner).fabric.axes == two.axes
        fabrics.append(two)
    for fabric in fabrics:
        rates = [LinkRate(axis.latency_s, axis.bytes_per_s) for axis in fabric.axes]
        whole = tuple((axis.size, 1) for axis in fabric.axes)
        for kind in ("all-reduce", "all-gather", "all-to-all", "p2p"):
            for line in collective_lines(kind, whole, fabric, rates):
                assert math.isfinite(line.seconds(1e6))
                assert (line.seconds(1e6) > 0) == (fabric.n_chips > 1)


@given(st.integers(1, 3000), st.sampled_from([m for m in load_machines().values() if m.chip != "any"]))
def test_any_number_of_chips_is_spread_or_refused(n, spec):
    whole = math.prod(level.max_size for level in spec.levels)
    try:
        fabric = build_machine(spec.chip, spec.id, n).fabric
    except InferometerError:
        network = spec.levels[-1].max_size  # n nodes of one chip is the last way
        if not spec.torus and len(spec.levels) > 1 and n <= network:
            raise
        return
    assert n <= whole
    assert fabric.n_chips == n
    limits = {level.name: level.max_size for level in spec.levels}
    longest = max(level.max_size for level in spec.levels[: spec.dimensions])
    for axis in fabric.axes:
        assert axis.size <= (longest if axis.geometry in ("ring", "line") else limits[axis.name])


def test_three_levels():
    assert axes("910c", "8x2x1")[:2] == [("ub", "switch", 8), ("supernode", "switch", 2)]
    assert axes("910c", "16") == axes("910c", None, 16) == axes("910c", "8x2x1")
    assert axes("cloudmatrix")[:2] == [("ub", "switch", 8), ("supernode", "switch", 48)]
    assert build_machine("910c", None, 512).label == "8x32x2"
    assert axes("h100-nvl", "8") == [("nvlink-bridge", "mesh", 2), ("pcie", "pcie", 4), ("network", "switch", 1)]
    with pytest.raises(InferometerError, match="takes nvlink-bridge x pcie x network up to 2x4x4096"):
        build_machine("h100-nvl", "8x1")


def test_slices_of_a_torus_are_joined_by_the_network():
    assert axes("tpu-v5p", "4x4x4x2")[-1] == ("dcn", "switch", 2)
    assert [a[0] for a in axes("tpu-v5p", "4x4x4")] == ["x", "y", "z"]
    assert build_machine("tpu-v5e", None, 512).label == "16x16x2"
    with pytest.raises(InferometerError, match="a slice of up to 4x4, then slices: 4x4x4096"):
        build_machine("trn2", "4x5")


def test_a_slice_with_unequal_links_fills_the_wide_ones_first():
    labels = {n: build_machine("aws-trn2-ultra", None, n).label for n in (2, 4, 8, 16, 32, 64, 128)}
    assert labels == {2: "1x2x1", 4: "2x2x1", 8: "2x4x1", 16: "4x4x1", 32: "4x4x2", 64: "4x4x4", 128: "4x4x4x2"}
    assert axes("trn2u.48xlarge") == [("x", "ring", 4), ("y", "ring", 4), ("z", "line", 1)]
    with pytest.raises(InferometerError, match="no slice of 4x4x4 has exactly 5 chips"):
        build_machine("aws-trn2-ultra", "5")


LEAVES = """
id = "cluster"
chip = "h100-sxm"
[[levels]]
name = "nvlink"
geometry = "switch"
max_size = 8
bytes_per_s = "450 GB/s"
latency_s = "1 us"
[[levels]]
name = "network"
geometry = "switch"
max_size = 128
bytes_per_s = "50 GB/s"
latency_s = "5 us"
oversubscription_ratio = 4
oversubscribed_beyond = 32
"""


def test_beyond_a_leaf_an_oversubscribed_network_gives_a_share(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(LEAVES)
    assert build_machine(str(path), "8x32").fabric.axes[1].bytes_per_s == 50 * GIGA
    assert build_machine(str(path), "8x33").fabric.axes[1].bytes_per_s == 50 * GIGA / 4
    for bad in ("oversubscription_ratio = 0.5", "oversubscribed_beyond = 0", "oversubscription_ratio = inf"):
        kept = [row for row in LEAVES.splitlines() if not row.startswith(bad.split(" =")[0])]
        path.write_text("\n".join([*kept, bad]))
        with pytest.raises(InferometerError, match="are 1 or more"):
            machine_file(path)


NAMES = {
    "b300": "b300-sxm",
    "gb300": "gb300-nvl72",
    "mi355x": "mi355x",
    "gaudi3": "gaudi3",
    "trn1": "trainium1",
    "trn2": "trainium2",
    "trn3": "trainium3",
    "inf2": "inferentia2",
    "dgx-spark": "gb10-dgx-spark",
    "strix-halo": "strix-halo",
    "m3-max": "m3-max",
    "RTX 5090": "rtx5090",
    "4060": "rtx4060",
    "rtx-3060": "rtx3060-12",
    "7900-xtx": "rx7900xtx",
    "H20": "h20-96",
    "h20-3e": "h20-141",
    "a100-pcie-80gb": "a100-80-pcie",
    "Trillium": "tpu-v6e",
    "v5e": "tpu-v5e",
    "910c": "ascend-910c",
    "vera-rubin": "rubin-vr200",
    "b60": "arc-b60",
    "rtx-pro-6000-server": "rtxpro6000-server",
}


@pytest.mark.parametrize(("name", "ident"), NAMES.items())
def test_names_people_type(name, ident):
    assert find_chip(name).id == ident


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("rtx3050", "rtx3050-4-laptop, rtx3050-6-desktop, rtx3050-6-laptop, rtx3050-8-desktop"),
        ("RTX 3050", "rtx3050-4-laptop, rtx3050-6-desktop, rtx3050-6-laptop, rtx3050-8-desktop"),
        ("rtx-pro-6000", "rtxpro6000-server, rtxpro6000-ws"),
        ("v100", "v100-16-pcie, v100-16-sxm2, v100-32-pcie, v100-32-sxm2"),
        ("a100-pcie", "a100-40-pcie, a100-80-pcie"),
        ("tpu-v5", "tpu-v5e, tpu-v5p"),
        ("jetson", "jetson-orin-64, jetson-thor-t5000"),
    ],
)
def test_a_name_of_several_products_lists_them(name, choices):
    with pytest.raises(InferometerError) as error:
        build_machine(name, "1x1")
    assert str(error.value) == f"chip {name!r} is ambiguous; choose one of: {choices}"


@pytest.mark.parametrize(
    ("chip", "instance", "usd_per_instance_hour", "chips"),
    [
        ("trainium1", "trn1.32xlarge", 21.5, 16),
        ("inferentia2", "inf2.48xlarge", 12.98136, 12),
        ("tpu-v6e", "tpu-v6e-8", 21.6, 8),
        ("b300-sxm", "p6-b300.48xlarge", 142.416, 8),
        ("mi355x", "BM.GPU.MI355X.8", 68.8, 8),
        ("gb300-nvl72", "BM.GPU.GB300.4", 72, 4),
        ("v100-16-sxm2", "gpu_8x_v100", 6.32, 8),
    ],
)
def test_a_chip_s_share_of_its_instance(chip, instance, usd_per_instance_hour, chips):
    found = quote(build_machine(instance), None, None, "on-demand")
    assert (found.price.chip, found.price.instance, found.note) == (chip, instance, "")
    assert found.price.usd_per_chip_hour == pytest.approx(usd_per_instance_hour / chips, rel=1e-4)
    assert load_instances()[instance.lower().replace("_", "-")].chips == chips


def test_a_recalled_price_says_so():
    assert default_price("trainium1").source.endswith("unverified, dated when recalled")


def test_each_price_stands_once():
    keys = [(p.chip, p.provider, p.tier, p.region, p.instance) for p in load_prices()]
    assert len(keys) == len(set(keys))


def test_the_catalogue_is_wide():
    assert len(load_chips()) >= 95
    vendors = {c.vendor for c in load_chips().values()}
    assert vendors == {"NVIDIA", "AMD", "Intel", "AWS", "Google", "Apple", "Huawei", "Groq", "Cerebras"}


def test_an_instance_stands_for_its_chip():
    """p5.48xlarge is eight H100 SXM: its chip, its links."""
    chip, machine, name = subject("p5.48xlarge")
    assert (chip.id, machine.id, name) == ("h100-sxm", "aws-p5", "p5.48xlarge")
    assert subject("h100")[1] is None


def test_what_few_links_and_little_memory_a_groq_chip_has():
    """230 MB a chip: 8.03e9 int8 weights take at least 35; a chip and direction has eight links of 30 GB/s."""
    machine = build_machine("groq", "8x8")
    assert machine.chip.memory_bytes == 230_000_000
    assert [axis.size for axis in machine.fabric.axes] == [8, 8]
    assert -(-8_030_261_248 // machine.chip.memory_bytes) == 35
