"""What the fits see: experts of benchmarks that spread tokens evenly, and which software counts."""

import numpy as np
import pytest

from inferometer.cost.factors import NAMES, Factors
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
