"""The measured backend over recorded timings: at them, between them, away from them; what is said of each operation."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from blocks.made_up import decode
from cli.command import inferometer
from cost.recorded import INSTALLED, Recorded, backend, kernels, recorded
from cost.test_calibrated import core, product

from inferometer import load_machine, load_model
from inferometer.catalog.chips import find_chip, load_chips
from inferometer.cost import silicon
from inferometer.cost.calibrated import calibrated_with, load_serving
from inferometer.cost.measured import LEAST, Measured
from inferometer.cost.measured_chips import TIMED_CHIPS
from inferometer.cost.measured_forms import FORMS
from inferometer.cost.measured_seen import seen
from inferometer.cost.registry import _OWN
from inferometer.cost.silicon import MISSING, Timed
from inferometer.errors import InferometerError
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.graph.ops import OpKind, Traffic
from inferometer.measurement.questions import fold_of
from inferometer.measurement.validate import asked_points, fold_backends, seen_by_fit
from inferometer.specs.deployment import Deployment, Sizes

H200 = find_chip("h200")
needs_package = pytest.mark.skipif(not INSTALLED, reason="aiconfigurator-core is not installed")


def recorded_s(form, **at):
    rows = [row for row in recorded()["rows"] if row["form"] == form and all(row[k] == v for k, v in at.items())]
    (row,) = rows
    return row["seconds"]


@pytest.mark.parametrize("m", [1, 16, 64, 256, 1024, 4096])
@pytest.mark.parametrize(("n", "k"), [(4096, 8192), (8192, 8192)])
def test_a_product_that_was_timed_takes_what_it_took(m, n, k):
    found = kernels().price(product(m, n, k), H200)
    assert found.total_s == pytest.approx(recorded_s("gemm.bf16", m=m, n=n, k=k), rel=0.02)
    assert kernels().timed(product(m, n, k), H200).all()


@pytest.mark.parametrize("form", [form for form in FORMS if Recorded().read("h200-sxm", form)])
def test_every_recorded_row_is_told_apart_and_priced_as_it_was_timed(form):
    table, own = Recorded().read("h200-sxm", form), FORMS[form]
    parts = own.rows(table.columns)
    for part in parts:
        assert seen(own.work(*part)).form == form
    priced = [kernels().price(own.work(*part), H200).total_s for part in parts]
    if own.around is not None:
        priced.append(kernels().price(own.around(table.columns), H200).total_s)
    off = np.abs(np.log(sum(priced) / table.seconds))
    assert np.median(off) < 0.05
    assert off.max() < 0.25


def test_between_two_timings_time_lies_between():
    few, middle, many = (float(kernels().price(product(m, 8192, 8192), H200).total_s) for m in (256, 700, 1024))
    assert few < middle < many


def test_what_is_between_shapes_takes_the_share_of_both():
    """A product of n between two that were timed is as far from the calibrated as they are."""
    plain = calibrated_with({})

    def share(n):
        work = product(256, n, 8192)
        return float(kernels().price(work, H200).total_s / plain.price(work, H200).total_s)

    low, high = sorted((share(4096), share(8192)))
    assert low * 0.95 <= share(6000) <= high * 1.05


def test_shares_fade_away_from_what_was_timed():
    """64 columns are more than FADE below the 4096 that were timed: the calibrated price, to the last bit."""
    work = product(256, 64, 4096)
    assert kernels().price(work, H200) == calibrated_with({}).price(work, H200)
    assert not kernels().timed(work, H200).any()
    assert not kernels().timed(product(256, 1400, 4096), H200).any()  # half-way out, in log space


@pytest.mark.parametrize("chip", ["mi300x", "h100-pcie", "b200-sxm"])
def test_a_chip_without_tables_is_calibrated(chip):
    work = product(256, 4096, 4096)
    found, other = (backend(name).price(work, find_chip(chip)) for name in ("recorded", "calibrated"))
    assert found == other


@pytest.mark.parametrize(
    "work",
    [
        product(64, 4096, 4096, dtype="fp16"),
        product(64, 4096, 4096, items=3),
        replace(product(64, 4096, 4096), kernels=2.0),
        replace(product(64, 4096, 4096), features=None),
        replace(product(64, 4096, 4096), traffic_bytes={Traffic.WEIGHTS: np.asarray(4096 * 4096 * 0.53)}),
        replace(core(8, 4096), kind=OpKind.SCAN),
        core(8, 4096),
    ],
    ids=["type", "several", "kernels", "shape", "format", "scan", "no group"],
)
def test_what_looks_like_nothing_that_was_timed_is_calibrated(work):
    work = replace(work, flops=np.asarray(work.flops))
    assert backend("recorded").price(work, H200) == backend("calibrated").price(work, H200)


def test_an_absurd_timing_is_held_to_what_a_kernel_can_be():
    """One row a hundred times too fast: no less than LEAST of the calibrated kernel, nor than the bound."""

    class Wrong(Recorded):
        def read(self, chip, form):
            table = super().read(chip, form)
            return None if table is None else Timed(table.columns, table.seconds / 100)

    work, plain = product(256, 8192, 8192), calibrated_with({})
    found = float(Measured(plain, Wrong()).price(work, H200).total_s)
    bound_s = (2 * 8192 * 8192 + 2 * 256 * 2 * 8192) / H200.memory_bytes_per_s
    assert found >= max(bound_s, LEAST * float(plain.price(work, H200).total_s)) * (1 - 1e-9)


def test_a_quicker_chip_of_the_name_takes_the_same_share_of_its_own_time():
    quick = msgspec.structs.replace(H200, memory_bytes_per_s=2 * H200.memory_bytes_per_s)
    work, plain = product(16, 8192, 8192), calibrated_with({})
    own, other = (kernels().price(work, chip).total_s / plain.price(work, chip).total_s for chip in (H200, quick))
    assert own == pytest.approx(other, rel=1e-6)


def test_what_was_timed_was_timed_at_the_rates_of_the_catalogue():
    for name, timed in TIMED_CHIPS.items():
        chip = load_chips()[name]
        assert chip.generation == timed.generation
        assert chip.memory_bytes_per_s == pytest.approx(timed.memory_bytes_per_s)
        for dtype, peak in timed.peak_flops_per_s.items():
            assert chip.peak_flops_per_s[dtype] == pytest.approx(peak), (name, dtype)
    assert set(TIMED_CHIPS) == set(silicon.SYSTEMS)
    assert set(FORMS) == set(silicon.FORMS)


def priced(own):
    model, machine = load_model("llama-3.1-8b"), load_machine("h200", "2x1")
    problem = make_problem(model, machine, decode(4096), backend=own, scheduler="serial")
    return estimate(problem, Deployment(sizes=Sizes(tp=2), batch=16))


def test_every_operation_says_what_its_time_rests_on():
    found = priced(backend("recorded"))
    by_name = {op.name: op.basis for op in found.ops}
    assert {by_name[name] for name in ("gate+up", "down", "o")} == {"measured"}
    assert {by_name[name] for name in ("mixer.norm", "embedding", "all-reduce(tp)")} == {"calibrated"}
    shares = found.basis_shares
    spent = dict.fromkeys(shares, 0.0)
    for op in found.ops:
        spent[op.basis] += op.alone_s * op.share * op.layers
    assert shares == pytest.approx({basis: s / sum(spent.values()) for basis, s in spent.items()})
    assert set(shares) == {"measured", "calibrated"}
    assert found.basis == "calibrated"


@pytest.mark.parametrize(("name", "basis"), [("roofline", "analytic"), ("calibrated", "calibrated")])
def test_other_backends_have_one_basis(name, basis):
    assert priced(backend(name)).basis_shares == {basis: 1.0}


@pytest.fixture
def _recorded(monkeypatch):
    monkeypatch.setitem(_OWN, "measured", lambda _=None: backend("recorded"))


@pytest.mark.usefixtures("_recorded")
def test_explain_shows_it():
    words = ("explain", "llama-3.1-8b", "h200", "2x1", "-tp", "2", "--batch", "16", "--context", "4096")
    done = inferometer(*words, "--backend", "measured")
    assert done.status == 0, done.err
    assert "of the step's time on measured kernels" in " ".join(done.out.split())
    lines = [line.split() for line in done.out.splitlines() if line.strip()]
    assert next(line for line in lines if line[:2] == ["gate+up", "bf16"])[-1] == "m"
    assert next(line for line in lines if line[0] == "mixer.norm")[-1] == "c"
    (row,) = inferometer(*words, "--backend", "measured", "--json").rows
    assert row["basis_shares"]["measured"] > 0.4
    assert {op["basis"] for op in row["ops"]} == {"measured", "calibrated"}
    plain = inferometer(*words, "--backend", "calibrated")
    assert "measured kernels" not in plain.out


@pytest.mark.usefixtures("_recorded")
def test_search_finds_what_explain_prices():
    words = ("llama-3.1-8b", "h200", "2x1", "--context", "4096", "--backend", "measured", "--json")
    best = inferometer("search", *words).rows[0]
    sizes = ",".join(f"{role.upper()}={n}" for role, n in best["sizes"].items() if n > 1 and role not in ("ep", "etp"))
    asked = ("--sizes", sizes) if sizes else ()
    again = inferometer("explain", *words, *asked, "--batch", str(best["batch"])).rows[0]
    assert (again["step_s"], again["id"]) == (best["step_s"], best["id"])


def test_validate_prices_a_point_by_the_factors_of_its_fold():
    own = backend("recorded")
    asked = next(one.question for one in asked_points(("B",)) if one.point.metric == "tpot")
    found = fold_backends(own)(asked)
    fold = load_serving().folds[fold_of(asked.setup.model, asked.setup.chip)]
    assert found.tables is own.tables
    assert found.inner.generations == calibrated_with(fold).generations
    assert not seen_by_fit(own, H200)


@pytest.fixture
def _absent(monkeypatch):
    monkeypatch.setattr(silicon, "installed_version", lambda: None)


@pytest.mark.usefixtures("_absent")
@pytest.mark.parametrize("verb", ["search", "explain"])
def test_without_the_package_there_is_one_line_with_the_command(verb):
    done = inferometer(verb, "llama-3.1-8b", "h200", "--backend", "measured")
    assert done.status == 2
    assert len(done.err.strip().splitlines()) == 1
    assert "pip install 'inferometer[measured]'" in done.err


@pytest.mark.usefixtures("_absent")
def test_backends_say_how_to_install_it_and_how_good_it_would_be():
    row = next(row for row in inferometer("backends", "--json").rows if row["backend"] == "measured")
    assert row["error"] == MISSING
    assert [chip for one in row["covered"] for chip in one["chips"]] == list(TIMED_CHIPS)
    assert "aiconfigurator-core 0.12.0" in row["data"][0]
    for one in row["covered"]:
        assert "bf16" in one["dtypes"]
        assert all(figure["n"] > 100 for figure in one["figures"])


@needs_package
def test_the_installed_tables_read_as_they_were_recorded():
    tables = silicon.Silicon()
    assert tables.version == silicon.PINNED
    for form in FORMS:
        assert (tables.read("h200-sxm", form) is None) == (form in {"gemm.fp4", "moe.fp4"}), form
    for row in recorded()["rows"]:
        table = tables.read("h200-sxm", row["form"])
        keep = np.all([table.columns[x] == row[x] for x in table.columns], axis=0)
        assert table.seconds[keep].min() * 0.999 <= row["seconds"] <= table.seconds[keep].max() * 1.001
    assert tables.read("mi300x", "gemm.bf16") is None


@needs_package
@pytest.mark.parametrize("model", ["deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b", "llama-3.1-70b"])
def test_search_takes_seconds(model):
    found = inferometer("search", model, "h200", "8x2", "--backend", "measured", "--json")
    assert found.status == 0, found.err
    assert found.rows[0]["backend"] == "measured"


@needs_package
def test_a_table_of_another_layout_is_refused_in_one_line(tmp_path, monkeypatch):
    file = tmp_path / "h200_sxm" / "gemm" / "trtllm" / "9" / "gemm_perf.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"PAR1 not at all")
    tables = silicon.Silicon()
    monkeypatch.setattr(tables, "_data", tmp_path)
    with pytest.raises(InferometerError, match=r"gemm_perf.parquet is not as in aiconfigurator-core 0.12.0"):
        tables.read("h200-sxm", "gemm.bf16")
