"""Runs a part of the work in a second process, where that is cheap and safe.

A forked child shares the specs and tables already built, starts in a few milliseconds and sends its columns back
through a pipe. Only on Linux, only from a process with a single Python thread: elsewhere the caller does all the work.
"""

import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any


def can_share() -> bool:
    """Return whether a second process can take a part: Linux, one Python thread, a second core."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    return cores > 1 and threading.active_count() == 1


def start(run: Callable[[], Any]) -> Callable[[], Any]:
    """Start `run` in a forked child and return a function that waits for its result.

    The result is None where the child failed: the caller then does the work itself, and meets the error itself.
    """
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # Python counts the idle threads of BLAS; the child never calls it.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _child(run, read_end, write_end)
    os.close(write_end)

    def wait() -> Any:
        with os.fdopen(read_end, "rb") as pipe:
            sent = pipe.read()
        _, status = os.waitpid(child, 0)
        return pickle.loads(sent) if status == 0 and sent else None  # noqa: S301 (our own child wrote it)

    return wait


def _child(run: Callable[[], Any], read_end: int, write_end: int) -> None:
    """Do the work, send it, and end without any of the parent's clean-up."""
    code = 1
    try:
        os.close(read_end)
        sent = pickle.dumps(run(), protocol=pickle.HIGHEST_PROTOCOL)
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(sent)
        code = 0
    finally:
        os._exit(code)
