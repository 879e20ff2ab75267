"""Rows of closed loops and of floods: what an engine keeps in flight, and the steady state.

Class B: C requests in flight, each answered one replaced at once. Class C: all requests at once (`floods`), so that
memory sets the sequences in a step and only throughput means anything. Letters: C requests in flight, R x DPA replicas
of the loop, I and O tokens in and out, B sequences of a replica, d(B) its decode step, P the prefill of one prompt.
"""

from functools import cache

import numpy as np

from inferometer.estimate.step import PREFILL_MICROBATCHES
from inferometer.graph.ops import Column
from inferometer.measurement import floods
from inferometer.measurement.floods import MOST_SEQUENCES, flood, requests_of
from inferometer.measurement.frameworks import engine_loop
from inferometer.measurement.passes import Pass, Pricer
from inferometer.measurement.questions import Question
from inferometer.serving.closed_loop import Loop, closed_loop
from inferometer.specs.deployment import Workload

GRID = 14
"""Batches a decode curve is priced at; between them it is taken as straight."""

RAMP = 0.97
"""Measured throughput of a finite run over C O / (TTFT + O TPOT): it starts and ends with fewer in flight.
Mean over 186 published runs, spread 0.023."""

WAVES = 10
"""Requests of a published run over those in flight: InferenceX's scripts give `--num-prompts $((CONC * 10))`."""

LAUNCH_S = 0.35e-3
"""Seconds the host takes to launch one layer's kernels of a prefill, which no CUDA graph holds: a floor."""


def replicas(question: Question) -> int:
    """Return the loops that run side by side: replicas and their attention ranks."""
    sizes = question.setup.sizes
    return sizes.r * sizes.dpa


@cache
def batches(most: float) -> tuple[int, ...]:
    """Return whole batches from 1 to `most`, in equal ratios.

    >>> batches(4), len(batches(4096.0)) <= GRID
    ((1, 2, 3, 4), True)
    """
    top = max(int(np.ceil(most)), 1)
    return tuple(sorted({int(b) for b in np.round(np.geomspace(1, top, GRID))}))


def decode_pass(question: Question) -> Pass:
    """Return the mean decode step of a request's life."""
    return Pass(question.setup, Workload(phase="decode", isl=question.isl_tok, osl=max(question.osl_tok or 1, 1)))


def prefill_pass(question: Question) -> Pass:
    """Return the prefill of one prompt on every attention rank."""
    return Pass(question.setup, Workload(phase="prefill", isl=question.isl_tok, osl=1))


def in_flight(question: Question) -> float:
    """Return the requests in flight at one loop."""
    return MOST_SEQUENCES if question.batch is None else max(question.batch / replicas(question), 1.0)


def wanted(question: Question) -> list[tuple[Pass, int]]:
    """Return the passes and batches that a loop needs priced."""
    each = replicas(question)
    curve = [(decode_pass(question), b * each) for b in batches(in_flight(question))]
    return [*curve, (prefill_pass(question), prompts_a_pass(question) * passes_at_once(question) * each)]


def prompts_a_pass(question: Question) -> int:
    """Return the prompts that one prefill takes."""
    return 1 if question.batch is not None else floods.prompts_a_pass(question.isl_tok)


def passes_at_once(question: Question) -> int:
    """Return the prefills that follow each other through the stages of a pipeline: in a flood as many as fill it."""
    pp = question.setup.sizes.pp
    return PREFILL_MICROBATCHES * pp if question.batch is None and pp > 1 else 1


def prefill_s(question: Question, pricer: Pricer) -> float:
    """Return the seconds of prefill that one prompt costs.

    M passes through S stages, one behind the other, take S + M - 1 times the slowest stage (`estimate.step`): a full
    pipeline gives a pass every such time, and the host launches a stage's layers in it.
    """
    prompts, passes, stages = prompts_a_pass(question), passes_at_once(question), question.setup.sizes.pp
    whole = pricer.step_s(prefill_pass(question), prompts * passes * replicas(question))
    through = stages if passes > 1 else 1
    launched = LAUNCH_S * pricer.layers(decode_pass(question)) / through
    return float(np.hypot(whole / (through + passes - 1), launched)) / prompts


def room(question: Question, pricer: Pricer) -> int:
    """Return the sequences of a loop that the engine admits into memory, of those in flight, at least one."""
    own, decode = engine_loop(question.framework), decode_pass(question)
    out = question.osl_tok or 1
    length = question.isl_tok + (out if own.reserves_all else out // 2)
    return max(pricer.room(decode, length, int(np.ceil(in_flight(question)))), 1)


def steady(question: Question, pricer: Pricer) -> Loop:
    """Return the steady state of one loop."""
    each, own = replicas(question), engine_loop(question.framework)
    decode = decode_pass(question)
    grid = batches(in_flight(question))
    curve = np.array([pricer.step_s(decode, b * each) for b in grid])

    def step_s(b: Column) -> Column:
        found: Column = np.interp(b, grid, curve)
        return found

    prefill = prefill_s(question, pricer)
    most, osl = room(question, pricer), question.osl_tok or 1
    one = np.ones(1)
    if question.batch is None:
        requests = requests_of(question.isl_tok, osl) / each
        return flood(requests, osl, step_s, prefill_s=prefill, most=most)
    loop = closed_loop(
        in_flight(question) * one,
        osl * one,
        step_s,
        prefill_s=prefill * one,
        front_s=own.front_s * one,
        most=most * one,
    )
    return loop._replace(ttft_s=loop.ttft_s + started_together(question, prefill))


def started_together(question: Question, prefill_s: float) -> float:
    """Return what the start of a run adds to a mean TTFT; nothing to a median.

    All C requests of a loop come at once: the i-th waits for i - 1 prefills, (C - 1) / 2 on average, and they are one
    of WAVES.
    """
    return 0.0 if question.median else prefill_s * max(in_flight(question) - 1, 0.0) / 2 / WAVES


def predict_loop(question: Question, metric: str, loop: Loop) -> float:
    """Return the row's number from the steady state of its loops."""
    if metric in ("tpot", "ttft"):
        return float(loop.tpot_s[0] if metric == "tpot" else loop.ttft_s[0])
    if metric == "e2e_latency":
        return float(loop.ttft_s[0] + ((question.osl_tok or 1) - 1) * loop.tpot_s[0])
    tokens = {"o": question.osl_tok or 1, "i": question.isl_tok, "t": question.isl_tok + (question.osl_tok or 1)}
    ramp = 1.0 if question.batch is None else RAMP
    rate = float(loop.requests_per_s[0]) * replicas(question) * tokens[metric[0]] * ramp
    return rate / (question.setup.n_chips if metric.endswith("_per_chip") else 1)
