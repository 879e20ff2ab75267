"""How slow this machine is just now: limits of time are of a quiet one."""

import time

LOOP_S = 0.06
"""Of the loop below on a quiet machine of 2024."""


def slowness() -> float:
    """Return how many times longer a fixed loop takes than on a quiet machine, at least 1."""

    def once() -> float:
        start = time.process_time()
        total = 0
        for i in range(1_000_000):
            total += i & 7
        return time.process_time() - start

    return max(1.0, sorted(once() for _ in range(5))[2] / LOOP_S)
