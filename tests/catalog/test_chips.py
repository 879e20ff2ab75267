import json
import time

import pytest
from pace import slowness

from inferometer.catalog.chips import PEAK_TYPES, chip_file, chip_index, chips_from_rows, find_chip, load_chips
from inferometer.catalog.machines import find_machine
from inferometer.catalog.names import name_index
from inferometer.catalog.tables import check_rows
from inferometer.errors import InferometerError, UnknownNameError

GIB, TERA, GIGA = 2**30, 10**12, 10**9


@pytest.mark.parametrize("chip", load_chips().values(), ids=lambda c: c.id)
def test_every_chip_is_whole_and_sourced(chip):
    all_sram = chip.vendor in ("Groq", "Cerebras")
    assert chip.memory_bytes > (0.2 * GIB if all_sram else 3 * GIB)
    assert 0 < chip.memory_bytes_per_s < (30_000 * TERA if all_sram else 100 * TERA)
    assert {"bf16", "fp16"} & set(chip.peak_flops_per_s)
    assert set(chip.peak_flops_per_s) <= set(PEAK_TYPES)
    assert find_machine(chip.default_machine).chip == chip.id
    for field in ("memory_bytes", "memory_bytes_per_s", *(f"peak_flops_per_s.{t}" for t in chip.peak_flops_per_s)):
        assert chip.sources[field].endswith("2026-11-29") or "2026-11-29" in chip.sources[field]
    assert set(chip.assumed) <= set(chip.sources)


@pytest.mark.parametrize("chip", load_chips().values(), ids=lambda c: c.id)
def test_narrower_arithmetic_is_never_slower(chip):
    peaks = chip.peak_flops_per_s
    ladder = [peaks[t] for t in ("fp32", "bf16", "fp8", "fp4") if t in peaks]
    assert ladder == sorted(ladder)


def test_figures_of_the_datasheet():
    h100 = find_chip("h100-sxm")
    assert h100.memory_bytes == 81559 * 2**20
    assert h100.memory_bytes_per_s == 3350 * GIGA
    assert h100.peak_flops_per_s["bf16"] == 989 * TERA
    assert h100.peak_flops_per_s["fp8"] == 1979 * TERA
    assert "fp4" not in h100.peak_flops_per_s
    assert find_chip("gb200").peak_flops_per_s["fp4"] == 10_000 * TERA
    rtx = find_chip("4090")
    assert (rtx.peak_flops_per_s["bf16"], rtx.peak_flops_per_s["fp8"]) == (165.2 * TERA, 330.4 * TERA)
    assert find_chip("tpu-v5p").tdp_w is None


def test_unknown_visible_bytes_come_from_the_label_and_are_assumed():
    rtx, instinct = find_chip("rtx4090"), find_chip("mi250x")
    assert rtx.memory_bytes == int(24 * GIB * 0.975)
    assert instinct.memory_bytes == 128 * GIB
    assert "memory_bytes" in rtx.assumed
    assert "memory_bytes" in instinct.assumed
    assert "memory_bytes" not in find_chip("h100").assumed


def test_recalled_figures_are_assumed():
    assert "memory_bytes_per_s" in find_chip("m1-max").assumed


@pytest.mark.parametrize(
    ("name", "ident"),
    [
        ("h100", "h100-sxm"),
        ("H100 SXM", "h100-sxm"),
        ("h200", "h200-sxm"),
        ("b200", "b200-sxm"),
        ("a100-80gb", "a100-80-sxm"),
        ("A100_80GB", "a100-80-sxm"),
        ("gb200", "gb200-nvl72"),
        ("tpu-v7", "tpu-v7x"),
        ("tpu7x", "tpu-v7x"),
        ("Ironwood", "tpu-v7x"),
        ("RTX 4090", "rtx4090"),
        ("rtx-4090", "rtx4090"),
        ("mi300x", "mi300x"),
        ("l40s", "l40s"),
    ],
)
def test_aliases(name, ident):
    assert find_chip(name).id == ident


def test_a_name_that_several_ids_begin_with_lists_them():
    with pytest.raises(InferometerError, match=r"choose one of: a100-40-pcie, a100-40-sxm, a100-80-pcie, a100-80-sxm$"):
        find_chip("a100")


@pytest.mark.parametrize("name", ["h10", "", "h100-p", "x" * 1000])
def test_an_unknown_name_is_never_guessed(name):
    with pytest.raises(UnknownNameError, match="unknown chip"):
        find_chip(name)


def test_two_chips_cannot_claim_one_name():
    with pytest.raises(InferometerError, match="claimed by a and b"):
        name_index("chip", [("a", ("x",)), ("b", ("X",))])


def test_every_alias_finds_its_chip():
    for name, ident in chip_index().items():
        assert find_chip(name).id == ident


ROW = {
    "chip": "c",
    "field": "peak.bf16",
    "value": "1",
    "unit": "TFLOP/s",
    "source": "s",
    "date": "2026",
    "confidence": "A",
}


@pytest.mark.parametrize("column", ["source", "unit", "value", "date"])
@pytest.mark.parametrize("cell", ["", "  ", None])
def test_a_value_without_source_unit_or_date_is_refused(column, cell):
    with pytest.raises(InferometerError, match=f"line 2: no {column}"):
        check_rows("chips.csv", [ROW | {column: cell}], tuple(ROW))


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "GB/s"},
        {"value": "fast"},
        {"field": "peak.fp12"},
        {"field": "colour", "unit": "text"},
        {"field": "name"},
    ],
)
def test_a_row_of_another_kind_is_refused(change):
    with pytest.raises(InferometerError):
        chips_from_rows([ROW | change])


def test_a_field_given_twice_is_refused():
    with pytest.raises(InferometerError, match="twice"):
        chips_from_rows([ROW, ROW])


def test_a_row_with_too_many_cells_is_refused():
    with pytest.raises(InferometerError, match="more cells"):
        check_rows("x.csv", [{"a": "1", None: ["2"]}], ("a",))


def test_all_chips_load_in_a_few_milliseconds():
    def once():
        load_chips.cache_clear()
        start = time.process_time()
        load_chips()
        return time.process_time() - start

    assert min(once() for _ in range(20)) < 30e-3 * slowness()


MINE = """
id = "mine"
memory_bytes = "96 GiB"
memory_bytes_per_s = 4e12
tdp_w = "0.5 kW"
peak_flops_per_s = {bf16 = "1 PFLOP/s", fp8 = "2 PFLOP/s"}
"""


def test_a_chip_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    chip = find_chip(str(path))
    assert chip.memory_bytes == 96 * GIB
    assert chip.memory_bytes_per_s == 4 * TERA
    assert chip.tdp_w == 500
    assert chip.peak_flops_per_s == {"bf16": 1e15, "fp8": 2e15}
    assert "default_machine" in chip.assumed
    assert str(path) in chip.sources["memory_bytes"]


@pytest.mark.parametrize(
    "line",
    [
        'memory_bytes = "96 GB/s"',
        'memory_bytes = "much"',
        "memory_bytes = -1",
        "memory_bytes = true",
        "memory_bytes = nan",
        "units = nan",
        "units = inf",
        "units = 0",
        "units = -5",
        'colour = "red"',
        "peak_flops_per_s = 1",
        "peak_flops_per_s = {}",
        "peak_flops_per_s = {fp12 = 1.0}",
        "peak_flops_per_s = {bf16 = 0}",
        "name = 3",
        "this is not toml",
    ],
)
def test_a_bad_chip_file_names_the_file(tmp_path, line):
    key = line.split(" =")[0]
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(row for row in MINE.splitlines() if not row.startswith(f"{key} ")) + f"\n{line}\n")
    with pytest.raises(InferometerError, match=r"mine|arithmetic type"):
        chip_file(path)


def test_files_that_are_no_description(tmp_path):
    with pytest.raises(InferometerError, match=r"none\.json"):
        chip_file(tmp_path / "none.json")
    deep, long, listed, binary = (tmp_path / f"{n}.json" for n in ("deep", "long", "listed", "binary"))
    deep.write_text("[" * 100_000)
    long.write_text(" " * 1_000_001)
    listed.write_text(json.dumps([1]))
    binary.write_bytes(b"\xff\xfe")
    for path in (deep, long, listed, binary):
        with pytest.raises(InferometerError, match=path.name):
            chip_file(path)
