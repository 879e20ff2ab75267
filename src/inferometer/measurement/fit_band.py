"""Fit the roofline's band to published measurements and write it beside the backend.

python -m inferometer.measurement.fit_band

low is 1: the roofline is a limit, and what lies below it is a row that says less than it did (experts that all
prompts share, an A100 that was the 80 GB part). high is the 90th percentile of measured over predicted time, over
class A rows that decode has a part in, Argonne's included, where weights and KV fit: nine rows in ten took at most
that much longer than the limit. Every row counts once, so long series weigh most; rows marked suspicious stay in,
since most were marked for being far from a model. One series sets the end: vLLM of 2024 on MI300X, a quarter of the
rows; without it high would be 3.1. Nothing but the band is fitted: predicted times do not move.
"""

import datetime as dt
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from inferometer.cost.roofline import BAND_FILE
from inferometer.measurement.bands import apart_of
from inferometer.measurement.summary import decode_like, ratios, time_ratio
from inferometer.measurement.validate import validate_points

LOW = 1.0
COMMAND = "python -m inferometer.measurement.fit_band"


def fit_band(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the band of scored rows, and the figures it comes from.

    `coverage` is the share of the rows inside it; `series` their time ratios by group and chip.
    """
    used = [row for row in rows if row["fits"] and decode_like(row)]
    found = np.array([time_ratio(row) for row in used])
    high = float(f"{np.quantile(found, 0.9):.3g}")
    series: dict[str, list[Mapping[str, Any]]] = {}
    for row in used:
        series.setdefault(f"{row['group']}, {row['chip']}", []).append(row)
    return {
        "low": LOW,
        "high": high,
        "source": f"p90 of measured over roofline time of {len(used)} published fixed-batch runs",
        "n": len(used),
        "coverage": float(f"{((found >= LOW) & (found <= high)).mean():.3f}"),
        "series": {name: _rounded(ratios(rows)) for name, rows in sorted(series.items())},
    }


def fit_apart(rows: Iterable[Mapping[str, Any]]) -> float:
    """Return the factor that tells two shardings of one model on one chip apart (`bands.apart_of`), rows of any class.

    Rows that are marked suspicious are left out: their doubt is of one run, not of both.
    """
    used = [row for row in rows if row["fits"] and decode_like(row) and not row["suspicious"]]
    load = [tuple(row[key] for key in LOAD) for row in used]
    sharding = [tuple(row["sizes"].values()) for row in used]
    return apart_of(-np.log([time_ratio(row) for row in used]), load, sharding)


LOAD = ("class", "model", "weight_format", "chip", "framework", "isl", "osl", "metric")


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in figures.items()}


def main() -> None:
    """Fit, write the file, and say what was written."""
    rows = [row for row in validate_points(backend="roofline") if "summary" not in row]
    fixed = [row for row in rows if row["class"] == "A"]
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    whole = fit_band(fixed) | {"apart": fit_apart(rows), "command": COMMAND, "date": today}
    text = json.dumps(whole, indent=2) + "\n"
    BAND_FILE.parent.mkdir(exist_ok=True)
    BAND_FILE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
