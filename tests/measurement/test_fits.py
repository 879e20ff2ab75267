"""What the fits see: experts of benchmarks that spread tokens evenly, and which software counts."""

from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.catalog.chips import find_chip
from inferometer.cost.calibrated import calibrated_with
from inferometer.cost.factors import NAMES, Factors
from inferometer.cost.kernels import product_price
from inferometer.cost.measured import Measured
from inferometer.cost.measured_chips import timed_chip
from inferometer.cost.measured_forms import FORMS
from inferometer.cost.roofline import total_bytes
from inferometer.measurement.fit_kernels import GEMM, chosen, gemms, product_of
from inferometer.measurement.fit_plan import GROUPED, KERNELS, kernels_of
from inferometer.measurement.fit_serving import WEIGHTS, Linear, Rows, fitted_rows, step
from inferometer.measurement.kernel_works import KINDS, moe_works
from inferometer.measurement.kernels import COLUMNS, load_kernels


def block(**said):
    row = dict.fromkeys(COLUMNS, "")
    return row | {"top_k": "4", "experts": "128", "hidden": "64", "width": "32", "tp": "1", "ep": "1"} | said


@pytest.mark.parametrize(
    ("distribution", "tokens", "asked"),
    [("balanced", 8, 32.0), ("balanced", 64, 128.0), ("power_law_1.2", 8, 128 * (1 - (1 - 4 / 128) ** 8))],
)
def test_even_tokens_ask_for_as_many_experts_as_they_can(distribution, tokens, asked):
    up, down, _ = moe_works((block(distribution=distribution, tokens=str(tokens)),), KINDS["bfloat16"])
    assert float(up.items[0]) == float(down.items[0]) == pytest.approx(asked)


def test_every_timed_expert_block_is_of_a_family_that_is_fitted():
    rows = [row for row in load_kernels() if row["op"] == "moe_grouped_gemm"]
    assert {row["distribution"] for row in rows} == {"balanced"}
    assert {row["ep"] for row in rows} == {"1"}
    named = {kernels_of(row["dtype"], row["kernel"]) for row in rows}
    assert set(KERNELS) <= named
    assert {row["dtype"] for row in rows} == set(GROUPED.values())


def test_a_class_that_weighs_a_fifth_moves_a_factor_a_sixth():
    """Two series, one that asks for a thousandth more and one for nothing: 0.001 x 0.2 / 1.2."""
    rows = Rows(
        asked=(),
        generation=("g", "g"),
        pair=("a", "b"),
        fold=np.zeros(2, dtype=np.intp),
        weight=np.array([0.2, 1.0]),
        measured=np.ones(2),
        sign=np.ones(2),
    )
    slope = np.zeros((2, len(NAMES)))
    slope[:, 0] = 1.0
    line = Linear({"g": Factors()}, np.array([-1e-3, 0.0]), slope)
    found = step(rows, np.ones(2, dtype=np.bool_), line, {"g": np.zeros(len(NAMES))}, pull=1e-9)
    assert found[0] == pytest.approx(1e-3 * 0.2 / 1.2, rel=1e-3)


def test_rows_weigh_as_their_class():
    rows = fitted_rows()
    assert {one.point.klass for one, own in zip(rows.asked, rows.weight, strict=True) if own == 1} == {"B", "B2"}
    assert {one.point.klass for one, own in zip(rows.asked, rows.weight, strict=True) if own < 1} == set(WEIGHTS)


@pytest.mark.parametrize(
    ("form", "narrow_bytes"), [("gemm.fp8", 1), ("gemm.fp8-block", 1 + 4 / 128), ("gemm.fp4", 0.5 + 1 / 16)]
)
def test_measured_takes_off_the_pass_that_quantises(form, narrow_bytes):
    """A table that times the pass as lowering counts it, [m, k] read in 16 bits and written narrow, says x 1."""
    columns = {"m": np.array([8.0, 4096.0]), "n": np.array([4096.0, 512.0]), "k": np.array([7168.0, 8192.0])}
    own, chip, plain = FORMS[form], timed_chip(find_chip("b200-sxm")), calibrated_with({})
    (part,), passes = own.rows(columns), own.around(columns)
    assert total_bytes(passes) == pytest.approx(columns["m"] * columns["k"] * (2 + narrow_bytes))
    seconds = plain.price(own.work(*part), chip).total_s + plain.price(passes, chip).total_s
    backend = Measured(plain, SimpleNamespace(read=lambda *_: None))
    assert backend.log_ratio(form, (part,), columns, seconds, chip) == pytest.approx([0.0, 0.0], abs=1e-9)
    assert FORMS["gemm.bf16"].around is None


def test_narrow_tables_time_a_kernel_that_quantises_first():
    """Its launch and so many times [m, k] in 16 bits, beside the product that is kept."""
    table, _ = next(iter(chosen("hopper", "gemm", gemms("fp8"))))
    x = np.array([4.0, 0.6, 0.8, 0.2, 0.5, 2.5])
    alone, kept = GEMM.price(x, table), product_of(x[:-1])
    (work,) = table.works
    rates = {"units": table.given.units_of(table.chip), "peak": table.chip.peak_flops_per_s["fp8"]}
    bandwidth = table.chip.memory_bytes_per_s
    product = product_price(work, kept, bandwidth=bandwidth, moved=total_bytes(work), **rates).total_s
    inside = np.array([float(row["m"]) * float(row["k"]) for row in table.rows])
    assert alone - product == pytest.approx(table.given.launch_s + 2.5 * 2 * inside / bandwidth)
