"""Say how far the measured backend is off: on timed kernels that it has not seen, and on published runs.

python -m inferometer.measurement.score_measured

Kernels: five-fold, by shape: all rows of a shape (n and k of a product; heads and their width; an expert block and its
sharding) are left out at once, so that what is scored is what a model with another shape gets. And five-fold by row.
The calibrated kernels are scored on the same rows. Runs: TPOT of the published ones on chips that were timed, each by
the factors of the fold that has not seen its model on its chip, as `validate` prints them.
"""

import datetime as dt
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from inferometer.catalog.chips import load_chips
from inferometer.cost.calibrated import calibrated_with
from inferometer.cost.kernels import FEW_QUERIES
from inferometer.cost.measured import Measured
from inferometer.cost.measured_chips import TIMED_CHIPS
from inferometer.cost.measured_forms import FORMS
from inferometer.cost.measured_told import FILE
from inferometer.cost.silicon import PACKAGE, Silicon, Tables, Timed, forms_of
from inferometer.measurement.fit_kernels import FOLDS, Vector, error_of
from inferometer.measurement.validate import validate_points
from inferometer.specs.hardware import ChipSpec

COMMAND = "python -m inferometer.measurement.score_measured"
PASSES = ("m", "batch", "step", "isl", "tokens")
"""Letters that a pass sets; the others are the shape."""
Kept = npt.NDArray[np.bool_]


class Part:
    """Some rows of one table."""

    def __init__(self, table: Timed, keep: Kept) -> None:
        """Keep rows."""
        self.table = Timed({name: x[keep] for name, x in table.columns.items()}, table.seconds[keep])

    def read(self, chip: str, form: str) -> Timed:
        """Return them."""
        del chip, form
        return self.table


def folds(table: Timed, *, by_shape: bool) -> npt.NDArray[np.intp]:
    """Return the fold of each row."""
    if not by_shape:
        return np.random.default_rng(0).integers(0, FOLDS, len(table.seconds))
    shape = np.stack([x for name, x in table.columns.items() if name not in PASSES], axis=1)
    unique, which = np.unique(shape, axis=0, return_inverse=True)
    own = np.array([crc32(row.tobytes()) % FOLDS for row in unique], dtype=np.intp)
    found: npt.NDArray[np.intp] = own[which.reshape(-1)]
    return found


def ratios(form: str, table: Timed, chip: ChipSpec, price: Callable[..., Any]) -> Vector:
    """Return predicted over measured of the rows of a table."""
    own = FORMS[form]
    total: Vector = np.zeros(len(table.seconds))
    for part in own.rows(table.columns):
        total = total + price(own.work(*part), chip).total_s
    if own.around is not None:
        total = total + price(own.around(table.columns), chip).total_s
    return total / table.seconds


def held_out(form: str, chip: ChipSpec, tables: Tables, *, by_shape: bool) -> tuple[Vector, Vector]:
    """Return predicted over measured of every row of a form, left out in turn; and by the calibrated kernels."""
    table, plain = tables.read(chip.id, form), calibrated_with({})
    if table is None:
        raise AssertionError(form)
    if "prefill" in form:
        table = Part(table, table.columns["isl"] > FEW_QUERIES).table
    fold = folds(table, by_shape=by_shape)
    own, other = [], []
    for i in range(FOLDS):
        left = Part(table, fold == i).table
        if len(left.seconds):
            backend = Measured(plain, Part(table, fold != i))
            own.append(ratios(form, left, chip, backend.price))
            other.append(ratios(form, left, chip, plain.price))
    return np.concatenate(own), np.concatenate(other)


def kernels(tables: Silicon) -> Iterator[dict[str, Any]]:
    """Yield one row a chip and form."""
    chips = load_chips()
    for name, timed in TIMED_CHIPS.items():
        for form in forms_of(tables, name):
            if FORMS[form].dtype not in timed.peak_flops_per_s:
                continue
            by_shape, calibrated = held_out(form, chips[name], tables, by_shape=True)
            by_row, _ = held_out(form, chips[name], tables, by_shape=False)
            row = {
                "chip": name,
                "form": form,
                "shape": error_of(by_shape),
                "row": error_of(by_row),
                "calibrated": error_of(calibrated),
            }
            sys.stdout.write(f"{row}\n")
            yield row


def runs() -> Iterator[dict[str, Any]]:
    """Yield one row a class and chip: TPOT of published runs."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for backend in ("measured", "calibrated"):
        for row in validate_points(backend=backend, classes=("B", "B2")):
            if row.get("metric") == "tpot" and row["chip"] in TIMED_CHIPS:
                for chip in (row["chip"], "all"):
                    kinds = found.setdefault((row["class"], chip), {})
                    kinds.setdefault(backend, []).append(row["predicted"] / row["measured"])
    for (klass, chip), ratio in sorted(found.items()):
        row = {"class": klass, "chip": chip} | {name: error_of(np.array(own)) for name, own in ratio.items()}
        sys.stdout.write(f"{row}\n")
        yield row


def main() -> None:
    """Score, and write the file."""
    tables = Silicon()
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    data = f"{PACKAGE} {tables.version}"
    whole = {"command": COMMAND, "date": today, "data": data, "kernels": [*kernels(tables)], "runs": [*runs()]}
    FILE.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
