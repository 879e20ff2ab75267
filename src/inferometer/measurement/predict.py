"""From pass times to the numbers that published rows report.

Letters: I, O tokens in and out, B requests, N chips, n decode steps, P seconds of the prefill, d mean decode step.
"""

from typing import NamedTuple

from inferometer.measurement.loops import predict_loop, steady, wanted
from inferometer.measurement.passes import Pass, Pricer, decode_of, prefill_of
from inferometer.measurement.questions import Question, decode_only, prefill_only
from inferometer.serving.closed_loop import Loop


class Prediction(NamedTuple):
    """A predicted number, in the unit of its metric."""

    value: float  # of the metric's unit
    fits: bool


def wanted_of(question: Question, metric: str) -> list[tuple[Pass, int]]:
    """Return the passes a metric is made of, each with its batch."""
    if question.loops:
        return wanted(question)
    return [(one, question.batch or 1) for one in passes_of(question, metric)]


def passes_of(question: Question, metric: str) -> tuple[Pass, ...]:
    """Return the passes a metric of requests that start together is made of: prefill, decode or both."""
    if prefill_only(metric):
        return (prefill_of(question),)
    if decode_only(metric, question.phase):
        return (decode_of(question),)
    if question.decode_steps == 0:
        return (prefill_of(question),)
    return (prefill_of(question), decode_of(question))


def predict(question: Question, metric: str, pricer: Pricer) -> Prediction:
    """Return what a backend says the row should have measured.

    ttft = P. tpot = d. e2e_latency = P + n d.
    output_tok_per_s = B O / (P + n d); decode rows: B / d, the mean over the generated length.
    total = B (I + O) / (P + n d). input = B I / P. `per_chip` divides by N.
    """
    if question.loops:
        loop: Loop = pricer.once(question, lambda: steady(question, pricer))
        return Prediction(predict_loop(question, metric, loop), fits=True)
    passes, batch = passes_of(question, metric), question.batch or 1
    fits = all(pricer.fits(one, batch) for one in passes)
    seconds = pricer.step_s(passes[0], batch)
    if len(passes) > 1:
        seconds += question.decode_steps * pricer.step_s(passes[1], batch)
    if metric in ("ttft", "tpot", "e2e_latency"):
        return Prediction(seconds, fits)
    chips = question.setup.n_chips if metric.endswith("_per_chip") else 1
    return Prediction((question.batch or 1) * _tokens(question, metric) / seconds / chips, fits)


def _tokens(question: Question, metric: str) -> int:
    """Return the tokens of one request that a rate counts."""
    if metric.startswith("input"):
        return question.isl_tok
    if decode_only(metric, question.phase):
        return 1
    out = question.osl_tok or 0
    return question.isl_tok + out if metric.startswith("total") else out
