"""fit: what this machine has, with recorded devices in its place."""

import pytest
from cli.command import inferometer
from cli.test_rows import check, schema

from inferometer.api import fit as verb
from inferometer.api.fit import known_chip
from inferometer.ingest.devices import Device, Sources

SMI = "NVIDIA H100 80GB HBM3, 81559, 81008\nNVIDIA GeForce RTX 3050 6GB Laptop GPU, 6144, 5400\n"
WORDS = ("fit", "qwen2.5-7b", "--quant", "int4", "--context", "4096")


def machine(monkeypatch, tmp_path, *, smi="", meminfo=""):
    (tmp_path / "meminfo").write_text(meminfo)

    def sources():
        return Sources(
            nvml=lambda: None,
            command=lambda *_: smi,
            drm=tmp_path / "none",
            meminfo=tmp_path / "meminfo",
            psutil=lambda: None,
            platform="linux",
        )

    monkeypatch.setattr(verb, "Sources", sources)


def test_every_device_is_answered_for(monkeypatch, tmp_path):
    machine(monkeypatch, tmp_path, smi=SMI)
    done = inferometer(*WORDS, "--json")
    assert done.status == 0
    large, small = done.rows
    for row in done.rows:
        check(row, schema("fit"))
    assert (large["fits"], large["fits_now"], large["memory"]["chip"]) == (True, True, "h100-sxm")
    assert large["memory"]["lines"][-1]["name"] == "free"
    assert sum(line["bytes"] for line in large["memory"]["lines"]) == pytest.approx(81_559 * 2**20)
    # 0.9 x 6 GiB holds the weights and 4,000 tokens or so; 0.9 x 5400 MiB does not hold the weights.
    assert (small["fits"], small["fits_now"]) == (True, False)
    assert small["max_batch"] == 1
    assert 4096 <= small["max_context"] < 5000


def test_the_table_says_what_lacks_and_what_would_fit(monkeypatch, tmp_path):
    machine(monkeypatch, tmp_path, smi="NVIDIA GeForce RTX 3050 6GB Laptop GPU, 6144, 5400\n")
    done = inferometer("fit", "qwen2.5-7b", "--context", "4096")
    assert done.status == 1
    assert "GeForce RTX 3050 6GB Laptop GPU lacks" in done.out
    assert "would fit: --quant int4" in done.out


def test_nothing_found_is_a_plain_answer(monkeypatch, tmp_path):
    machine(monkeypatch, tmp_path)
    done = inferometer(*WORDS)
    assert done.status == 1
    assert not done.out
    assert done.err.startswith("no accelerator found; looked for NVIDIA")
    assert done.err.count("\n") == 1


def test_engines_that_run_on_the_host_are_answered_for_its_memory(monkeypatch, tmp_path):
    machine(monkeypatch, tmp_path, meminfo="MemTotal: 16000000 kB\nMemAvailable: 12000000 kB\n")
    done = inferometer(*WORDS, "--engine", "llama.cpp", "--json")
    (row,) = done.rows
    assert done.status == 0
    assert (row["vendor"], row["total_bytes"]) == ("CPU", 16_000_000 * 1024)
    embedding = 152_064 * 3584 * 2
    assert any(line["bytes"] == embedding for line in row["memory"]["lines"])


@pytest.mark.parametrize(
    ("name", "vendor", "mib", "chip"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA", 81_559, "h100-sxm"),
        ("NVIDIA H200", "NVIDIA", 143_771, "h200-sxm"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA", 24_564, "rtx4090"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA", 81_920, "a100-80-sxm"),
        ("Some Other GPU 77", "NVIDIA", 10_000, None),
    ],
)
def test_devices_are_the_chips_of_their_names(name, vendor, mib, chip):
    found = known_chip(Device(name=name, vendor=vendor, total_bytes=mib << 20, free_bytes=0, source=""))
    assert (None if found is None else found.id) == chip
