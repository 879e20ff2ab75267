"""How far a search has come, on stderr: one line rewritten on a terminal, now and then a line elsewhere."""

import math
import sys
import time

from inferometer.search.result import Progress

EVERY_S = 0.1
EVERY_LINE_S = 1.0


class Reporter:
    """Writes progress to stderr where somebody looks, or where asked to."""

    def __init__(self, *, always: bool) -> None:
        """Start silent; `always` reports without a terminal too."""
        self.terminal = sys.stderr.isatty()
        self.wanted = self.terminal or always
        self.last_s = float("-inf")
        self.width = 0

    def update(self, progress: Progress) -> None:
        """Report, unless it was only just done."""
        now_s = time.monotonic()
        last = progress.shardings_done == progress.shardings
        if now_s - self.last_s < (EVERY_S if self.terminal else EVERY_LINE_S) and not last:
            return
        self.last_s = now_s
        best = "none yet" if math.isnan(progress.best) else f"{abs(progress.best):,.4g}"
        text = (
            f"{progress.machine}: {progress.shardings_done}/{progress.shardings} shardings,"
            f" {progress.candidates:,} candidates priced, best {best}"
        )
        if self.terminal:
            sys.stderr.write(f"\r{text.ljust(self.width)}")
            self.width = len(text)
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def done(self) -> None:
        """Wipe the line off a terminal."""
        if self.terminal and self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
