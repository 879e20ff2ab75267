"""prices on the command line; live ones from gpuhunt's offline directory alone, never from the service."""

import json
import socket
import sys
import time

import pytest
from cli.command import inferometer, refused

from inferometer.catalog.prices import load_prices
from inferometer.ingest.live_prices import TIMEOUT_S, chip_of

HEAD = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
    "provider_data"
)
NEBIUS = (
    "gpu-h100-sxm 8gpu-128vcpu-1600gb,eu-north1,23.6,128,1600,8,H100,80,False,,nvidia,,,",
    "gpu-h200-sxm 1gpu,eu-north1,1.75,16,200,1,H200,141,True,,nvidia,,,",
)
AWS = (
    "p5.48xlarge,us-east-1,55.04,192,2048,8,H100,80,False,,nvidia,,,",
    "mystery.1,us-east-1,5,192,2048,1,H100,80,False,,nvidia,,,",
    "m7.large,us-east-1,0.1,2,8,0,,,False,,,,,",
)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Be gpuhunt's documented offline directory."""
    pytest.importorskip("gpuhunt")
    for name, rows in (("nebius", NEBIUS), ("aws", AWS)):
        (tmp_path / f"{name}.csv").write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(tmp_path))


@pytest.fixture
def no_network(tmp_path, monkeypatch):
    """No directory, no cache, and every look-up fails."""
    pytest.importorskip("gpuhunt")
    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))

    def fail(*_, **__):
        assert socket.getdefaulttimeout() == TIMEOUT_S
        raise OSError("unreachable")

    monkeypatch.setattr("urllib.request.urlopen", fail)
    return tmp_path / "inferometer" / "live_prices.json"


def test_the_table_is_the_catalogue_s_with_source_and_date():
    rows = inferometer("prices", "--json").rows
    assert len(rows) == len(load_prices())
    for row in rows:
        assert row["date"]
        assert row["source"]
        assert row["usd_per_instance_hour"] == pytest.approx(row["usd_per_chip_hour"] * row["instance_chips"])
    assert {row["chip"] for row in inferometer("prices", "--chip", "h100", "--json").rows} == {"h100-sxm"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gpuhunt leaves its files open
@pytest.mark.usefixtures("offline")
def test_live_prices_are_gpuhunt_s_by_the_chip():
    rows = inferometer("prices", "--live", "--json").rows
    found = {(row["provider"], row["chip"], row["tier"]): row for row in rows}
    assert found["Nebius", "h100-sxm", "on-demand"]["usd_per_chip_hour"] == pytest.approx(23.6 / 8)
    assert found["Nebius", "h200-sxm", "spot"]["instance_chips"] == 1
    assert found["AWS", "h100-sxm", "on-demand"]["instance"] == "p5.48xlarge"
    assert len(rows) == 3
    assert {row["source"] for row in rows} == {"gpuhunt"}
    page = " ".join(inferometer("prices", "--live").out.split())
    assert "live through gpuhunt" in page
    assert "1 offers left out" in page


def test_an_empty_directory_is_said(tmp_path, monkeypatch):
    pytest.importorskip("gpuhunt")
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(tmp_path))
    assert "holds no PROVIDER.csv" in refused("prices", "--live")


@pytest.mark.usefixtures("no_network")
def test_offline_without_a_cache_is_one_line():
    said = refused("prices", "--live")
    assert "no prices can be fetched (unreachable)" in said
    assert "without --live the dated table answers" in said


def test_offline_an_older_answer_is_taken_and_dated(no_network):
    row = {"provider": "aws", "instance": "p5.48xlarge", "region": "r", "usd_per_instance_hour": 8.0, "chips": 8,
           "gpu": "H100", "memory_gb": 80.0, "spot": False}  # fmt: skip
    no_network.parent.mkdir()
    for age_s, said in ((3600.0, "cached 20"), (30 * 86400.0, "offline (unreachable), cached 20")):
        no_network.write_text(json.dumps({"time": time.time() - age_s, "rows": [row]}), encoding="utf-8")
        assert said in " ".join(inferometer("prices", "--live").out.split())
    no_network.write_text("{", encoding="utf-8")
    refused("prices", "--live")


def test_without_gpuhunt_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    assert "pip install 'inferometer[prices]'" in refused("prices", "--live")


def test_a_name_without_its_form_is_no_chip():
    nobody = {}.get
    assert chip_of("A100", 80, "a100-pcie-1x", nobody) == "a100-80-pcie"
    assert chip_of("A100", 40, "Standard_ND96asr_v4", nobody) is None
    assert chip_of("A100", 40, "nd96", {"nd96": "a100-40-sxm"}.get) == "a100-40-sxm"
    assert chip_of("P100", 16, "x", nobody) is None


def test_what_no_price_has_is_exit_1_or_refused():
    assert inferometer("prices", "--chip", "m2-ultra").status == 1
    assert "unknown provider" in refused("prices", "--provider", "AWSS")
    assert "unknown chip" in refused("prices", "--chip", "h101")
