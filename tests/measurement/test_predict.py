"""Predictions with the roofline and the default scheduler, by hand and by brute force.

overlap: time = max(compute, a memory, b network) + (1 - a) memory + (1 - b) network, a = 0.9, b = 0.65. Where memory
bounds on one chip that is the memory time; where compute bounds, compute + 0.1 memory.
"""

import dataclasses

import pytest
from measurement.rows import dialect_text

from inferometer.catalog.loader import build_machine, find_chip
from inferometer.cost.registry import create_backend
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.measurement.models import stored_model
from inferometer.measurement.passes import Pricer
from inferometer.measurement.predict import passes_of, predict
from inferometer.measurement.published import read_points
from inferometer.measurement.questions import ask
from inferometer.specs.deployment import Deployment, Workload

L, H, F, V, N, D = 32, 4096, 11008, 32000, 32, 128
"""Llama 2 7B: layers, hidden, FFN width, vocabulary, heads (kv heads too), head dim."""

LAYER = 4 * H * H + 3 * H * F
"""Weights of q, k, v, o and of gate, up, down."""


@pytest.fixture
def point(tmp_path):
    (tmp_path / "one.csv").write_text(dialect_text({}), encoding="utf-8")
    return read_points(tmp_path / "one.csv")[0]


def predicted(point, **change):
    changed = dataclasses.replace(point, **change)
    question = ask(changed)
    pricer = Pricer(create_backend("roofline"))
    pricer.price((one, question.batch) for one in passes_of(question, changed.metric))
    return predict(question, changed.metric, pricer).value


def test_a_row_is_priced_with_the_kernels_of_the_engine_that_ran(point):
    """Where vLLM launches two kernels to rotate and write the cache, TensorRT-LLM does both in the attention."""

    def tpot(framework):
        question = ask(dataclasses.replace(point, metric="tpot", framework=framework))
        pricer = Pricer(create_backend("calibrated"))
        (one,) = passes_of(question, "tpot")
        pricer.price([(one, question.batch)])
        return pricer.step_s(one, question.batch)

    assert tpot("vLLM 0.11") > tpot("TensorRT-LLM")
    assert tpot("vllm") == tpot("vLLM 0.11")


def estimated(point, workload, batch):
    """The public estimate's step for a point's setup under a workload, seconds."""
    setup = ask(point).setup
    model = stored_model(setup.model, setup.weights, setup.kv, head=setup.head)
    machine = build_machine("h100", n_chips=setup.n_chips)
    problem = make_problem(model, machine, workload, backend="roofline")
    return estimate(problem, Deployment(sizes=setup.sizes, batch=batch)).step_s


def test_one_decode_step_reads_weights_and_kv(point):
    """Every layer and the head once, KV of the mean context, at the chip's bandwidth; activations add a little."""
    isl, osl, batch = 128, 9, 4
    context = isl + osl / 2  # steps see 129..136
    weights = 2 * (L * LAYER + H * V)
    kv = batch * context * 2 * 2 * L * N * D  # K and V, 2 bytes
    by_hand_s = (weights + kv) / find_chip("h100").memory_bytes_per_s
    assert by_hand_s < predicted(point, metric="tpot") < by_hand_s * 1.02


def test_a_prefill_computes_every_token(point):
    """2 flops a weight and token; attention 2 x 2 N D flops a pair, I (I + 1) / 2 pairs; head for last tokens only."""
    isl, batch = 2048, 16
    pairs = isl * (isl + 1) / 2
    flops = batch * (2 * isl * L * LAYER + L * 4 * N * D * pairs + 2 * H * V)
    by_hand_s = flops / find_chip("h100").peak_flops_per_s["fp16"]
    assert by_hand_s < predicted(point, metric="ttft", isl_tok=isl, batch=batch) < by_hand_s * 1.05


def test_e2e_is_the_prefill_and_every_decode_step(point):
    """Against one estimate a step: I = 128, O = 9, so the steps see 129..136."""
    steps = sum(estimated(point, Workload(phase="decode", context=c), 4) for c in range(129, 137))
    prefill = estimated(point, Workload(phase="prefill", isl=128), 4)
    assert predicted(point) == pytest.approx(prefill + steps, rel=1e-9)


def test_tensor_parallel_steps_agree_too(point):
    four = dataclasses.replace(point, n_chips=4, tp=4, osl_tok=5)
    steps = sum(estimated(four, Workload(phase="decode", context=c), 4) for c in range(129, 133))
    prefill = estimated(four, Workload(phase="prefill", isl=128), 4)
    assert predicted(four) == pytest.approx(prefill + steps, rel=1e-6)


def test_generation_from_nothing_sees_1_to_n(point):
    """llama-bench tg 4: contexts 1, 2, 3, 4, nothing prefilled."""
    alone = dataclasses.replace(point, batch=1, phase="decode", metric="output_tok_per_s", isl_tok=0, osl_tok=4)
    steps = [estimated(point, Workload(phase="decode", context=c), 1) for c in range(1, 5)]
    assert predicted(alone) == pytest.approx(4 / sum(steps), rel=1e-9)


def test_rates_count_their_tokens(point):
    """B O / (P + n d) in all, over N a chip; total counts I + O, input I over P."""
    two = {"n_chips": 2, "tp": 2}
    latency = predicted(point, metric="e2e_latency", **two)
    assert predicted(point, metric="output_tok_per_s", **two) == pytest.approx(4 * 9 / latency)
    assert predicted(point, metric="output_tok_per_s_per_chip", **two) == pytest.approx(4 * 9 / latency / 2)
    assert predicted(point, metric="total_tok_per_s_per_chip", **two) == pytest.approx(4 * (128 + 9) / latency / 2)
    prefill = predicted(point, metric="ttft", **two)
    assert predicted(point, metric="input_tok_per_s_per_chip", **two) == pytest.approx(4 * 128 / prefill / 2)


def test_one_output_token_is_the_prefill_alone(point):
    assert predicted(point, osl_tok=1) == predicted(point, metric="ttft")


def test_a_decode_row_without_length_is_one_step(point):
    step = estimated(point, Workload(phase="decode", context=4096), 4)
    found = predicted(point, phase="decode", metric="output_tok_per_s", isl_tok=4096, osl_tok=None)
    assert found == pytest.approx(4 / step)


@pytest.mark.parametrize("metric", ["ttft", "tpot", "e2e_latency", "output_tok_per_s"])
def test_more_requests_take_no_less_time_and_give_no_fewer_tokens(point, metric):
    found = [predicted(point, metric=metric, batch=batch) for batch in (1, 2, 3, 8, 64, 65, 512)]
    assert found == sorted(found)


def test_batches_priced_together_are_as_priced_alone(point):
    questions = [ask(dataclasses.replace(point, batch=batch)) for batch in (1, 7, 64)]
    together = Pricer(create_backend("roofline"))
    together.price((one, q.batch) for q in questions for one in passes_of(q, "e2e_latency"))
    for question in questions:
        assert predict(question, "e2e_latency", together).value == predicted(point, batch=question.batch)


def test_narrow_weights_speed_decode_by_their_bytes(point):
    """Batch 1, empty context: int8 weights are half of fp16's, but for scales, the head and activations."""
    base = dataclasses.replace(point, batch=1, isl_tok=1)
    ratio = predicted(base, metric="tpot", weight_format="fp16") / predicted(base, metric="tpot", weight_format="int8")
    weights = 2 * (L * LAYER + H * V)
    assert ratio == pytest.approx(weights / (weights / 2 + H * V), rel=0.01)
