"""What a deployment costs: a bill, and dollars and joules of its tokens, each by a definition that is printed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from inferometer.report.answer import Answer
from inferometer.report.row import deployment_row
from inferometer.serving.money import (
    HOURS_PER_MONTH,
    IDLE_SHARE,
    J_PER_KWH,
    Cycle,
    Owned,
    even_utilization,
    full_cycle,
    joules_per_mtok,
    power_w,
    usd_per_mtok,
)
from inferometer.specs.hardware import Price

READ = ("weights", "kv", "state")


class Bill(NamedTuple):
    """What the chips cost."""

    chips: int
    """That are paid for: whole instances."""
    usd_per_chip_hour: float | None
    source: str
    rule: str
    """By which the price was taken."""
    note: str = ""
    price: Price | None = None
    """The catalogue's row; None where the price was given, or nobody knows one."""
    owned: Owned | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A chip that nothing can be priced on, and why."""

    chip: str
    reason: str

    def row(self) -> dict[str, Any]:
        """Return the keys of LOST in `report.schema_money`."""
        return {"chip": self.chip, "feasible": False, "reasons": [self.reason]}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A deployment with its decode step, its prefill, and its bill."""

    answer: Answer
    """Of decode."""
    prefill: Answer
    """Of as many prompts as a pass has: of the request, or of the one context that was asked for."""
    bill: Bill
    utilization: float
    api_usd_per_mtok: float | None = None
    """What a closed API asks, to compare with."""
    assumed: Mapping[str, str]

    @property
    def loops(self) -> bool:
        """Whether a request is known, so that prefill and decode can be put together: not with one context."""
        return self.answer.problem.workload.context is None

    @cached_property
    def cycle(self) -> Cycle | None:
        """Prefill and decode of the request, in a busy second; None with one context."""
        work = self.answer.problem.workload
        if not self.loops:
            return None
        return full_cycle(
            batch=self.answer.estimate.batch,
            osl=work.osl,
            prompt_tokens=work.prompt_tokens,
            decode_s=self.answer.estimate.step_s,
            prefill_s=self.prefill.estimate.step_s,
            prompts=self.prefill.estimate.batch,
        )

    @property
    def output_tok_per_s(self) -> float:
        """Output tokens of a busy second: of the whole cycle, or of decode alone."""
        return self.answer.rates.tok_per_s if self.cycle is None else self.cycle.output_tok_per_s

    @property
    def busy_share(self) -> float:
        """Share of a busy second in which the fuller of compute and memory works."""
        decode, prefill = _busy(self.answer), _busy(self.prefill)
        share = 0.0 if self.cycle is None else self.cycle.prefill_share
        return (1 - share) * decode + share * prefill

    @property
    def power_w(self) -> float | None:
        """Mean power of the chips in use, at the utilisation; None where no power limit is known."""
        tdp_w, chips = self.answer.problem.machine.chip.tdp_w, self.answer.problem.machine.fabric.n_chips
        return None if tdp_w is None else chips * power_w(tdp_w, self.busy_share * self.utilization)

    @property
    def usd_per_hour(self) -> float | None:
        """Dollars an hour: the bill, or what owned chips and their power come to."""
        fixed, busy = self.parts_usd_per_hour
        return None if fixed is None else fixed + busy * self.utilization

    @property
    def parts_usd_per_hour(self) -> tuple[float | None, float]:
        """Dollars an hour that are paid in any case, and those more of a busy hour."""
        bill, tdp_w = self.bill, self.answer.problem.machine.chip.tdp_w
        if bill.owned is None:
            return (None if bill.usd_per_chip_hour is None else bill.usd_per_chip_hour * bill.chips), 0.0
        all_w = bill.chips * (tdp_w or 0.0)
        idle, busy = IDLE_SHARE * all_w, (1 - IDLE_SHARE) * all_w * self.busy_share
        return bill.owned.capex_usd_per_hour + bill.owned.energy_usd_per_hour(idle), bill.owned.energy_usd_per_hour(
            busy
        )

    def per_mtok(self, tok_per_s: float | None, share: float = 1.0) -> float | None:
        """Return dollars of a million of tokens that come at `tok_per_s`, `share` of the bill being theirs."""
        hourly = self.usd_per_hour
        return (
            None if hourly is None or tok_per_s is None else usd_per_mtok(hourly * share, tok_per_s, self.utilization)
        )

    @property
    def compared(self) -> tuple[str, float]:
        """What a closed API's price is held against, and its tokens of a busy second."""
        if self.cycle is None:
            return "decode_only_output", self.answer.rates.tok_per_s
        return "blended", self.cycle.output_tok_per_s + self.cycle.input_tok_per_s


def _busy(answer: Answer) -> float:
    priced = answer.estimate
    return min(max(priced.busy_s["compute"], priced.busy_s["memory"]) / priced.step_s, 1.0)


def read_bytes(answer: Answer) -> dict[str, float]:
    """Return what a chip reads in a step, by what it is: the mean of all stages."""
    priced = answer.estimate
    times = priced.microbatches / priced.sizes.pp
    return {
        kind: times * sum(op.traffic_bytes.get(kind, 0.0) * op.layers * op.share for op in priced.ops) for kind in READ
    }


KEPT = (
    *("version", "model", "chip", "machine", "n_chips", "engine", "backend", "scheduler", "workload", "feasible"),
    *("reasons", "sizes", "batch", "tpot_s", "tok_per_s", "tok_per_s_per_user", "bound", "low", "high", "basis"),
)
"""Keys of a deployment that a cost has too."""


def cost_row(cost: Cost) -> dict[str, Any]:
    """Return the keys of COST in `report.schema_money`."""
    whole = deployment_row(cost.answer)
    return {
        **{key: whole[key] for key in KEPT},
        **_reads(cost),
        **_loop(cost),
        **_bill(cost),
        **_dollars(cost),
        **_energy(cost),
        "break_even": break_even(cost),
        "definitions": definitions(cost),
        "diagnostics": whole["diagnostics"],
        "assumed": [f"{name} {value}" for name, value in cost.assumed.items()],
    }


def _reads(cost: Cost) -> dict[str, Any]:
    read = read_bytes(cost.answer)
    return {
        "read_bytes_per_step": sum(read.values()),
        "read_by_kind_bytes_per_step": read,
        "tok_per_hour": 3600 * cost.answer.rates.tok_per_s * cost.utilization,
        "utilization": cost.utilization,
    }


def _loop(cost: Cost) -> dict[str, Any]:
    cycle = cost.cycle
    return {
        "prefill_s": cost.prefill.estimate.step_s,
        "prefill_batch": cost.prefill.estimate.batch,
        "prefill_tokens": cost.prefill.problem.workload.prompt_tokens,
        "prefill_share": None if cycle is None else cycle.prefill_share,
        "requests_per_s": None if cycle is None else cycle.requests_per_s,
        "output_tok_per_s": None if cycle is None else cycle.output_tok_per_s,
        "input_tok_per_s": None if cycle is None else cycle.input_tok_per_s,
    }


def _bill(cost: Cost) -> dict[str, Any]:
    bill, price = cost.bill, cost.bill.price
    return {
        "provider": None if price is None else price.provider,
        "instance": None if price is None else price.instance,
        "instance_chips": None if price is None else price.instance_chips,
        "region": None if price is None else price.region,
        "tier": None if price is None else price.tier,
        "price_date": None if price is None else price.date,
        "price_source": bill.source,
        "price_rule": bill.rule,
        "price_note": bill.note,
        "usd_per_chip_hour": bill.usd_per_chip_hour,
        "chips_billed": bill.chips,
        "usd_per_hour": cost.usd_per_hour,
        "usd_per_month": None if cost.usd_per_hour is None else cost.usd_per_hour * HOURS_PER_MONTH,
        "owned": None if bill.owned is None else bill.owned._asdict(),
    }


def _dollars(cost: Cost) -> dict[str, Any]:
    cycle, prefill = cost.cycle, cost.prefill.rates.tok_per_s
    return {
        "decode_only_usd_per_mtok_output": cost.per_mtok(cost.answer.rates.tok_per_s),
        "usd_per_mtok_output": None if cycle is None else cost.per_mtok(cycle.output_tok_per_s),
        # prefill's share of the bill over the prompt tokens: the bill over those of an hour of prefill alone
        "usd_per_mtok_input": cost.per_mtok(prefill),
        "usd_per_mtok_blended": None
        if cycle is None
        else cost.per_mtok(cycle.output_tok_per_s + cycle.input_tok_per_s),
    }


def _energy(cost: Cost) -> dict[str, Any]:
    drawn = cost.power_w
    prefix = "" if cost.loops else "decode_only_"
    joules = None if drawn is None else joules_per_mtok(drawn, cost.output_tok_per_s * cost.utilization)
    found = {"joules_per_mtok_output": None, "decode_only_joules_per_mtok_output": None}
    kwh = None if joules is None else joules / J_PER_KWH
    return {
        "power_w": drawn,
        **(found | {f"{prefix}joules_per_mtok_output": joules}),
        "kwh_per_mtok_output": kwh if cost.loops else None,
        "decode_only_kwh_per_mtok_output": None if cost.loops else kwh,
        "energy_basis": "assumed",
    }


def break_even(cost: Cost) -> dict[str, Any] | None:
    """Return from which utilisation on self-hosting costs less than a closed API; None where nobody asked."""
    asked = cost.api_usd_per_mtok
    (fixed, busy), (of, tok_per_s) = cost.parts_usd_per_hour, cost.compared
    if asked is None:
        return None
    share = None if fixed is None else even_utilization(fixed, busy, tok_per_s, asked)
    rate = None if share is None or cost.cycle is None else share * cost.cycle.requests_per_s
    return {
        "api_usd_per_mtok": asked,
        "of": of,
        "usd_per_mtok": cost.per_mtok(tok_per_s),
        "usd_per_mtok_when_full": None if fixed is None else usd_per_mtok(fixed + busy, tok_per_s),
        "utilization": share,
        "requests_per_s": rate,
        "tok_per_hour": None if share is None else 3600 * tok_per_s * share,
    }


def definitions(cost: Cost) -> dict[str, str]:
    """Return what each figure is of, at the utilisation."""
    at = f"at {cost.utilization:.0%} utilisation"
    isl = cost.prefill.problem.workload.prompt_tokens
    energy = "chips in use, TDP x (0.3 + 0.7 x busy), no PUE; over output tokens"
    found = {
        "decode_only_usd_per_mtok_output": f"$/h over output tokens/h of decode alone {at}",
        "usd_per_mtok_output": f"$/h over output tokens/h of prefill and decode in turn {at}",
        "usd_per_mtok_input": f"$/h x prefill's share of time over prompt tokens/h, prompts of {isl:,} {at}",
        "usd_per_mtok_blended": f"$/h over prompt and output tokens/h {at}",
        "usd_per_month": f"$/h x {HOURS_PER_MONTH:.0f} h",
        "joules_per_mtok_output": energy,
        "tok_per_hour": f"output tokens of decode alone {at}",
    }
    if cost.cycle is None:
        for key in ("usd_per_mtok_output", "usd_per_mtok_blended"):
            found[key] = "null: one --context is no request; give --isl and --osl"
    return found
