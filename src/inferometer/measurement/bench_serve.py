"""Result files of a serving benchmark, as `vllm bench serve --save-result` writes them; SGLang's has the same keys.

One object a file, or one a line (`--append-result`). Keys read: `max_concurrency`, `request_rate`, `completed`,
`total_input_tokens`, `total_output_tokens`, `mean_tpot_ms`, `output_throughput`, `model_id`,
`spec_decode_acceptance_rate`. Source: vllm-project/vllm vllm/benchmarks/serve.py, main_async and benchmark, read
2026-12. Means over all requests; lengths are totals over the completed requests.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from inferometer.errors import InferometerError

MAX_BYTES = 256 << 20
"""`--save-detailed` keeps every token's time; larger is some other file."""

MAX_COUNT = 10**9


class BenchRun(NamedTuple):
    """One run of the benchmark: a closed loop of so many requests in flight."""

    where: str
    """File, and the line where there are several."""
    model_id: str
    isl: int
    osl: int
    in_flight: int
    metric: str
    """tpot, or output_tok_per_s where the file has no TPOT."""
    measured: float  # of the metric's unit


def read_bench(path: str | Path) -> list[BenchRun]:
    """Return the runs of a file.

    Raises InferometerError, one line, for a file that cannot be read, is not JSON, or holds a run that says too little.
    """
    return [_run(where, found) for where, found in _objects(Path(path))]


def _objects(file: Path) -> list[tuple[str, Mapping[str, Any]]]:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InferometerError(f"{file}: larger than {MAX_BYTES >> 20} MiB")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InferometerError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InferometerError(f"{str(file)!r} cannot be read: {type(error).__name__}") from None
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return _lines(file, text)
    listed = whole if isinstance(whole, list) else [whole]
    named = [(f"{file}{f' run {n}' if len(listed) > 1 else ''}", one) for n, one in enumerate(listed, 1)]
    return _tables(str(file), named)


def _lines(file: Path, text: str) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append((f"{file} line {number}", json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise InferometerError(f"{file} line {number} is not JSON: {error}") from None
    return _tables(str(file), found)


def _tables(where: str, found: list[tuple[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    if not found:
        raise InferometerError(f"{where} holds no run")
    for name, one in found:
        if not isinstance(one, dict):
            raise InferometerError(f"{name}: not the result of vllm bench serve, which is one object a run")
    return found


def _run(where: str, found: Mapping[str, Any]) -> BenchRun:
    if found.get("spec_decode_acceptance_rate") is not None:
        raise InferometerError(f"{where}: a run with speculative decoding, whose steps give several tokens")
    rate = found.get("request_rate", "inf")
    if rate not in ("inf", math.inf, None):
        raise InferometerError(f"{where}: request_rate {rate!r:.40}: give runs with --request-rate inf, a closed loop")
    if found.get("max_concurrency") is None:
        raise InferometerError(f"{where}: no max_concurrency: give runs with --max-concurrency N, a closed loop")
    completed = _number(found, "completed", where)
    osl = round(_number(found, "total_output_tokens", where) / completed)
    isl = round(_number(found, "total_input_tokens", where) / completed)
    metric, value = "tpot", found.get("mean_tpot_ms")
    if value is None or osl <= 1:
        metric, measured = "output_tok_per_s", _number(found, "output_throughput", where)
    else:
        measured = _number(found, "mean_tpot_ms", where) * 1e-3
    model = found.get("model_id")
    in_flight = round(_number(found, "max_concurrency", where))
    if in_flight < 1 or isl < 1 or osl < 1:
        raise InferometerError(f"{where}: less than one request in flight, prompt token or output token a request")
    return BenchRun(where, model if isinstance(model, str) else "", isl, osl, in_flight, metric, measured)


def _number(found: Mapping[str, Any], key: str, where: str) -> float:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_COUNT:
        told = "is missing" if value is None else f"is {value!r:.40}"
        raise InferometerError(f"{where}: {key} {told}; the result of vllm bench serve has a number above 0 there")
    return float(value)
