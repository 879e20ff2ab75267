"""Detectors against recorded outputs of real machines."""

from types import SimpleNamespace

import pytest

from inferometer.ingest.devices import Sources, amd, apple, find_devices, host_memory, nvidia

MIB = 1 << 20

SMI = """\
NVIDIA H100 80GB HBM3, 81559, 81008
NVIDIA GeForce RTX 4090, 24564, 10350
"""

VM_STAT = """\
Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                              1187455.
Pages active:                            2409118.
Pages inactive:                          2296733.
Pages speculative:                        108734.
Pages throttled:                               0.
Pages wired down:                         344721.
"""

SYSCTL = {
    "machdep.cpu.brand_string": "Apple M2 Ultra\n",
    "hw.memsize": "206158430208\n",
    "iogpu.wired_limit_mb": "0\n",
}

MEMINFO = """\
MemTotal:       65778672 kB
MemFree:         1843200 kB
MemAvailable:   48211456 kB
Buffers:          912344 kB
"""


def nothing(*words):
    del words
    return ""


def sources(tmp_path, **more):
    fields = {
        "nvml": lambda: None,
        "command": nothing,
        "drm": tmp_path / "none",
        "meminfo": tmp_path / "meminfo",
        "psutil": lambda: None,
        "platform": "linux",
    }
    return Sources(**fields | more)


def nvml(*cards, fails=None):
    """Return bindings that know cards of (name, total, free)."""

    def count():
        if fails == "count":
            raise RuntimeError("NVML: Unknown Error")
        return len(cards)

    def init():
        if fails == "init":
            raise RuntimeError("NVML Shared Library Not Found")

    return SimpleNamespace(
        nvmlInit=init,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda index: cards[index][0],
        nvmlDeviceGetMemoryInfo=lambda index: SimpleNamespace(total=cards[index][1], free=cards[index][2], used=0),
    )


def test_nvidia_by_its_library(tmp_path):
    bindings = nvml(("NVIDIA H200", 150_754_820_096, 150_110_994_432), (b"Tesla V100-SXM2-16GB", 16_945_512_448, 1))
    first, second = nvidia(sources(tmp_path, nvml=lambda: bindings))
    assert (first.name, first.total_bytes, first.free_bytes) == ("NVIDIA H200", 150_754_820_096, 150_110_994_432)
    assert (second.name, second.source) == ("Tesla V100-SXM2-16GB", "nvidia-ml-py")


@pytest.mark.parametrize("fails", ["init", "count"])
def test_a_library_that_fails_leaves_it_to_nvidia_smi(tmp_path, fails):
    found = nvidia(sources(tmp_path, nvml=lambda: nvml(fails=fails), command=lambda *_: SMI))
    assert [(one.name, one.total_bytes, one.free_bytes) for one in found] == [
        ("NVIDIA H100 80GB HBM3", 81_559 * MIB, 81_008 * MIB),
        ("NVIDIA GeForce RTX 4090", 24_564 * MIB, 10_350 * MIB),
    ]


def test_lines_that_are_no_devices_are_passed_over(tmp_path):
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\nGPU, [N/A], [N/A]\n\n"
    assert nvidia(sources(tmp_path, command=lambda *_: text)) == []


def card(folder, name, **files):
    device = folder / name / "device"
    device.mkdir(parents=True)
    for file, text in files.items():
        (device / file).write_text(f"{text}\n")


def test_amd_by_the_files_of_the_kernel(tmp_path):
    drm = tmp_path / "drm"
    mi300x = {"vendor": "0x1002", "device": "0x74a1", "mem_info_vram_total": 206_141_652_992}
    card(drm, "card10", **mi300x, mem_info_vram_used=297_644_032)
    card(drm, "card1", **mi300x, mem_info_vram_used=0, product_name="AMD Instinct MI300X OAM")
    card(drm, "card0", vendor="0x1a03", device="0x2000")
    (drm / "card1-DP-1").mkdir()
    found = amd(sources(tmp_path, drm=drm))
    assert [one.name for one in found] == ["AMD Instinct MI300X OAM", "AMD GPU 0x74a1"]
    assert [one.free_bytes for one in found] == [206_141_652_992, 206_141_652_992 - 297_644_032]


def test_amd_files_with_nonsense_are_no_device(tmp_path):
    drm = tmp_path / "drm"
    card(drm, "card0", vendor="0x1002", mem_info_vram_total="lots")
    assert amd(sources(tmp_path, drm=drm)) == []


def mac(values):
    return lambda *words: VM_STAT if words[0] == "vm_stat" else values.get(words[-1], "")


def test_apple_shares_the_memory_of_the_host(tmp_path):
    (found,) = apple(sources(tmp_path, platform="darwin", command=mac(SYSCTL)))
    assert (found.name, found.total_bytes) == ("Apple M2 Ultra", 206_158_430_208 * 3 // 4)
    assert found.free_bytes == 16_384 * (1_187_455 + 2_296_733 + 108_734)
    limited = SYSCTL | {"iogpu.wired_limit_mb": "180000\n"}
    (found,) = apple(sources(tmp_path, platform="darwin", command=mac(limited)))
    assert found.total_bytes == 180_000 * MIB


def test_a_mac_of_intel_has_no_apple_gpu(tmp_path):
    intel = SYSCTL | {"machdep.cpu.brand_string": "Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz\n"}
    assert apple(sources(tmp_path, platform="darwin", command=mac(intel))) == []
    assert apple(sources(tmp_path, command=mac(SYSCTL))) == []


def test_host_memory_by_the_kernel_or_by_psutil(tmp_path):
    memory = SimpleNamespace(total=16 * 2**30, available=9 * 2**30)
    psutil = SimpleNamespace(virtual_memory=lambda: memory)
    assert host_memory(sources(tmp_path)) is None
    assert host_memory(sources(tmp_path, psutil=lambda: psutil)).free_bytes == 9 * 2**30
    (tmp_path / "meminfo").write_text(MEMINFO)
    found = host_memory(sources(tmp_path, psutil=lambda: psutil))
    assert (found.total_bytes, found.free_bytes) == (65_778_672 * 1024, 48_211_456 * 1024)


def test_nothing_found_is_an_empty_list(tmp_path):
    assert find_devices(sources(tmp_path)) == []


def test_this_machine_can_be_asked():
    """Whatever it has: nothing raises."""
    assert all(one.total_bytes > 0 for one in find_devices(Sources()))
