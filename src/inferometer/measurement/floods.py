"""Rows of floods (class C): all requests come at once, memory sets the batch, and the run ends when all are answered.

Letters: K requests of a replica, n = O - 1 decode steps, B sequences that memory and the engine hold, d(B) a decode
step of them, P the prefill that one prompt costs.

K <= B: all are prefilled, then decode together: T = K P + n d(K).
K > B: the batch is full until no request waits. Then B sequences, all ages alike, leave one by one: n steps of batches
from B down to 0, n (d(B) + d(0)) / 2 where d is a line; as long to fill; and in both B n / 2 tokens are made, so that
(K - B) n remain at a full batch: T = K P + n (d(B) (K - B) / B + d(B) + d(0)) = K P + n (d(B) K / B + d(0)).
"""

from collections.abc import Callable, Mapping

import numpy as np

from inferometer.graph.ops import Column
from inferometer.serving.closed_loop import Loop

MOST_SEQUENCES = 2048
"""Sequences of a batch: TensorRT-LLM's `max_batch_size` unless told."""

PASS_TOKENS = 8192
"""Tokens of one pass: TensorRT-LLM's `max_num_tokens` unless told."""

REQUESTS: Mapping[tuple[int, int], int] = {
    (128, 128): 30000,
    (128, 2048): 3000,
    (128, 4096): 1500,
    (500, 2000): 3000,
    (1000, 1000): 3000,
    (1000, 2000): 1500,
    (1024, 1024): 3000,
    (1024, 8192): 1500,
    (1024, 32768): 1000,
    (2048, 128): 3000,
    (2048, 2048): 1500,
    (5000, 500): 1500,
    (8192, 1024): 1500,
    (20000, 2000): 1000,
    (32768, 1024): 1000,
}
"""ISL, OSL -> requests of a run: "Preparing a Dataset" of TensorRT-LLM's docs/source/performance/perf-overview.md, the
same in all versions that have the pair."""


def prompts_a_pass(isl_tok: int) -> int:
    """Return the prompts that one prefill takes: some always wait, so as many as fill it."""
    return max(PASS_TOKENS // isl_tok, 1)


def requests_of(isl_tok: int, osl_tok: int) -> float:
    """Return the requests of a run; without end where its source does not say."""
    return float(REQUESTS.get((isl_tok, osl_tok), np.inf))


def flood(requests: float, osl_tok: int, step_s: Callable[[Column], Column], *, prefill_s: float, most: float) -> Loop:
    """Return one replica's run: requests answered a second from the first to the last, and what is in flight.

    >>> flat = lambda b: 0.01 + 0 * b
    >>> float(flood(4.0, 101, flat, prefill_s=0.0, most=8.0).requests_per_s[0])  # 4 / (100 x 0.01)
    4.0
    >>> float(flood(40.0, 101, flat, prefill_s=0.0, most=8.0).requests_per_s[0])  # 40 / (100 x 0.01 x (40 / 8 + 1))
    6.666666666666667
    """
    steps = max(osl_tok - 1, 1)
    held = np.array([max(min(most, MOST_SEQUENCES, requests), 1.0)])
    full_s, one_s = step_s(held), step_s(np.ones(1))
    each_s = prefill_s + steps * full_s / held
    if requests > held[0]:
        each_s = each_s + steps * one_s / requests
    tpot = full_s + held * prefill_s / steps
    return Loop(tpot, np.full(1, np.inf), 1 / each_s, held)
