"""Settings that every question takes, their defaults, and what of them was assumed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from inferometer.api.bounds import MAX_SLOTS
from inferometer.api.choices import check_choices, check_routing, parse_choices, pinned
from inferometer.api.engines import DEFAULT_ENGINE, engine_of
from inferometer.api.memory_ask import MemorySettings, of_problem
from inferometer.api.whatif import Wanted, changed, parse_what_if
from inferometer.api.workload import lengths, parse_phase, say_images, with_images, with_redundant, with_routing
from inferometer.catalog.loader import Quote, default_price, quote
from inferometer.cost.registry import create_backend, usual_scheduler
from inferometer.cost.schedulers import Overlap, parse_overlap
from inferometer.errors import InferometerError
from inferometer.estimate.estimate import make_problem
from inferometer.estimate.step import Problem
from inferometer.memory.footprint import RESERVE_SHARE, Reserve
from inferometer.report.answer import Change
from inferometer.serving.rates import price_label
from inferometer.specs.deployment import Workload
from inferometer.specs.hardware import ChipSpec, Machine
from inferometer.specs.model import ModelSpec

DEFAULT_BACKEND, FALLBACK_BACKEND = "calibrated", "roofline"

OF_AN_ENGINE = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
    "enable_prefix_caching",
    "cpu_offload_gb",
    "lora_adapters",
    "lora_rank",
)
"""Settings that an engine's own allocator takes; the ideal engine has none."""


class Settings(TypedDict, total=False):
    """Keywords of `estimate` and `search`. None, or left out, takes the default."""

    quant: str | None
    """Scheme of every linear weight, such as fp8 (the checkpoint's)."""
    kv_cache_dtype: str | None
    """Format of the KV cache (the checkpoint's)."""
    state_dtype: str | None
    """Format of recurrent states: fp32, bf16 or fp16 (the config's, else fp32)."""
    conv_state: bool | None
    """False: what convolutions keep of a sequence takes no memory, as in tools that count recurrent states alone."""
    cut_latents: bool | None
    """TP splits the projections to latents, which no engine does; they are gathered."""
    state_slots: int | None
    """Copies of its recurrent states that a sequence holds (1)."""
    isl: int | None
    """Prompt tokens of a request (8192)."""
    osl: int | None
    """Output tokens of a request (1024)."""
    context: int | None
    """In decode one KV length that replaces the mean over isl..isl+osl; in extend and verify the cached prefix."""
    images: int | None
    """Images of a request, in front of its prompt (none)."""
    image_size: str | None
    """Their width and height in pixels (1024x1024)."""
    expert_skew: float | None
    """Exponent of the power law that experts are popular by (0: all alike)."""
    distinct_prompts: int | None
    """Different prompts in flight at a replica; sequences that share one choose the same experts (all differ)."""
    redundant_experts: int | None
    """Copies of experts in every layer, spread over the ranks of expert parallelism (none)."""
    phase: str | None
    """decode, prefill, extend (isl new tokens behind context cached ones), or verify (drafted tokens and one more)."""
    draft_tokens: int | None
    """Drafted tokens of a sequence that a verify checks."""
    all_token_logits: bool | None
    """Logits of every prompt token, not of the last alone."""
    engine: str | None
    """ideal, or an engine such as vllm@0.24."""
    choice: str | None
    """Choices to pin to one plan, as in mla=absorbed,unpack=apart."""
    backend: str | None
    """Cost backend (calibrated)."""
    calibration: str | None
    """File of one's own factors, as `inferometer calibrate` wrote it."""
    scheduler: str | None
    """streams, serial, overlap, or dag (the backend's own)."""
    overlap: str | None
    """Shares of memory and network time that can hide, as in 0.9,0.65."""
    reserve_bytes: float | None
    """Bytes a chip keeps from weights and KV."""
    gpu_memory_utilization: float | None
    """Share of a chip's memory for weights and KV (0.9); the rest is reserved."""
    max_model_len: int | None
    """Of a named engine, as the next ones: longest sequence that it takes (what sequences reach)."""
    max_num_seqs: int | None
    """Sequences at once a rank (the engine's)."""
    max_num_batched_tokens: int | None
    """Tokens of its largest pass (the engine's)."""
    enforce_eager: bool | None
    """No captured graphs."""
    enable_prefix_caching: bool | None
    """Prefixes are kept: more states a sequence."""
    cpu_offload_gb: float | None
    """GiB of weights that the host keeps for each chip."""
    lora_adapters: int | None
    """LoRA adapters held at once."""
    lora_rank: int | None
    usd_per_chip_hour: float | None
    """Price; None takes the catalogue's."""
    provider: str | None
    region: str | None
    tier: str | None
    what_if: str | Sequence[str] | None
    """Fields of chip and fabric to change, as in hbm_bandwidth=+20%,link.nvlink=2x; the price stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Settings, checked and filled in."""

    workload: Workload
    engine: str
    backend: str | None
    """None: the default, or what can price the chip."""
    calibration: str | None
    """File of one's own factors; None: those shipped."""
    scheduler: str | None
    """None: the backend's usual one."""
    overlap: Overlap
    reserve: Reserve
    usd_per_chip_hour: float | None
    provider: str | None
    region: str | None
    tier: str | None
    state_slots: int = 1
    held: MemorySettings
    """What the engine is told of memory."""
    assumed: dict[str, str]
    """Setting that nobody chose -> its value as shown."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Choice -> the one plan to price."""
    what_if: tuple[Wanted, ...] = ()
    asked: list[tuple[Problem, tuple[Change, ...]]] = field(default_factory=list)
    """Every problem made, with what the what-ifs changed of its machine."""

    def problem(self, model: ModelSpec, machine: Machine) -> Problem:
        """Return what is asked of `model` on `machine`, the what-ifs applied to it."""
        where, changes = changed(machine, self.what_if)
        problem = self._problem(model, where)
        say_images(problem, self.assumed)
        self.asked.append((problem, changes))
        return problem

    def changes(self, problem: Problem) -> tuple[Change, ...]:
        """Return what the what-ifs changed of the machine of a problem made here."""
        return next((changes for one, changes in self.asked if one is problem), ())

    def _backend(self, chip: ChipSpec) -> str:
        """Return the backend to price `chip` with: of a chip whose kernels nobody fitted, the limit; and say so."""
        if self.backend is not None:
            return self.backend
        if chip.generation or self.calibration is not None:
            return DEFAULT_BACKEND
        self.assumed["backend"] = f"{FALLBACK_BACKEND} ({chip.id} names no generation of chips)"
        if self.scheduler is None:
            self.assumed["scheduler"] = usual_scheduler(FALLBACK_BACKEND)
        return FALLBACK_BACKEND

    def _problem(self, model: ModelSpec, machine: Machine) -> Problem:
        engine = engine_of(self.engine, self.assumed, priced=True)
        engine.check_chip(machine.chip)
        check_choices(self.choices, model)
        check_routing(self.workload, model)
        problem = make_problem(
            model,
            machine,
            self.workload,
            engine=pinned(engine.spec, self.choices, self.workload.phase),
            backend=create_backend(self._backend(machine.chip), self.calibration),
            scheduler=self.scheduler,
            overlap=self.overlap,
            reserve=self.reserve,
            state_slots=self.state_slots,
        )
        if not engine.allocates:
            return problem
        return replace(problem, asked=of_problem(engine.rules, problem, self.held))

    def price(self, chip_id: str) -> tuple[float | None, str]:
        """Return dollars of a chip and hour, and where they come from; None and `none` where nobody knows."""
        if self.usd_per_chip_hour is not None:
            return self.usd_per_chip_hour, "given"
        price = default_price(chip_id, self.provider, self.region, self.tier)
        return (None if price is None else price.usd_per_chip_hour), price_label(price)

    def quote(self, machine: Machine) -> tuple[float | None, str, str]:
        """Return dollars of a chip of `machine` and hour, where they come from, and what to know about them."""
        if self.usd_per_chip_hour is not None:
            return self.usd_per_chip_hour, "given", ""
        quoted: Quote = quote(machine, self.provider, self.region, self.tier)
        price = quoted.price
        return (None if price is None else price.usd_per_chip_hour), price_label(price), quoted.note


def settle(settings: Settings, by: str | None = None) -> Terms:
    """Return the terms of a question; ordering `by` ttft asks for prefill unless a phase was given.

    Raises InferometerError for a value that is out of range.
    """
    assumed: dict[str, str] = {}
    work = settle_workload(settings, by, assumed)
    price = settings.get("usd_per_chip_hour")
    if price is not None and not 0 <= price < math.inf:
        raise InferometerError(f"--usd-per-chip-hour {price}: a price is 0 or more")
    text = settings.get("overlap")
    _check_apart(settings)
    engine = _chosen(settings.get("engine"), DEFAULT_ENGINE, "engine", assumed)
    backend = _chosen(settings.get("backend"), DEFAULT_BACKEND, "backend", assumed)
    scheduler = settings.get("scheduler")
    if scheduler is None and text is not None:
        scheduler = "overlap"
    _chosen(scheduler, usual_scheduler(backend), "scheduler", assumed)
    _check_allocates(settings, engine)
    return Terms(
        workload=work,
        engine=engine,
        backend=settings.get("backend"),
        calibration=settings.get("calibration"),
        scheduler=scheduler,
        overlap=parse_overlap(text) if text is not None else Overlap(),
        reserve=_reserve(settings, engine, assumed),
        held=of_deployment(settings),
        usd_per_chip_hour=price,
        provider=settings.get("provider"),
        region=settings.get("region"),
        tier=settings.get("tier"),
        state_slots=_slots(settings.get("state_slots")),
        assumed=assumed,
        choices=parse_choices(settings.get("choice")),
        what_if=parse_what_if(settings.get("what_if")),
    )


def _check_apart(settings: Settings) -> None:
    """Refuse settings that contradict each other."""
    chosen = [f"--{name}" for name in ("provider", "region", "tier") if settings.get(name) is not None]
    if settings.get("usd_per_chip_hour") is not None and chosen:
        raise InferometerError(f"--usd-per-chip-hour is the price, {' and '.join(chosen)} would look it up: give one")
    alone = settings.get("scheduler")
    if settings.get("overlap") is not None and alone in ("serial", "streams"):
        what = "overlaps nothing" if alone == "serial" else "hides no share of memory or network"
        raise InferometerError(f"--scheduler {alone} {what}; leave --overlap or --scheduler {alone} out")
    if settings.get("overlap") is not None and settings.get("scheduler") == "dag":
        raise InferometerError("--scheduler dag finds what overlaps; leave --overlap or --scheduler dag out")


def _check_allocates(settings: Settings, engine: str) -> None:
    """Refuse settings of an allocator where no engine with one is named: they would change nothing."""
    typed = {name: settings.get(name) for name in OF_AN_ENGINE}
    given = [f"--{name.replace('_', '-')}" for name, value in typed.items() if value is not None and value is not False]
    if given and not engine_of(engine, {}, priced=True).allocates:
        raise InferometerError(
            f"{' and '.join(given)} would change nothing without an engine: name one (--engine vllm)"
        )


def _chosen(value: str | None, default: str, name: str, assumed: dict[str, str]) -> str:
    if value is None:
        assumed[name] = default
        return default
    return value


def settle_workload(settings: Settings, by: str | None, assumed: dict[str, str]) -> Workload:
    """Return the workload of a question; what nobody chose is added to `assumed`.

    Raises InferometerError for a length that is out of range, and for settings that the phase does not have.
    """
    given = settings.get("phase")
    work = lengths(
        parse_phase(given, by),
        assumed,
        isl=settings.get("isl"),
        osl=settings.get("osl"),
        context=settings.get("context"),
        draft_tokens=settings.get("draft_tokens"),
        all_token_logits=bool(settings.get("all_token_logits")),
        phase_given=given is not None,
    )
    work = with_images(work, settings.get("images"), settings.get("image_size"), assumed)
    work = with_routing(work, settings.get("expert_skew"), settings.get("distinct_prompts"))
    return with_redundant(work, settings.get("redundant_experts"))


def _slots(given: int | None) -> int:
    if given is not None and not 1 <= given <= MAX_SLOTS:
        raise InferometerError(f"--state-slots {given}: must be from 1 to {MAX_SLOTS} copies of a state")
    return given or 1


def _reserve(settings: Settings, engine: str, assumed: dict[str, str]) -> Reserve:
    fixed, used = settings.get("reserve_bytes"), settings.get("gpu_memory_utilization")
    if fixed is not None and used is not None:
        raise InferometerError("give --reserve-bytes or --gpu-memory-utilization, not both")
    if fixed is not None:
        if not 0 <= fixed < math.inf:
            raise InferometerError(f"--reserve-bytes {fixed}: must be 0 or more")
        return Reserve(fixed_bytes=fixed)
    if used is not None:
        if not 0 < used <= 1:
            raise InferometerError(f"--gpu-memory-utilization {used}: must be above 0 and at most 1")
        return Reserve(share=1 - used)
    own = engine_of(engine, assumed, priced=True)
    assumed["reserve"] = f"as {own.rules.id} divides memory" if own.allocates else f"{RESERVE_SHARE:.0%} of memory"
    return Reserve()


def of_deployment(settings: Settings, *, context: int | None = None, batch: int | None = None) -> MemorySettings:
    """Return what a deployment's settings ask of memory; what-ifs are its machine's."""
    return MemorySettings(
        quant=settings.get("quant"),
        kv_cache_dtype=settings.get("kv_cache_dtype"),
        state_dtype=settings.get("state_dtype"),
        state_slots=settings.get("state_slots"),
        engine=settings.get("engine"),
        gpu_memory_utilization=settings.get("gpu_memory_utilization"),
        reserve_bytes=settings.get("reserve_bytes"),
        max_model_len=settings.get("max_model_len"),
        max_num_seqs=settings.get("max_num_seqs"),
        max_num_batched_tokens=settings.get("max_num_batched_tokens"),
        enforce_eager=bool(settings.get("enforce_eager")),
        enable_prefix_caching=bool(settings.get("enable_prefix_caching")),
        cpu_offload_gb=settings.get("cpu_offload_gb"),
        lora_adapters=settings.get("lora_adapters"),
        lora_rank=settings.get("lora_rank"),
        context=context,
        batch=batch,
    )
