"""A calibration of one's own: factors of one generation, drawn from a few runs of one model on one chip.

Written by `inferometer calibrate`, read wherever `--calibration FILE` is given. Numbers of others are not in it: every
other generation keeps the factors that are shipped.
"""

import json
import tomllib
from pathlib import Path

import msgspec

from inferometer.cost.eras import load_eras
from inferometer.cost.factors import NAMES, Factors
from inferometer.errors import InferometerError, unknown_name

LEAST_FACTOR, MOST_FACTOR = 0.01, 100.0
"""Factors beyond are slips of a unit."""

MAX_BYTES = 4 << 20
"""A larger file is no calibration."""


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured number, and what was predicted of it. Seconds, or tokens a second."""

    data: str
    """Name of the file, and the row of a table."""
    sizes: str
    isl: int
    osl: int
    batch: int
    metric: str
    measured: float  # of the metric's unit
    shipped: float  # of the metric's unit
    fitted: float  # of the metric's unit
    left_out: float  # of the metric's unit
    """By factors fitted to the other runs; as shipped where there is no other."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Factors, what they come from and how much they helped."""

    command: str
    date: str
    fits: str
    """Dates of the shipped coefficients that the factors stand on."""
    model: str
    chip: str
    generation: str
    engine: str
    low: float
    high: float
    """Ends of the band for this model, chip and engine."""
    error_shipped: float
    """Median |predicted / measured - 1| with the factors that are shipped."""
    error_left_out: float
    """The same, each run predicted by the others' factors."""
    factors: dict[str, float]
    runs: tuple[Run, ...]

    @property
    def own(self) -> Factors:
        """The factors, typed."""
        return Factors(**self.factors, basis="calibrated", n=len(self.runs))


def read_calibration(path: str | Path) -> Calibration:
    """Return a calibration from its file.

    Raises InferometerError, one line, for a file that cannot be read, is not TOML, or is no calibration.
    """
    file = Path(path)
    if file.suffix.lower() != ".toml" and not file.exists():
        raise unknown_name("calibration", str(path), [era.name for era in load_eras().eras])
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:
        raise InferometerError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise InferometerError(f"{path} is no calibration: more than {MAX_BYTES >> 20} MiB")
    try:
        found = msgspec.convert(tomllib.loads(data.decode("utf-8")), Calibration, strict=False)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InferometerError(f"{path} is not TOML: {error}") from None
    except (msgspec.ValidationError, RecursionError) as error:
        raise InferometerError(f"{path} is no calibration: {error}; write one with inferometer calibrate") from None
    if set(found.factors) != set(NAMES) or not all(LEAST_FACTOR <= f <= MOST_FACTOR for f in found.factors.values()):
        raise InferometerError(
            f"{path} is no calibration of this version: factors are {', '.join(NAMES)}, each from {LEAST_FACTOR:g} to "
            f"{MOST_FACTOR:g}; write one with inferometer calibrate"
        )
    if not 0 < found.low <= 1 <= found.high < float("inf"):
        raise InferometerError(f"{path} is no calibration: its band must lie about 1")
    return found


def calibration_of(given: object | None) -> Calibration | None:
    """Return what a backend was handed as its calibration: none, one, or the file of one."""
    if given is None or isinstance(given, Calibration):
        return given
    if isinstance(given, str | Path):
        return read_calibration(given)
    raise InferometerError(
        f"calibration of type {type(given).__name__}: give the file that inferometer calibrate wrote"
    )


def refuse_calibration(name: str, given: object | None) -> None:
    """Raise InferometerError where a backend that takes no calibration is handed one."""
    if given is not None:
        raise InferometerError(f"backend {name} takes no calibration; leave --calibration or --backend {name} out")


def calibration_text(found: Calibration) -> str:
    """Return the TOML of a calibration."""
    plain = msgspec.to_builtins(found)
    head = {key: value for key, value in plain.items() if key not in ("factors", "runs")}
    lines = [f"{key} = {_toml(value)}" for key, value in head.items()]
    lines += ["", "[factors]", *(f"{key} = {_toml(value)}" for key, value in plain["factors"].items())]
    for run in plain["runs"]:
        lines += ["", "[[runs]]", *(f"{key} = {_toml(value)}" for key, value in run.items())]
    return "\n".join(lines) + "\n"


def _toml(value: str | float) -> str:
    """Return a text or a number as TOML spells it: a JSON string is one, and so is a Python number."""
    return json.dumps(value).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
