"""A closed loop: C requests in flight at one replica, each answered request replaced at once. Columns in, columns out.

Letters: C requests in flight, O tokens out of each, n = O - 1 decode steps, B sequences in a step, d(B) its seconds,
P the seconds of one prefill, r requests answered a second, u = r P the share of time that prefills take.

In steady state each request brings one prefill and n of the tokens that B sequences share in a step, and the engine
does one thing at a time: r (P + n d(B) / B) = 1. The time between two tokens of a sequence is B / (r n), so

    TPOT = d(B) + B P / n,    TTFT = front + P (1 + u / (2 (1 - u))) + d(B) / 2,    B = C - r TTFT,

the wait being that of a queue of fixed service times (M/D/1), and half a step passing before a prefill may start.
Source: derived; chunked prefill that shares its steps is charged as if it did not.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from inferometer.graph.ops import Column

ROUNDS = 40
"""Damped rounds to the steady state; the last moves B by less than a thousandth."""

MOST_BUSY = 0.99
"""u beyond which the queue is taken to grow no further: the loop holds no more than C."""


class Loop(NamedTuple):
    """The steady state of one replica, columns."""

    tpot_s: Column
    ttft_s: Column
    requests_per_s: Column
    sequences: Column
    """B."""


def closed_loop(
    in_flight: Column,
    osl: Column,
    step_s: Callable[[Column], Column],
    *,
    prefill_s: Column,
    front_s: Column,
    most: Column,
) -> Loop:
    """Return the steady state; `step_s` gives d of a column B, `most` the sequences that memory holds.

    Requests beyond `most` wait in front of the engine.

    >>> one = np.ones(1)
    >>> none, many = 0 * one, 99 * one
    >>> loop = closed_loop(16 * one, 101 * one, lambda b: 0.01 + 0 * b, prefill_s=none, front_s=none, most=many)
    >>> float(loop.tpot_s[0]), round(float(loop.requests_per_s[0]), 2)  # 16 / (0.005 + 100 x 0.01)
    (0.01, 15.92)
    """
    steps = np.maximum(osl - 1, 1.0)
    held = np.minimum(in_flight, most)
    b = held
    for _ in range(ROUNDS):
        d = step_s(b)
        rate = 1 / (prefill_s + steps * d / b)
        busy = np.minimum(rate * prefill_s, MOST_BUSY)
        ttft = front_s + prefill_s * (1 + busy / (2 * (1 - busy))) + d / 2
        least = np.minimum(0.5, held)
        b = np.maximum((b + np.maximum(held - rate * ttft, least)) / 2, least)
    d = step_s(b)
    rate = 1 / (prefill_s + steps * d / b)
    tpot = d + b * prefill_s / steps
    answered = np.minimum(rate, held / (ttft + steps * tpot))
    waiting = np.maximum(in_flight - held, 0.0) / answered
    return Loop(tpot, ttft + waiting, answered, b)
