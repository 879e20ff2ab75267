"""How far predictions lie from measurements: medians, tails and bias, by group and metric.

error = predicted / measured - 1. Bias is its median; |error| is given by its median and 90th percentile.
time_ratio = measured / predicted seconds (predicted / measured for a rate): how many times longer than predicted it
took, whatever was reported. Its percentiles over metrics that decode has a part in calibrate a backend's band.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Row = Mapping[str, Any]

ARGONNE = "argonne-lcf/LLM-Inference-Bench"
"""Its rows are a group of their own: 2024 engines, chip variant unstated."""

HEADLINE = "A"
HEADLINE_ARGONNE = "A Argonne"

PREFILL_METRICS = ("ttft", "input_tok_per_s_per_chip")
TIME_METRICS = ("ttft", "tpot", "e2e_latency")


def group_of(klass: str, url: str) -> str:
    """Return the group a row is reported in."""
    return f"{klass} Argonne" if url.startswith(ARGONNE) else klass


def era_of(framework: str, version: str, url: str) -> str:
    """Return source and era: who ran which engine when.

    >>> era_of("TensorRT-LLM", "0.9.0", "NVIDIA/TensorRT-LLM via WhiteD2125/TensorRT-LLM@39756de")
    'TensorRT-LLM 0.9.0 (NVIDIA/TensorRT-LLM)'
    """
    origin = url.replace(" ", "@").split("@")[0] or "no source"
    return f"{framework} {version}".strip() + f" ({origin})"


def time_ratio(row: Row) -> float:
    """Return how many times longer than predicted it took."""
    ratio = row["measured"] / row["predicted"]
    return float(ratio if row["metric"] in TIME_METRICS else 1 / ratio)


def decode_like(row: Row) -> bool:
    """Return whether decode steps have a part in a row's metric."""
    return row["metric"] not in PREFILL_METRICS


def errors(rows: Sequence[Row]) -> dict[str, float | int | None]:
    """Return n, median and 90th percentile of |error|, and bias; null where there is no row."""
    if not rows:
        return {"n": 0, "median_error": None, "p90_error": None, "bias": None, "within_band": None}
    found = np.array([row["error"] for row in rows])
    inside = np.array([row["low"] <= row["measured"] <= row["high"] for row in rows])
    return {
        "n": len(rows),
        "median_error": float(np.median(np.abs(found))),
        "p90_error": float(np.quantile(np.abs(found), 0.9)),
        "bias": float(np.median(found)),
        "within_band": float(inside.mean()),
    }


def ratios(rows: Iterable[Row]) -> dict[str, float | int | None]:
    """Return n and the 10th, 50th and 90th percentile of `time_ratio` over rows that decode has a part in."""
    found = [time_ratio(row) for row in rows if decode_like(row)]
    if not found:
        return {"n": 0, "p10": None, "p50": None, "p90": None}
    low, middle, high = (float(q) for q in np.quantile(found, [0.1, 0.5, 0.9]))
    return {"n": len(found), "p10": low, "p50": middle, "p90": high}


def _split(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Return rows by key, keys sorted."""
    out: dict[str, list[Row]] = {}
    for row in rows:
        out.setdefault(key(row), []).append(row)
    return dict(sorted(out.items()))


def _table(rows: Sequence[Row], *keys: str) -> list[dict[str, Any]]:
    """Return one row of statistics for each value of `keys`."""
    found = _split(rows, lambda row: "\0".join(str(row[k]) for k in keys))
    return [{k: group[0][k] for k in keys} | errors(group) for group in found.values()]


def summarise(rows: Sequence[Row], reasons: Mapping[str, int]) -> dict[str, Any]:
    """Return the summary of scored rows and of the reasons why others were not.

    Rows scored plus the counts of `not_scored` are all points read. `group` splits A from A Argonne; `era` is source
    and engine.
    """
    kinds: Counter[str] = Counter()
    for reason, count in reasons.items():
        kinds[reason.split(":")[0]] += count
    return {
        "points": len(rows) + sum(reasons.values()),
        "scored": len(rows),
        "not_scored": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "not_scored_by_kind": dict(kinds.most_common()),
        "suspicious": sum(bool(row["suspicious"]) for row in rows),
        "does_not_fit": sum(not row["fits"] for row in rows),
        "by_group": _table(rows, "group"),
        "by_metric": _table(rows, "group", "metric"),
        "by_era": _table(rows, "group", "era", "metric"),
        "time_ratio": {"all": ratios(rows)}
        | {k: ratios(v) for k, v in _split(rows, lambda r: str(r["group"])).items()},
    }
