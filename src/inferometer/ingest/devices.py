"""The accelerators of this machine, with their total and free memory. Every source can be replaced by a recording.

NVIDIA: nvidia-ml-py, else nvidia-smi. AMD: the kernel's files (amdgpu: mem_info_vram_total, mem_info_vram_used).
Apple: sysctl and vm_stat; memory is the host's. RAM: /proc/meminfo, else psutil.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

MIB = 1 << 20
TIMEOUT_S = 10.0
MOST_DEVICES = 1024
AMD_VENDOR = "0x1002"
MOST_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator as found, or the host's memory."""

    name: str
    vendor: str
    total_bytes: int
    free_bytes: int
    source: str
    """What said so."""


def run_command(*words: str) -> str:
    """Return what a command prints, empty where it is not there, fails, or takes too long."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 (fixed words)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def load_nvml() -> Any:
    """Return the bindings of nvidia-ml-py, None where they are not installed."""
    try:
        return import_module("pynvml")
    except ImportError:
        return None


def load_psutil() -> Any:
    """Return psutil, None where it is not installed."""
    try:
        return import_module("psutil")
    except ImportError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where detectors look."""

    nvml: Callable[[], Any] = load_nvml
    command: Callable[..., str] = run_command
    drm: Path = field(default_factory=lambda: Path("/sys/class/drm"))
    meminfo: Path = field(default_factory=lambda: Path("/proc/meminfo"))
    psutil: Callable[[], Any] = load_psutil
    platform: str = sys.platform


def find_devices(sources: Sources) -> list[Device]:
    """Return the accelerators of this machine, none where there are none; never raises."""
    return [*nvidia(sources), *amd(sources), *apple(sources)]


def nvidia(sources: Sources) -> list[Device]:
    """Return NVIDIA GPUs, by nvidia-ml-py where it is installed and works, else by nvidia-smi."""
    nvml = sources.nvml()
    found = [] if nvml is None else _by_nvml(nvml)
    return found or list(_by_smi(sources.command))


def _by_nvml(nvml: Any) -> list[Device]:
    try:
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 (a foreign library: no driver, no GPU, an old one)
        return []
    found = []
    try:
        for index in range(min(int(nvml.nvmlDeviceGetCount()), MOST_DEVICES)):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name, memory = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
            text = name.decode("utf-8", errors="replace") if isinstance(name, bytes) else str(name)
            device = Device(
                name=text,
                vendor="NVIDIA",
                total_bytes=int(memory.total),
                free_bytes=int(memory.free),
                source="nvidia-ml-py",
            )
            found.append(device)
        nvml.nvmlShutdown()
    except Exception:  # noqa: BLE001 (same: what was found before stands)
        return found
    return found


def _by_smi(command: Callable[..., str]) -> Iterator[Device]:
    """Yield a device for each line `name, total MiB, free MiB`."""
    text = command("nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits")
    for line in text.splitlines()[:MOST_DEVICES]:
        name, _, sizes = line.strip().partition(", ")
        numbers = [word.strip() for word in sizes.split(",")]
        if name and len(numbers) == 2 and all(n.isdecimal() for n in numbers):  # noqa: PLR2004 (total, free)
            total, free = (int(n) * MIB for n in numbers)
            yield Device(name=name, vendor="NVIDIA", total_bytes=total, free_bytes=free, source="nvidia-smi")


def amd(sources: Sources) -> list[Device]:
    """Return AMD GPUs from the files of the kernel's driver, cards in the order of their numbers."""
    try:
        cards = [path for path in sources.drm.iterdir() if re.fullmatch(r"card\d+", path.name)]
    except OSError:
        return []
    found = []
    for card in sorted(cards, key=lambda path: int(path.name[4:])):
        device = card / "device"
        total, used = (_whole(device / f"mem_info_vram_{what}") for what in ("total", "used"))
        if _text(device / "vendor").lower() != AMD_VENDOR or total is None:
            continue
        name = _text(device / "product_name") or f"AMD GPU {_text(device / 'device')}"
        free = max(total - (used or 0), 0)
        found.append(Device(name=name, vendor="AMD", total_bytes=total, free_bytes=free, source=str(device)))
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(MOST_FILE_BYTES).decode("utf-8", errors="replace").strip()
    except OSError:
        return ""


def _whole(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None  # noqa: PLR2004 (64 bits)


def apple(sources: Sources) -> list[Device]:
    """Return the GPU of Apple silicon: it shares the host's memory, of which Metal takes three quarters unless told.

    `iogpu.wired_limit_mb` above 0 is another limit (Metal recommendedMaxWorkingSetSize; `assumed` to be 3/4 else).
    """
    if sources.platform != "darwin":
        return []
    name = sources.command("sysctl", "-n", "machdep.cpu.brand_string").strip()
    size = sources.command("sysctl", "-n", "hw.memsize").strip()
    if not name.startswith("Apple") or not size.isdecimal():
        return []
    limit = sources.command("sysctl", "-n", "iogpu.wired_limit_mb").strip()
    total = int(limit) * MIB if limit.isdecimal() and int(limit) > 0 else int(size) * 3 // 4
    free = _apple_free(sources.command("vm_stat"))
    return [
        Device(
            name=name,
            vendor="Apple",
            total_bytes=total,
            free_bytes=total if free is None else min(free, total),
            source="sysctl",
        )
    ]


def _apple_free(text: str) -> int | None:
    """Return the bytes of free, inactive and speculative pages that vm_stat tells of."""
    size = re.search(r"page size of (\d{1,9}) bytes", text)
    pages = [int(n) for n in re.findall(r"Pages (?:free|inactive|speculative):\s+(\d{1,15})\.", text)]
    return int(size[1]) * sum(pages) if size and pages else None


def host_memory(sources: Sources) -> Device | None:
    """Return the host's RAM, for engines that run there; None where nobody says."""
    text = _text(sources.meminfo)
    lines = re.findall(r"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB$", text, re.MULTILINE)
    found = {key: int(kib) * 1024 for key, kib in lines}
    if "MemTotal" in found:
        total = found["MemTotal"]
        free = found.get("MemAvailable", total)
        return Device(name="host memory", vendor="CPU", total_bytes=total, free_bytes=free, source=str(sources.meminfo))
    psutil = sources.psutil()
    if psutil is None:
        return None
    memory = psutil.virtual_memory()
    return Device(
        name="host memory",
        vendor="CPU",
        total_bytes=int(memory.total),
        free_bytes=int(memory.available),
        source="psutil",
    )
