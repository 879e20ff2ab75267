"""What a search found, and why the rest lost."""

from dataclasses import dataclass

from inferometer.estimate.result import Estimate
from inferometer.estimate.step import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits a step must keep; None is no limit."""

    tpot_s: float | None = None
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a search has come."""

    machine: str
    candidates: int
    shardings_done: int
    shardings: int
    best: float
    """Objective of the best so far, in its own unit; nan before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One ranked deployment."""

    problem: Problem
    estimate: Estimate
    score: float
    """The objective it was ranked by; larger is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Ranked deployments, one a sharding, and where the rest went."""

    found: tuple[Found, ...]
    nearest: Found | None
    """Where nothing is feasible: the deployment that misses by least."""
    shardings: int
    lost: dict[str, int]
    """Rule, `does-not-fit` or `misses-slo` -> shardings it cost."""
    rows: int
    """Sharding x batch rows priced."""
    candidates: int
    """Sharding x placement x batch candidates whose step time was formed and compared."""
    workers: int
    """Processes that priced."""
    wall_s: float
