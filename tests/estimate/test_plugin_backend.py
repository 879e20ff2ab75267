"""A backend that nobody here has heard of, registered as an entry point, prices the pipeline untouched."""

import sys

import numpy as np
import pytest
from blocks.made_up import axis, decode, machine, model, prefill

from inferometer.cost.registry import backend_names, create_backend
from inferometer.errors import InferometerError, UnknownNameError
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Moe
from inferometer.specs.mixers import Attention

MODULE = """
import numpy as np
from inferometer.cost.backend import Band, Support, WorkPrice
from inferometer.cost.groups import LinkRate


class Launches:
    name = "launches"
    basis = "measured"

    def supports(self, kind, chip):
        return Support(chip.vendor == "tests", "only the tests' chips")

    def price(self, work, chip):
        second = np.ones(())
        return WorkPrice(0 * second, 0 * second, second)

    def link(self, axis):
        return LinkRate(0.0, 1e300)

    def band(self):
        return Band(0.5, 2.0, "made up")


def create(calibration=None):
    return Launches()


def broken(calibration=None):
    raise AssertionError("made only when asked for")
"""


@pytest.fixture
def _installed(tmp_path, monkeypatch):
    """Put a distribution with an entry point on sys.path."""
    (tmp_path / "made_up_backend.py").write_text(MODULE, encoding="utf-8")
    info = tmp_path / "made_up_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up-backend\nVersion: 1.0\n", encoding="utf-8")
    points = "[inferometer.backends]\nlaunches = made_up_backend:create\nlost = made_up_backend_lost:create\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    backend_names.cache_clear()
    yield
    backend_names.cache_clear()
    sys.modules.pop("made_up_backend", None)


SPEC = model(Attention(heads=8, kv_heads=8, head_dim=32), Moe(experts=8, top_k=2, width=128, shared_width=128))


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("workload", [decode(100), prefill(100)], ids=["decode", "prefill"])
@pytest.mark.parametrize("sizes", [Sizes(r=4), Sizes(dpa=2, tp=2, ep=4)], ids=str)
def test_a_backend_of_one_second_an_op_takes_as_many_seconds_as_ops(workload, sizes):
    problem = make_problem(SPEC, machine(axis(4)), workload, backend="launches", scheduler="serial")
    got = estimate(problem, Deployment(sizes=sizes, batch=16))
    works = [op for op in got.ops if op.network_s == 0]
    assert got.step_s == pytest.approx(sum(op.layers * op.share for op in works), rel=1e-9)
    assert len(works) > 10
    assert all(op.alone_s == pytest.approx(1.0) for op in works)
    assert (got.basis, got.band_source) == ("measured", "made up")
    assert (got.low_s, got.high_s) == (0.5 * got.step_s, 2.0 * got.step_s)


@pytest.mark.usefixtures("_installed")
def test_it_is_listed_by_name():
    assert backend_names() == tuple(sorted({*backend_names(), "launches", "roofline"}))


@pytest.mark.usefixtures("_installed")
def test_what_it_does_not_support_is_refused_with_its_reason():
    chip = machine().chip
    other = machine(chip=type(chip)(**{f: getattr(chip, f) for f in chip.__struct_fields__} | {"vendor": "other"}))
    with pytest.raises(InferometerError, match="only the tests' chips"):
        make_problem(SPEC, other, decode(1), backend="launches")


@pytest.mark.usefixtures("_installed")
def test_one_that_cannot_be_loaded_says_so():
    with pytest.raises(InferometerError, match=r"'lost'.*cannot be loaded"):
        create_backend("lost")


def test_an_unknown_name_lists_the_known():
    with pytest.raises(UnknownNameError, match="roofline"):
        create_backend("rooflin")


def test_a_backend_object_may_be_handed_in():
    class Doubled:
        """Twice the roofline."""

        def __init__(self):
            self.inner = create_backend("roofline")
            self.name, self.basis = "doubled", "assumed"
            self.supports, self.band = self.inner.supports, self.inner.band

        def price(self, work, chip):
            return type(self.inner.price(work, chip))(*(2 * x for x in self.inner.price(work, chip)))

        def link(self, at):
            rate = self.inner.link(at)
            return type(rate)(2 * rate.alpha_s, rate.bytes_per_s / 2)

    def seconds(backend):
        problem = make_problem(SPEC, machine(axis(4)), decode(100), backend=backend, scheduler="overlap")
        return estimate(problem, Deployment(sizes=Sizes(dpa=2, tp=2, ep=4), batch=16)).step_s

    assert seconds(Doubled()) == pytest.approx(2 * seconds("roofline"), rel=1e-12)
    assert np.isfinite(seconds("roofline"))
