"""The calibrated backend: its forms by hand, the laws, every chip, and how far held-out kernels are off."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer import estimate, search
from inferometer.catalog.chips import find_chip, load_chips
from inferometer.catalog.engine_kernels import kernels_of
from inferometer.catalog.engine_kernels import load_kernels as load_engine_kernels
from inferometer.cost.calibrated import calibrated_with, core_of, create, load_fits, load_serving, product_of, shipped
from inferometer.cost.factors import Factors
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
from inferometer.cost.registry import create_backend
from inferometer.cost.roofline import Roofline, total_bytes
from inferometer.errors import InferometerError
from inferometer.graph.ops import ONE, CollectiveKind, OpKind, Traffic, Work
from inferometer.measurement.fit_kernels import WIDE, chosen, error_of, gemms
from inferometer.measurement.fit_plan import ASSUMED, FITTED
from inferometer.specs.deployment import Kernels
from inferometer.specs.hardware import Axis

US = 1e-6


def product(m, n, k, *, kind=OpKind.GEMM, items=1.0, dtype="bf16"):
    m, n, k, items = (np.asarray(float(x)) for x in (m, n, k, items))
    return Work(
        name="x",
        kind=kind,
        dtype=dtype,
        flops=2 * items * m * n * k,
        traffic_bytes={Traffic.WEIGHTS: 2 * items * n * k, Traffic.ACTIVATIONS: 2 * items * m * (n + k)},
        replication=ONE,
        shape="",
        rows=m,
        features=n,
        items=items,
    )


def core(b, s, *, queries=1.0, kv_heads=8.0, heads=32.0, dim=128.0):
    b, s, queries = (np.asarray(float(x)) for x in (b, s, queries))
    pairs = s if queries == 1 else queries * (queries + 1) / 2
    return Work(
        name="attention-core",
        kind=OpKind.ATTENTION,
        dtype="bf16",
        flops=4 * b * heads * dim * pairs,
        traffic_bytes={Traffic.KV: 4 * b * kv_heads * dim * s, Traffic.ACTIVATIONS: 4 * b * queries * heads * dim},
        replication=ONE,
        shape="",
        rows=queries,
        items=b * kv_heads,
        sizes={"s": np.asarray(float(s))},
    )


def test_a_product_by_hand():
    """4096^3 on 132 units of tiles 128 x 128: 32 x 32 = 1024 tiles, 8 waves of 132 are 1056 / 1024 of F."""
    work = product(4096, 4096, 4096)
    own = Product(t0_s=3 * US, flops_share=0.8, bytes_share=0.5, fill=0.5, depth_s=2 * US, piece=0)
    flops, moved = 2 * 4096**3, 3 * 2 * 4096**2
    compute_s = flops * (1 + 0.5 * (1056 / 1024 - 1)) / (0.8 * 1e15)
    memory_s, depth_s = moved / (0.5 * 4e12), 8 * 4 * 2 * US
    found = product_price(work, own, units=132, peak=1e15, bandwidth=4e12, moved=total_bytes(work))
    assert found.total_s == pytest.approx(3 * US + (compute_s**2 + memory_s**2 + depth_s**2) ** 0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("piece", "pieces"),
    [
        (0, 1),  # kernels that do not split
        (4096, 4),  # 16,384 of depth in pieces of 4,096
        (128, 33),  # as many as 132 units have room for beside 4 tiles
    ],
)
def test_few_tiles_have_their_depth_split(piece, pieces):
    work = product(100, 512, 16384)
    own = Product(t0_s=0, flops_share=1, bytes_share=1, fill=1, depth_s=2 * US, piece=piece)
    compute_s = 2 * 100 * 128 * (16384 / pieces) * 132 / 1e15
    memory_s, depth_s = float(total_bytes(work)) / 4e12, 16 / pieces * 2 * US
    found = product_price(work, own, units=132, peak=1e15, bandwidth=4e12, moved=total_bytes(work))
    assert found.total_s == pytest.approx((compute_s**2 + memory_s**2 + depth_s**2) ** 0.5, rel=1e-12)


def test_tiles_of_weights_that_are_unpacked_were_never_timed():
    chip, backend = find_chip("h100"), create()
    timed, unpacked = product(1, 4096, 4096), replace(product(1, 4096, 4096), stored="int4")
    own = backend.generations["hopper"].gemm["bf16"]
    assert product_of(backend.generations["hopper"].gemm, timed) == own
    assert product_of(backend.generations["hopper"].gemm, unpacked).depth_s == 0
    assert backend.price(unpacked, chip).total_s < backend.price(timed, chip).total_s


def copies(name, moved):
    """Return an op that only moves bytes."""
    return Work(
        name=name,
        kind=OpKind.ELEMENTWISE,
        dtype="bf16",
        flops=0 * moved,
        traffic_bytes={Traffic.ACTIVATIONS: moved},
        replication=ONE,
        shape="",
    )


def test_every_sequence_of_a_rank_is_handed_its_token():
    """300 sequences over three replicas are 100 of a rank: 99 more than of one."""
    hopper = create().generations["hopper"]
    took = {
        batch: next(op.alone_s for op in answer.estimate.ops if op.name == "sample")
        for batch in (3, 300)
        for answer in [estimate("qwen2.5-7b", "h100 3x1", "R=3", batch=batch, backend="calibrated")]
    }
    moved = 99 * 2 * 152064 / (hopper.elementwise_share * find_chip("h100").memory_bytes_per_s)
    assert took[300] - took[3] == pytest.approx(99 * hopper.sequence_s + moved, rel=0.01)


def test_tiles_run_on_the_units_that_a_chip_has():
    """A chip that says nothing has units by its peak; twice as many take half the waves of deep tiles."""
    chip = find_chip("h100")
    backend, work = create(), product(128, 132 * 128 * 4, 65536)
    silent = msgspec.structs.replace(chip, units=None)
    assert backend.price(work, silent).total_s == pytest.approx(backend.price(work, chip).total_s, rel=0.01)
    fewer = msgspec.structs.replace(chip, units=33)
    few = replace(work, traffic_bytes={Traffic.WEIGHTS: np.ones(1)})
    assert backend.price(few, fewer).total_s > 1.2 * backend.price(few, chip).total_s


def test_the_host_takes_its_time_for_every_sequence():
    chip, backend = find_chip("h100"), create()
    alone = copies("sample", np.ones(1))
    hundred = replace(alone, sequences=np.array([100.0]))
    each = backend.generations["hopper"].sequence_s
    assert backend.price(hundred, chip).total_s - backend.price(alone, chip).total_s == pytest.approx(100 * each)


def test_cores_by_hand():
    """16 sequences of 8 kv heads on 100 units: two waves of 8,192 tokens. Of one, 8 pairs are split 12.5 times."""
    own = Decode(t0_s=10 * US, flops_share=0.5, bytes_share=0.9, wave_s=3 * US, depth_s=2 * US, piece=512)
    for b, waves, depth_s in ((16, 2, 2 * 8 * 2 * US), (1, 1, 8 / 12.5 * 2 * US)):
        work = core(b, 8192)
        memory_s = b * (8192 * 8 * 2 * 128 * 2 + 32 * 128 * 4) / (0.9 * 4e12)
        compute_s = b * 8192 * 32 * 128 * 4 / (0.5 * 1e15)
        found = decode_price(work, own, units=100, peak=1e15, bandwidth=4e12, moved=total_bytes(work))
        assert found.total_s == pytest.approx((10 + 3 * waves) * US + (compute_s**2 + memory_s**2 + depth_s**2) ** 0.5)
    prompt = core(1, 1000, queries=1000)
    ramp = Prefill(t0_s=10 * US, flops_share=0.5, ramp_rows=500, bytes_share=0.5)
    compute_s = 4 * 32 * 128 * 1000 * 1001 / 2 / (0.5 * 1e15 * 1000 / 1500)
    found = prefill_price(prompt, ramp, 1e15, 4e12, total_bytes(prompt))
    assert found.total_s == pytest.approx(10 * US + compute_s + float(total_bytes(prompt)) / 2e12, rel=1e-12)


WORKS = st.one_of(
    st.builds(product, st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000)),
    st.builds(
        product,
        st.integers(1, 500),
        st.integers(64, 4000),
        st.integers(64, 4000),
        kind=st.just(OpKind.GROUPED_GEMM),
        items=st.integers(1, 256),
    ),
    st.builds(core, st.integers(1, 300), st.integers(1, 100_000)),
    st.builds(core, st.integers(1, 8), st.just(4096), queries=st.integers(17, 9000)),
)
CALIBRATED = [chip for chip in load_chips().values() if chip.generation]
CHIPS = st.sampled_from([chip for chip in CALIBRATED if "bf16" in chip.peak_flops_per_s])


@given(WORKS, CHIPS)
def test_nothing_beats_a_bound(work, chip):
    found, limit = create_backend("calibrated").price(work, chip), Roofline().price(work, chip)
    assert found.total_s >= limit.total_s
    assert found.total_s >= np.maximum(found.compute_s, found.memory_s)


@given(WORKS, CHIPS, st.floats(1, 4), st.floats(1, 4))
def test_time_never_rises_when_a_rate_rises(work, chip, more_peak, more_bandwidth):
    quicker = msgspec.structs.replace(
        chip,
        memory_bytes_per_s=chip.memory_bytes_per_s * more_bandwidth,
        peak_flops_per_s={name: peak * more_peak for name, peak in chip.peak_flops_per_s.items()},
    )
    backend = create_backend("calibrated")
    assert backend.price(work, quicker).total_s <= backend.price(work, chip).total_s * (1 + 1e-12)


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(1, 9000), CHIPS)
def test_time_never_falls_when_rows_are_added(m, more, n, chip):
    backend = create_backend("calibrated")
    few, many = (backend.price(product(rows, n, 2048), chip).total_s for rows in (m, m + more))
    assert many >= few * (1 - 1e-12)


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 9000)), min_size=1, max_size=8), CHIPS)
def test_columns_cost_the_same_bits_as_scalars(sizes, chip):
    m, n = (np.array([float(x) for x in column]) for column in zip(*sizes, strict=True))
    work = product(1, 1, 512)
    many = resized(work, m, n)
    found = create_backend("calibrated").price(many, chip).total_s
    for i in range(len(sizes)):
        alone = resized(work, m[i : i + 1], n[i : i + 1])
        assert create_backend("calibrated").price(alone, chip).total_s[0] == found[i]


def resized(work, m, n):
    traffic = {Traffic.WEIGHTS: 2 * n * 512, Traffic.ACTIVATIONS: 2 * m * (n + 512)}
    return replace(work, flops=2 * m * n * 512, traffic_bytes=traffic, rows=m, features=n)


@pytest.mark.parametrize("chip", CALIBRATED, ids=lambda c: c.id)
def test_every_chip_takes_longer_than_its_limit(chip):
    given_ = {"batch": 8, "context": 2048}
    fitted = estimate("llama-3.1-8b", chip.id, backend="calibrated", **given_).estimate
    limit = estimate("llama-3.1-8b", chip.id, backend="roofline", scheduler="overlap", **given_).estimate
    assert limit.step_s < fitted.step_s < 20 * limit.step_s
    assert fitted.low_s < fitted.step_s < fitted.high_s


@pytest.mark.parametrize("model", ["qwen3-next-80b-a3b", "glm-5.2", "deepseek-v3.2", "nemotron-3-nano-30b-a3b"])
def test_every_kind_of_mixer_is_priced(model):
    found = search(model, "b200 8x2", backend="calibrated", top=1).answers[0].estimate
    assert {op.kind for op in found.ops} <= {str(kind) for kind in (*OpKind, *CollectiveKind)}
    assert all(op.alone_s > 0 for op in found.ops)


def test_a_kernel_in_a_graph_has_a_fixed_time():
    """What a roofline leaves out: a step of a tiny batch is mostly fixed times."""
    few = estimate("llama-3.1-8b", "h200 8x1", "TP=8", batch=1, context=128, backend="calibrated").estimate
    limit = estimate("llama-3.1-8b", "h200 8x1", "TP=8", batch=1, context=128, backend="roofline").estimate
    assert few.step_s > 3 * limit.step_s


def test_a_chip_without_a_generation_is_refused_in_one_line(tmp_path):
    file = tmp_path / "mine.toml"
    rates = 'memory_bytes="96 GiB"\nmemory_bytes_per_s="3 TB/s"\npeak_flops_per_s={bf16="500 TFLOP/s"}\n'
    file.write_text(f'id="mine"\n{rates}')
    with pytest.raises(InferometerError, match=r"mine names no generation.*--backend roofline"):
        estimate("llama-3.1-8b", f"{file} 1x1", batch=1, backend="calibrated")
    file.write_text(file.read_text() + 'generation="hoper"\n')
    with pytest.raises(InferometerError, match="unknown generation of chips 'hoper'; did you mean 'hopper'"):
        estimate("llama-3.1-8b", f"{file} 1x1", batch=1, backend="calibrated")
    file.write_text(file.read_text().replace("hoper", "hopper"))
    assert estimate("llama-3.1-8b", f"{file} 1x1", batch=1, backend="calibrated").estimate.step_s > 0


def test_every_generation_says_what_it_rests_on():
    fits = load_fits()
    assert {chip.generation for chip in CALIBRATED} == set(fits.generations) == {*FITTED, *ASSUMED}
    for name, own in fits.generations.items():
        assert own.basis == ("calibrated" if name in FITTED else "assumed")
        assert own.source
        families = [*own.grouped.values(), *own.decode.values()]
        fitted = [own.prefill, *own.gemm.values(), *(one for family in families for one in family.values())]
        assert all(0 < share <= 1 for one in fitted for share in (one.flops_share, one.bytes_share))


def test_held_out_kernels_are_as_far_off_as_the_file_says():
    """The bounds are what was reached, rounded up; the goals of a later fit are lower."""
    held = load_fits().held_out
    for name, most in (("gemm.bf16", 0.14), ("decode.bf16.flash", 0.17), ("prefill", 0.18)):
        assert all(held[g][name]["median"] <= most for g in FITTED if name in held[g]), name
    for generation in ("hopper", "blackwell"):
        products = {name: own for name, own in held[generation].items() if name.startswith("gemm.")}
        assert len(products) >= 3
        assert all(own["median"] < (0.08 if name == "gemm.bf16" else 0.12) for name, own in products.items())
        cores = {name: own for name, own in held[generation].items() if name.startswith("decode.")}
        assert len(cores) >= 7  # nothing times FlashAttention on a cache of latents in 8 bits, but on Blackwell
        assert all(own["median"] < (0.15 if "latent" in name else 0.1) for name, own in cores.items())
    for generation, most in (("hopper", 0.11), ("blackwell", 0.14)):
        experts = {name: own for name, own in held[generation].items() if name.startswith("grouped.")}
        assert len(experts) > 5
        assert all(own["median"] <= most for own in experts.values())


def test_committed_coefficients_price_the_timed_kernels():
    """Of the whole table, in sample: about as far off as the rows held out."""
    product_ = load_fits().generations["hopper"].gemm["bf16"]
    shares = (product_.flops_share, product_.bytes_share, product_.fill)
    x = np.array([product_.t0_s / US, *shares, product_.depth_s / US, product_.piece])
    ratios = [WIDE.price(x, t) / t.timed_s for t, _ in chosen("hopper", "gemm", gemms("bf16"))]
    assert error_of(np.concatenate(ratios))["median"] <= 0.07


def grouped(tokens, experts, features, depth, stored):
    """Return one grouped product, tokens spread evenly over experts."""
    one = np.ones(1)
    return Work(
        name="experts.up",
        kind=OpKind.GROUPED_GEMM,
        dtype="bf16",
        flops=2 * tokens * features * depth * one,
        traffic_bytes={Traffic.WEIGHTS: experts * features * depth * 2 * one},
        replication=one,
        stored=stored,
        rows=tokens / experts * one,
        features=features * one,
        items=experts * one,
        shape="",
    )


def test_a_grouped_product_spelled_out():
    """t0 + sqrt(F^2 + W^2 + T^2); 3 tokens of 8 experts: 8 x 1 x 2 tiles of 256 columns, each c + d 512 / 1024."""
    work = grouped(24, 8, 256, 512, "bf16")
    own = Grouped(t0_s=3 * US, flops_share=0.8, bytes_share=0.5, tile_s=2 * US, depth_s=4 * US)
    flops_s, bytes_s = 2 * 24 * 256 * 512 / (0.8 * 1e12), 8 * 256 * 512 * 2 / (0.5 * 4e11)
    tiles_s = 16 * (2 * US + 4 * US / 2) / 100
    found = grouped_price(work, own, units=100, peak=1e12, bandwidth=4e11, moved=total_bytes(work))
    assert float(found.total_s[0]) == pytest.approx(3 * US + np.sqrt(flops_s**2 + bytes_s**2 + tiles_s**2), rel=1e-12)
    assert (float(found.compute_s[0]), float(found.memory_s[0])) == pytest.approx((flops_s, bytes_s), rel=1e-12)


def test_weights_find_the_kernels_that_were_timed_for_them():
    """MXFP4 multiplied in bf16 has its own; a format without any takes its arithmetic type's."""
    chip, shipped_ = find_chip("h200"), shipped()
    own = shipped_.generation(chip).grouped
    assert own["mxfp4-bf16"] != own["bf16"]
    times = {s: float(shipped_.price(grouped(32, 128, 2880, 2880, s), chip).total_s[0]) for s in ("bf16", "mxfp4", "x")}
    assert times["x"] == times["bf16"] != times["mxfp4"]


def test_a_reduction_takes_in_the_norm_behind_it():
    """TensorRT-LLM's: no kernel of its own where ranks sum, its bytes all the same; alone, one as everywhere."""
    chip, backend = find_chip("h200"), shipped()
    norm = replace(copies("ffn.norm", np.full(2, 1e6)), summed=np.array([1.0, 8.0]))
    launch_s = backend.generation(chip).launch_s
    apart = backend.price(norm, chip).total_s
    assert backend.running(kernels_of("trtllm")).price(norm, chip).total_s == pytest.approx(apart - [0, launch_s])
    assert backend.running(kernels_of("vllm")).price(norm, chip).total_s == pytest.approx(apart)


def test_a_norm_behind_a_scatter_is_a_kernel_of_its_own():
    """TensorRT-LLM's all-reduce norms; where each rank keeps a part of the tokens nothing was reduced on all."""
    asked = {"sizes": "TP=8", "batch": 8, "engine": "trtllm", "backend": "calibrated"}
    took = {}
    for residual in ("replicated", "sequence"):
        row = estimate("llama-3.1-70b", "h100 8x1", choice=f"residual={residual}", **asked)
        took[residual] = next(op.alone_s for op in row.estimate.ops if op.name == "ffn.norm")
    launch_s = shipped().generations["hopper"].launch_s
    assert took["replicated"] < launch_s < took["sequence"]


def test_a_core_finds_the_kernels_of_its_cache():
    """Latents have their own; formats without any take those of as many bits, or 16."""
    hopper, ampere = (shipped().generations[name].decode for name in ("hopper", "ampere"))
    assert core_of(hopper, "latent-fp8") == hopper["latent-fp8"] != hopper["fp8"] == core_of(hopper, "int8")
    assert core_of(hopper, "fp16") == core_of(hopper, "") == hopper["bf16"] == core_of(hopper, "bf16")
    assert core_of(ampere, "fp8") == ampere["bf16"]
    assert core_of({"bf16": 1, "latent-bf16": 2}, "latent-fp8") == 2


def test_an_engine_runs_its_own_kernels():
    """Hopper's decode attention is XQA's in TensorRT-LLM, FlashAttention's in vLLM; launches are as stated."""
    chip, plain = find_chip("h200"), shipped()
    flash, xqa = (plain.generation(chip).decode["fp8"][name] for name in ("flash", "xqa"))
    work = replace(core(8, 1), flops=np.asarray(1.0), traffic_bytes={Traffic.KV: np.asarray(1.0)}, stored="fp8")
    by_engine = {
        name: float(plain.running(kernels_of(name)).price(work, chip).total_s) for name in load_engine_kernels()
    }
    assert by_engine["trtllm"] == pytest.approx(xqa.t0_s + xqa.wave_s, rel=1e-2)
    assert by_engine["vllm"] == by_engine["sglang"] == pytest.approx(flash.t0_s + flash.wave_s, rel=1e-2)
    assert float(plain.price(work, chip).total_s) == by_engine["vllm"]
    passes = {name: replace(work, name="x.quantise", kind=OpKind.ELEMENTWISE, stored=name) for name in ("fp8", "nvfp4")}
    told = plain.running(Kernels(launches={"x.quantise@fp8": 0, "x.quantise": 3}))
    assert told.price(passes["fp8"], chip).total_s == 0
    more = told.price(passes["nvfp4"], chip).total_s - plain.price(passes["nvfp4"], chip).total_s
    assert float(more) == pytest.approx(2 * plain.generation(chip).launch_s)


def test_factors_change_what_they_name():
    chip, work = find_chip("h200"), product(8, 4096, 4096)
    plain, doubled = (calibrated_with({"hopper": Factors(fixed=f)}) for f in (1.0, 2.0))
    t0 = load_fits().generations["hopper"].gemm["bf16"].t0_s
    assert doubled.price(work, chip).total_s - plain.price(work, chip).total_s == pytest.approx(t0)
    slower = calibrated_with({"hopper": Factors(memory=0.5)})
    assert slower.price(work, chip).memory_s == pytest.approx(2 * plain.price(work, chip).memory_s)
    axis = Axis(name="nvlink", geometry="switch", size=8, bytes_per_s=450e9, latency_s=0.0)
    far = calibrated_with({"hopper": Factors(messages=3.0, links=0.5)})
    assert far.link(axis).alpha_s == pytest.approx(3 * plain.link(axis).alpha_s)
    assert far.link(axis).bytes_per_s == pytest.approx(plain.link(axis).bytes_per_s / 2)
    uneven = calibrated_with({"hopper": Factors(flops=0.8, experts=0.5)}).generations["hopper"]
    own = plain.generations["hopper"]
    for family, kernels in own.grouped["bf16"].items():
        assert uneven.grouped["bf16"][family].flops_share == pytest.approx(0.4 * kernels.flops_share)
    assert uneven.gemm["bf16"].flops_share == pytest.approx(0.8 * own.gemm["bf16"].flops_share)
    assert calibrated_with({"hopper": Factors(sequences=2.0)}).generations["hopper"].sequence_s == 2 * own.sequence_s


def test_folds_and_figures_are_committed_with_their_command():
    serving = load_serving()
    assert len(serving.folds) == 5
    assert serving.command.startswith("python -m inferometer.measurement.fit_serving")
    assert serving.low < 1 < serving.high
    assert serving.figures["B tpot"]["median"] < 0.18
    assert serving.figures["A throughput"]["median"] < 0.14
    json.dumps(msgspec.to_builtins(serving))
