"""One answer: a deployment priced, with what it costs and what nobody chose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from inferometer.estimate.result import Estimate
from inferometer.estimate.step import Problem
from inferometer.search.result import SearchResult
from inferometer.serving.rates import Rates, rates


class EngineFit(NamedTuple):
    """Whether an engine can run a deployment."""

    refused: tuple[str, ...]
    """`rule: advice` of each rule that keeps it from it."""
    differs: tuple[str, ...]
    """What was priced that it does otherwise."""


class Change(NamedTuple):
    """One number of a machine that a what-if changed, in SI."""

    field: str
    """`memory_bytes_per_s`, `tdp_w`, `peak.fp8`, `link.nvlink`, `latency.network`, ..."""
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A deployment with its estimate; `row()` of `inferometer.report.row` writes it down."""

    problem: Problem
    estimate: Estimate
    usd_per_chip_hour: float | None
    price_source: str
    assumed: Mapping[str, str]
    """What nobody chose, name -> value as shown."""
    price_note: str = ""
    """Why there is no price, or whose it is."""
    served_name: str = "MODEL"
    """What an engine is told to serve."""
    served_kv_format: str = ""
    """Format of the KV cache that it asks for; empty where nobody knows."""
    engines: Mapping[str, "EngineFit"] = field(default_factory=dict)
    """Engine -> whether it can run this."""
    tied: bool | None = None
    """Of a ranking: whether the band cannot tell it from the best; None elsewhere."""
    calibration: str | None = None
    """File of one's own factors that it was priced with."""
    changes: tuple[Change, ...] = ()
    """What-ifs: how the machine differs from the catalogue's."""

    @cached_property
    def rates(self) -> Rates:
        """Tokens a second and dollars."""
        return rates(self.estimate, self.problem.workload, self.usd_per_chip_hour, self.price_source)

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars of the tokens the pass gives: output in decode, prompt in prefill."""
        per_hour = self.rates.usd_per_hour
        return None if per_hour is None else per_hour / (3600 * self.rates.tok_per_s) * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What a search over one or more machines found, best first."""

    answers: tuple[Answer, ...]
    best: tuple[Answer, ...]
    """Of each machine where something is feasible, the best."""
    nearest: tuple[Answer, ...]
    """Where nothing is feasible: of each machine, what is with another batch, else what misses by least."""
    results: tuple[SearchResult, ...]
    """One a machine."""
    by: str
    per_dollar: bool
    hints: tuple[str, ...] = ()
    """Where nothing is feasible: what would be."""

    @property
    def lost(self) -> dict[str, int]:
        """Rule -> shardings it cost, over all machines."""
        total: dict[str, int] = {}
        for result in self.results:
            for rule, count in result.lost.items():
                total[rule] = total.get(rule, 0) + count
        return total

    @property
    def shardings(self) -> int:
        """Shardings looked at."""
        return sum(result.shardings for result in self.results)

    @property
    def candidates(self) -> int:
        """Sharding x placement x batch candidates priced."""
        return sum(result.candidates for result in self.results)

    @property
    def seconds(self) -> float:
        """Seconds of search."""
        return sum(result.wall_s for result in self.results)
