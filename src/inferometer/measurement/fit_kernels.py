"""Fit the kernel forms of the calibrated backend to timed kernels and write them beside it.

python -m inferometer.measurement.fit_kernels

One set of coefficients a generation and form, over all its chips: few, and each with bounds, so that they stay physics.
Errors are of rows held out, five-fold. Narrow products grow with what goes in beyond what reading it takes, as where it
is quantised first: that is fitted beside and left out, as lowering counts it apart.
"""

import datetime as dt
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from inferometer.catalog.chips import load_chips
from inferometer.cost.calibrated import KERNELS_FILE
from inferometer.cost.kernels import (
    Decode,
    Grouped,
    Prefill,
    Product,
    decode_price,
    grouped_price,
    prefill_price,
    product_price,
)
from inferometer.cost.roofline import total_bytes
from inferometer.graph.ops import LATENTS, Work
from inferometer.measurement.fit_links import fit_links
from inferometer.measurement.fit_plan import (
    ASSUMED,
    CACHED,
    CORES,
    FITTED,
    GROUPED,
    KERNELS,
    LATENT_CORES,
    LENT,
    PRODUCTS,
    Given,
    kernels_of,
)
from inferometer.measurement.kernel_works import DTYPES, KINDS, attention_work, gemm_work, latent_work, moe_works
from inferometer.measurement.kernels import Row, load_kernels, tables
from inferometer.specs.hardware import ChipSpec

COMMAND = "python -m inferometer.measurement.fit_kernels"
FOLDS = 5
LEAST_ROWS = 15
"""Rows below which a form is not fitted."""
MICRO = 1e-6
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Timings of one chip, engine and dtype."""

    chip: ChipSpec
    given: Given
    rows: tuple[Row, ...]
    works: tuple[Work, ...]
    """What the timed kernel is made of; columns over rows."""
    timed_s: Vector


Make = Callable[[tuple[Row, ...]], tuple[Work, ...]]
Price = Callable[[Vector, Table], Vector]


@dataclass(frozen=True)
class Form:
    """A form to fit: its price, where its coefficients start and between what they must lie."""

    price: Price
    start: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def product_of(x: Vector) -> Product:
    """Return the coefficients of a product from a vector (t0 in us, shares, fill, depth in us, a piece of it)."""
    shares = {"flops_share": x[1], "bytes_share": x[2], "fill": x[3]}
    return Product(t0_s=x[0] * MICRO, depth_s=x[4] * MICRO, piece=x[5] if len(x) > NARROW else 0.0, **shares)


def grouped_of(x: Vector) -> Grouped:
    """Return the coefficients of a grouped product from a vector (t0 in us, shares, a tile and its depth in us)."""
    times = {"t0_s": x[0] * MICRO, "tile_s": x[3] * MICRO, "depth_s": x[4] * MICRO}
    return Grouped(flops_share=x[1], bytes_share=x[2], **times)


def _product(x: Vector, table: Table) -> Vector:
    (work,), chip = table.works, table.chip
    rates = {"units": table.given.units_of(chip), "peak": chip.peak_flops_per_s[work.dtype]}
    return product_price(
        work, product_of(x), bandwidth=chip.memory_bytes_per_s, moved=total_bytes(work), **rates
    ).total_s


def _quantised(x: Vector, table: Table) -> Vector:
    """Price the product of a table and the kernel before it that quantises what goes in: x[-1] times it in 16 bits."""
    (work,) = table.works
    rows_in = work.flops / (2 * work.features) if work.features is not None else work.rows
    passes_s: Vector = rows_in * (2 * x[-1] / table.chip.memory_bytes_per_s)
    return _product(x[:-1], table) + table.given.launch_s + passes_s


def _grouped(x: Vector, table: Table) -> Vector:
    """Price the two grouped products of a table and the passes around them."""
    (*products, around), chip = table.works, table.chip
    bandwidth, given = chip.memory_bytes_per_s, table.given
    total: Vector = around.kernels * given.launch_s + total_bytes(around) / (given.elementwise_share * bandwidth)
    for work in products:
        rates = {"units": given.units_of(chip), "peak": chip.peak_flops_per_s[work.dtype]}
        own = grouped_price(work, grouped_of(x), bandwidth=bandwidth, moved=total_bytes(work), **rates)
        total = total + own.total_s
    return total


def decode_of(x: Vector) -> Decode:
    """Return the coefficients of a core with few queries from a vector (t0, wave and depth in us)."""
    times = {"t0_s": x[0] * MICRO, "wave_s": x[3] * MICRO, "depth_s": x[4] * MICRO}
    return Decode(flops_share=x[1], bytes_share=x[2], piece=x[5], **times)


def _decode(x: Vector, table: Table) -> Vector:
    (work,), chip = table.works, table.chip
    rates = {"units": table.given.units_of(chip), "peak": chip.peak_flops_per_s[work.dtype]}
    return decode_price(work, decode_of(x), bandwidth=chip.memory_bytes_per_s, moved=total_bytes(work), **rates).total_s


def _prefill(x: Vector, table: Table) -> Vector:
    own = Prefill(t0_s=x[0] * MICRO, ramp_rows=x[1], flops_share=x[2], bytes_share=x[3])
    (work,), chip = table.works, table.chip
    peak = chip.peak_flops_per_s[work.dtype]
    return prefill_price(work, own, peak, chip.memory_bytes_per_s, total_bytes(work)).total_s


WIDE = Form(_product, (3, 0.75, 0.8, 0.1, 1, 4096), (1, 0.2, 0.3, 0, 0, 256), (8, 1, 1, 1, 10, 65536))
"""Of bf16, which splits its depth."""
NARROW = 5
GEMM = Form(_quantised, (4, 0.7, 0.8, 0.2, 0.5, 2), (1, 0.2, 0.3, 0, 0, 0), (8, 1, 1, 1, 10, 12))
EXPERTS = Form(_grouped, (12, 0.5, 0.8, 0.5, 0.5), (2, 0.1, 0.2, 0, 0), (50, 1, 1, 8, 8))
BEST_DECODE = 660 / 989.5
"""Share of peak that FlashMLA reports of an H800 at 128 heads (its README, 2025-04-22): timed cores of fewer heads a kv
head are bound by memory and say little about flops, so this bounds their fit."""
DECODE = Form(_decode, (8, 0.5, 0.85, 2, 1, 1000), (2, 0.02, 0.2, 0, 0, 64), (25, BEST_DECODE, 1, 10, 20, 65536))
PREFILL = Form(_prefill, (12, 500, 0.65, 0.5), (2, 0, 0.1, 0.1), (25, 2000, 1, 1))


def fit(form: Form, data: Sequence[Table]) -> Vector:
    """Return the coefficients that make log(predicted / measured) least, outliers weighed down."""
    from scipy.optimize import least_squares  # noqa: PLC0415 (only the fits need scipy)

    def residuals(x: Vector) -> Vector:
        return np.concatenate([np.log(form.price(x, t) / t.timed_s) for t in data])

    start = np.array(form.start)
    bounds = (np.array(form.low), np.array(form.high))
    found: Vector = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.1, x_scale=start).x
    return found


def held_out(form: Form, data: Sequence[tuple[Table, Make]]) -> Vector:
    """Return predicted over measured of each row, by coefficients fitted to the other folds."""
    ratios = []
    for fold in range(FOLDS):
        kept = [_some(t, make, [i % FOLDS != fold for i in range(len(t.rows))]) for t, make in data]
        left = [_some(t, make, [i % FOLDS == fold for i in range(len(t.rows))]) for t, make in data]
        x = fit(form, kept)
        ratios += [form.price(x, t) / t.timed_s for t in left]
    return np.concatenate(ratios)


def _some(table: Table, make: Make, keep: list[bool]) -> Table:
    rows = tuple(row for row, own in zip(table.rows, keep, strict=True) if own)
    return Table(table.chip, table.given, rows, make(rows), table.timed_s[np.array(keep)])


def error_of(ratios: Vector) -> dict[str, float | int]:
    """Return n, median and p90 of |error| and the bias, of held-out rows."""
    off = np.abs(ratios - 1)
    figures = {"median": np.median(off), "p90": np.quantile(off, 0.9), "bias": np.median(ratios) - 1}
    return {"n": len(ratios)} | {name: float(f"{value:.3g}") for name, value in figures.items()}


def every(row: Row) -> bool:
    """Return that a row is meant."""
    del row
    return True


def chosen(
    generation: str, op: str, wanted: Callable[[str, str], Make | None], times: Callable[[Row], bool] = every
) -> list[tuple[Table, Make]]:
    """Return the tables of a generation and op; `wanted` says, by engine and dtype, how rows become works.

    `times` says which rows of them are meant.
    """
    given, chips, found = FITTED[generation], load_chips(), []
    for (chip, engine, dtype), rows in tables(load_kernels(), op):
        make = wanted(engine, dtype) if chips[chip].generation == generation else None
        gated = [row for row in rows if "nongated" not in row["kernel"] and times(row)]
        even = [row for row in gated if row["distribution"] in ("", "balanced")]
        own = tuple(even or gated)
        if make is None or len(own) < FOLDS:
            continue
        seconds = np.array([float(row["seconds"]) for row in own])
        found.append((Table(chips[chip], given, own, make(own), seconds), make))
    return found


def gemms(stored: str) -> Callable[[str, str], Make | None]:
    """Return what makes the works of products of one format."""
    kind = KINDS[DTYPES[stored]]

    def wanted(engine: str, dtype: str) -> Make | None:
        if dtype != DTYPES[stored] or engine not in PRODUCTS[stored]:
            return None
        return lambda rows: (gemm_work(rows, kind),)

    return wanted


def experts(dtype: str) -> Callable[[str, str], Make | None]:
    """Return what makes the works of expert blocks of one dtype of the tables."""
    kind = KINDS[dtype]

    def wanted(engine: str, own: str) -> Make | None:
        del engine
        return (lambda rows: moe_works(rows, kind)) if own == dtype else None

    return wanted


def runs(kernels: str) -> Callable[[Row], bool]:
    """Return what says whether a row times a family of kernels."""
    return lambda row: kernels_of(row["dtype"], row["kernel"]) == kernels


def _cores(engines: tuple[str, ...], dtypes: tuple[str, ...]) -> Callable[[str, str], Make | None]:
    def wanted(engine: str, dtype: str) -> Make | None:
        if engine not in engines or dtype not in dtypes:
            return None
        kv_bytes = 1.0 if "fp8" in dtype else 2.0
        return lambda rows: (attention_work(rows, kv_bytes, "bf16"),)

    return wanted


def _latents(engine: str, dtype: str) -> Callable[[str, str], Make | None]:
    def wanted(own: str, stored: str) -> Make | None:
        kv_bytes = 1.0 if "fp8" in dtype else 2.0
        return (lambda rows: (latent_work(rows, kv_bytes, "bf16"),)) if (own, stored) == (engine, dtype) else None

    return wanted


def _fitted(form: Form, data: list[tuple[Table, Make]], errors: dict[str, Any], name: str) -> Vector | None:
    if sum(len(table.rows) for table, _ in data) < LEAST_ROWS:
        return None
    errors[name] = error_of(held_out(form, data))
    sys.stdout.write(f"{name}: {errors[name]}\n")
    return fit(form, [table for table, _ in data])


def fit_generation(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (coefficients of a generation, errors of held-out rows by form)."""
    given = FITTED[name]
    errors: dict[str, Any] = {}
    own: dict[str, Any] = {"gemm": {}, "grouped": {}, "decode": {}}
    for stored in DTYPES:
        form = WIDE if stored == "bf16" else GEMM
        x = _fitted(form, chosen(name, "gemm", gemms(stored)), errors, f"gemm.{stored}")
        if x is not None:
            own["gemm"][stored] = _rounded(product_of(x if form is WIDE else x[:-1]))
    for (stored, dtype), kernels in product(GROUPED.items(), KERNELS):
        data = chosen(name, "moe_grouped_gemm", experts(dtype), runs(kernels))
        x = _fitted(EXPERTS, data, errors, f"grouped.{stored}.{kernels}")
        if x is not None:
            own["grouped"].setdefault(stored, {})[kernels] = _rounded(grouped_of(x))
    for (cached, dtype), (kernels, engine) in product(CACHED.items(), CORES.items()):
        x = _fitted(
            DECODE, chosen(name, "attn_decode", _cores((engine,), (dtype,))), errors, f"decode.{cached}.{kernels}"
        )
        if x is not None:
            own["decode"].setdefault(cached, {})[kernels] = _rounded(decode_of(x))
    for (cached, dtype), (kernels, engine) in product(CACHED.items(), LATENT_CORES.items()):
        latents = f"{LATENTS}{cached}"
        x = _fitted(DECODE, chosen(name, "mla_decode", _latents(engine, dtype)), errors, f"decode.{latents}.{kernels}")
        if x is not None:
            own["decode"].setdefault(latents, {})[kernels] = _rounded(decode_of(x))
    x = _fitted(PREFILL, chosen(name, "attn_prefill", _cores(("VLLM", "TRTLLM"), ("bfloat16",))), errors, "prefill")
    if x is not None:
        own["prefill"] = _rounded(Prefill(t0_s=x[0] * MICRO, ramp_rows=x[1], flops_share=x[2], bytes_share=x[3]))
    return own | given.told(), errors


def _rounded(fitted: msgspec.Struct) -> dict[str, float]:
    return {key: float(f"{float(getattr(fitted, key)):.3g}") for key in fitted.__struct_fields__}


def main() -> None:
    """Fit every generation, write the file, and say how far held-out rows are off."""
    generations, errors = {}, {}
    for name in FITTED:
        generations[name], errors[name] = fit_generation(name)
    for name, (other, forms) in LENT.items():
        generations[name] |= {form: generations[other][form] for form in forms}
    for name, like in ASSUMED.items():
        generations[name] = like.of(generations)
    links, errors["links"] = fit_links()
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    whole = {"command": COMMAND, "date": today, "generations": generations, "links": links, "held_out": errors}
    KERNELS_FILE.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
