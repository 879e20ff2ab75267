"""Prices of the day, through gpuhunt (extra `prices`): offers of clouds, from its catalogues.

gpuhunt (MPL-2.0, dstack) downloads a catalogue a provider, without credentials; with GPUHUNT_CATALOG_DIR set it reads
`PROVIDER.csv` there instead, and nothing is downloaded. It names a GPU without its form factor, so an offer is of a
chip only where the name is, or its instance's.
"""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from inferometer.errors import InferometerError
from inferometer.specs.hardware import Price

PROVIDERS = {
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "GCP",
    "oci": "Oracle",
    "lambdalabs": "Lambda",
    "nebius": "Nebius",
    "runpod": "RunPod",
    "verda": "Verda",
    "cloudrift": "CloudRift",
}
"""gpuhunt's name of a provider -> ours."""

_ALIKE = (
    *("T4", "L4", "L40", "L40S", "A10", "A10G", "A30", "A40", "A6000"),
    *("RTX3090", "RTX4080", "RTX4090", "RTX5080", "RTX5090", "MI300X", "MI325X", "MI355X"),
)
PLAIN = {name: name.lower() for name in _ALIKE} | {
    "H200": "h200-sxm",
    "H200NVL": "h200-nvl",
    "H100NVL": "h100-nvl",
    "B200": "b200-sxm",
    "B300": "b300-sxm",
    "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
    "RTX6000Ada": "rtx6000-ada",
}
"""gpuhunt's GPU name -> chip, where there is one form of it."""

FORMS = {"H100": {"sxm": "h100-sxm", "pcie": "h100-pcie", "nvl": "h100-nvl"},
         "A100": {"sxm": "a100-{gb}-sxm", "pcie": "a100-{gb}-pcie"}}  # fmt: skip
"""GPU name -> word of the instance's name -> chip; `gb` is its memory."""

DIRECTORY = "GPUHUNT_CATALOG_DIR"
TIMEOUT_S = 15.0
"""Of each download."""
FRESH_S = 6 * 3600.0
"""Age up to which a cached answer is taken without asking."""
SOURCE = "gpuhunt"


class Offers(NamedTuple):
    """What was found."""

    prices: tuple[Price, ...]
    unclear: int
    """Offers whose chip cannot be told."""
    note: str
    """Where they come from, and of when."""


def live_prices(
    chip_of_instance: Mapping[str, str], *, cache: Path | None = None, timeout_s: float = TIMEOUT_S
) -> Offers:
    """Return the offers of the day; `chip_of_instance` is lower-case instance name -> chip id.

    Raises InferometerError where gpuhunt is not installed, and where there is neither a network nor a cached answer.
    """
    try:
        gpuhunt = import_module("gpuhunt")
    except ImportError:
        raise InferometerError("--live needs gpuhunt: pip install 'inferometer[prices]'") from None
    folder = os.environ.get(DIRECTORY)
    if folder:
        rows = _from_directory(gpuhunt, Path(folder))
        return _offers(rows, chip_of_instance, f"of {DIRECTORY} {folder}, read now", _day(time.time()))
    file = cache or cache_folder() / "live_prices.json"
    kept = _cached(file)
    if kept is not None and time.time() - kept["time"] < FRESH_S:
        return _offers(kept["rows"], chip_of_instance, f"cached {_day(kept['time'])}", _day(kept["time"]))
    try:
        rows = _download(gpuhunt, timeout_s)
    except Exception as error:  # noqa: BLE001 (a foreign library over a network: every failure is one line)
        why = " ".join(str(error.__cause__ or error).split())[:120] or type(error).__name__
        if kept is None:
            raise InferometerError(
                f"--live: no prices can be fetched ({why}); without --live the dated table answers"
            ) from None
        return _offers(
            kept["rows"], chip_of_instance, f"offline ({why}), cached {_day(kept['time'])}", _day(kept["time"])
        )
    now = time.time()
    _keep(file, {"time": now, "rows": rows})
    return _offers(rows, chip_of_instance, f"fetched {_day(now)}", _day(now))


def cache_folder() -> Path:
    """Return where answers are kept: the platform's folder of caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "inferometer"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inferometer"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d")


def _from_directory(gpuhunt: Any, folder: Path) -> list[dict[str, Any]]:
    names = [name for name in PROVIDERS if (folder / f"{name}.csv").is_file()]
    if not names:
        raise InferometerError(f"--live: {folder} of {DIRECTORY} holds no PROVIDER.csv ({', '.join(PROVIDERS)})")
    return _rows(gpuhunt.Catalog(balance_resources=False, auto_reload=False).query(provider=names))


def _download(gpuhunt: Any, timeout_s: float) -> list[dict[str, Any]]:
    catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
    with _quiet(), _timeout(timeout_s):
        catalog.load()
        return _rows(catalog.query(provider=list(PROVIDERS)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from logging what we say in one line."""
    logger = logging.getLogger("gpuhunt")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Give every socket a limit: the library sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _rows(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {
            "provider": str(item.provider),
            "instance": str(item.instance_name),
            "region": str(item.location),
            "usd_per_instance_hour": float(item.price),
            "chips": int(item.gpu_count),
            "gpu": str(item.gpu_name),
            "memory_gb": float(item.gpu_memory or 0),
            "spot": bool(item.spot),
        }
        for item in items
        if item.gpu_count and item.gpu_name
    ]


def _offers(rows: Iterable[Mapping[str, Any]], known: Mapping[str, str], note: str, date: str) -> Offers:
    found, unclear = [], 0
    for row in rows:
        chip = chip_of(row["gpu"], row["memory_gb"], row["instance"], known.get)
        if chip is None:
            unclear += 1
            continue
        found.append(
            Price(
                chip=chip,
                usd_per_chip_hour=row["usd_per_instance_hour"] / row["chips"],
                provider=PROVIDERS.get(row["provider"], row["provider"]),
                tier="spot" if row["spot"] else "on-demand",
                region=row["region"],
                instance=row["instance"],
                instance_chips=row["chips"],
                date=date,
                source=SOURCE,
            )
        )
    return Offers(tuple(sorted(found, key=lambda price: price.usd_per_chip_hour)), unclear, note)


def chip_of(gpu: str, memory_gb: float, instance: str, known: Callable[[str], str | None]) -> str | None:
    """Return the chip of an offer: its instance's, else its name's where there is one form; None where unclear.

    >>> none = {}.get
    >>> chip_of("H100", 80, "gpu-h100-sxm 8gpu", none), chip_of("H100", 80, "NC40", none), chip_of("L4", 24, "g6", none)
    ('h100-sxm', None, 'l4')
    """
    name = instance.lower()
    if (chip := known(name)) is not None:
        return chip
    if gpu in PLAIN:
        return PLAIN[gpu]
    forms = [chip for word, chip in FORMS.get(gpu, {}).items() if word in name]
    return forms[0].format(gb=round(memory_gb)) if len(forms) == 1 else None


def _cached(file: Path) -> dict[str, Any] | None:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return {"time": float(kept["time"]), "rows": list(kept["rows"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(file: Path, answer: Mapping[str, Any]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(answer), encoding="utf-8")
    except OSError:
        return  # a cache that cannot be written is none
