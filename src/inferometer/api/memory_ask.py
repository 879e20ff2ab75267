"""What is asked about memory: settings as typed, checked and filled in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from inferometer.api.bounds import MAX_SEQUENCES, MAX_SLOTS, check_batch
from inferometer.api.engines import check_ideal, engine_of
from inferometer.api.legal_sizes import legal_sizes
from inferometer.api.load import in_formats, load_machine, load_model
from inferometer.api.memory_tiers import gib_bytes, tiers_asked
from inferometer.api.sizes import chips_of
from inferometer.api.whatif import changed, parse_what_if
from inferometer.api.workload import MAX_TOKENS
from inferometer.blocks.model import stage_layers, unit_count
from inferometer.errors import InferometerError
from inferometer.estimate.legality import broken_rules
from inferometer.estimate.step import Problem
from inferometer.memory.asked import Asked
from inferometer.memory.plan import Sharding
from inferometer.specs.deployment import ROLES, EngineSpec, Sizes
from inferometer.specs.hardware import Machine
from inferometer.specs.memory import EngineMemory
from inferometer.specs.model import ModelSpec

UNIFIED = ("Apple",)
"""Vendors whose chips share the host's memory."""


class MemorySettings(TypedDict, total=False):
    """Keywords of `memory`, `max_batch` and `max_context`. None, or left out, takes the default."""

    quant: str | None
    kv_cache_dtype: str | None
    state_dtype: str | None
    conv_state: bool | None
    """False: what convolutions keep of a sequence takes no memory, as in tools that count recurrent states alone."""
    cut_latents: bool | None
    """TP splits the projections to latents, which no engine does; they are gathered."""
    state_slots: int | None
    """Copies of its recurrent states that a sequence holds (the engine's)."""
    engine: str | None
    """ideal, or an engine such as vllm@0.24, sglang, trtllm, llama.cpp, ollama."""
    context: int | None
    """Tokens that each sequence in flight holds (the longest that the engine takes)."""
    batch: int | None
    """Sequences in flight over the whole deployment (1)."""
    max_model_len: int | None
    """Longest sequence that the engine takes (--context, else what the model states)."""
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    gpu_memory_utilization: float | None
    reserve_bytes: float | None
    enforce_eager: bool
    enable_prefix_caching: bool
    n_gpu_layers: int | None
    """llama.cpp: layers on the chip; one more than the model has is the head too."""
    cpu_offload_gb: float | None
    """GiB of weights that the host keeps for each chip."""
    kv_cpu_gb: float | None
    """GiB of host memory for each chip's prefix cache, beside its pool."""
    kv_disk_gb: float | None
    """The same, of a disk."""
    lora_adapters: int | None
    lora_rank: int | None
    what_if: str | list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Settings, checked and filled in."""

    asked: Asked
    machine: Machine
    spec: EngineSpec
    engine: str
    assumed: dict[str, str]
    given: Mapping[str, int]
    """Role sizes as typed."""
    plain: ModelSpec
    """The model in its checkpoint's formats, in the cache format asked for."""
    serves: bool
    """The engine is started for the context asked for, not for a length of its own."""


def ask(model: ModelSpec | str, machine: Machine | str, sizes: Mapping[str, int], settings: MemorySettings) -> Question:
    """Return a question from what was typed; raises InferometerError for a value out of range."""
    assumed: dict[str, str] = {}
    engine = engine_of(settings.get("engine"), assumed)
    check_ideal(engine, conv_state=settings.get("conv_state"), cut_latents=settings.get("cut_latents"))
    plain = load_model(model) if isinstance(model, str) else model
    plain = in_formats(
        plain,
        None,
        settings.get("kv_cache_dtype") or engine.rules.cache_format,
        settings.get("state_dtype"),
        conv_state=settings.get("conv_state"),
        cut_latents=settings.get("cut_latents"),
    )
    chosen = in_formats(plain, settings.get("quant"), None)
    if settings.get("kv_cache_dtype") is None:
        assumed["KV"] = chosen.kv_format
    where = _where(machine, sizes)
    engine.check_chip(where.chip)
    where, _ = changed(where, parse_what_if(settings.get("what_if")))
    filled = legal_sizes(chosen, sizes, where.fabric.n_chips)
    if filled.pp > unit_count(chosen):
        raise InferometerError(f"PP={filled.pp} exceeds the {unit_count(chosen)} layers of {chosen.name}")
    context, longest = _lengths(settings, chosen, assumed)
    splits = stage_layers(chosen, filled.pp, engine.spec.partition)
    asked = asked_of(engine.rules, chosen, where, Sharding(filled, splits), settings)
    asked = replace(asked, context=context, max_model_len=longest, batch=_batch(settings, assumed))
    if asked.cached_prefixes and not settings.get("enable_prefix_caching"):
        assumed["prefix caching"] = "on (tiers are of its cache)"
    _say_defaults(asked, assumed)
    return Question(
        asked=asked,
        machine=where,
        spec=engine.spec,
        engine=engine.full,
        assumed=assumed,
        given=dict(sizes),
        plain=plain,
        serves=settings.get("max_model_len") is None,
    )


def of_problem(rules: EngineMemory, problem: Problem, settings: MemorySettings) -> Asked:
    """Return what a problem asks of an engine's memory, on one chip: whoever shards it fills in sizes and batch.

    Sequences are as long as the workload's become; the engine is started for them unless told.
    """
    length = problem.max_length
    sharding = Sharding(Sizes(), (len(problem.model.layers),))
    asked = asked_of(rules, problem.model, problem.machine, sharding, settings)
    longest = _count("--max-model-len", settings.get("max_model_len"), MAX_TOKENS)
    cross = problem.workload.cross_tokens
    return replace(asked, context=length, max_model_len=longest or length, cross_tokens=cross)


def asked_of(
    rules: EngineMemory, model: ModelSpec, where: Machine, sharding: Sharding, settings: MemorySettings
) -> Asked:
    """Return the settings of an engine on a machine, checked; lengths and batch are left to whoever asks."""
    tiers = tiers_asked(rules, settings.get("kv_cpu_gb"), settings.get("kv_disk_gb"))
    return Asked(
        model=model,
        chip=where.chip.id,
        visible_bytes=float(where.chip.memory_bytes),
        sizes=sharding.sizes,
        splits=sharding.splits,
        rules=rules,
        context=1,
        max_model_len=1,
        max_num_seqs=_count("--max-num-seqs", settings.get("max_num_seqs"), MAX_SEQUENCES),
        max_num_batched_tokens=_count("--max-num-batched-tokens", settings.get("max_num_batched_tokens"), MAX_TOKENS),
        share=_share(settings),
        reserve_bytes=_reserve(settings, float(where.chip.memory_bytes)),
        state_slots=_count("--state-slots", settings.get("state_slots"), MAX_SLOTS),
        unified=where.chip.vendor in UNIFIED,
        eager=settings.get("enforce_eager", False),
        cached_prefixes=settings.get("enable_prefix_caching", False) or bool(tiers),
        gpu_layers=_gpu_layers(settings, rules),
        offload_bytes=gib_bytes("--cpu-offload-gb", settings.get("cpu_offload_gb")),
        **tiers,
        **_adapters(settings),
    )


def _where(machine: Machine | str, sizes: Mapping[str, int]) -> Machine:
    if isinstance(machine, Machine):
        return machine
    chip, _, rest = machine.strip().partition(" ")
    return load_machine(chip, rest.strip()) if rest.strip() else load_machine(chip, None, chips_of(sizes))


def _lengths(settings: MemorySettings, model: ModelSpec, assumed: dict[str, str]) -> tuple[int, int]:
    """Return the context of each sequence, and the longest sequence that the engine takes."""
    context = _count("--context", settings.get("context"), MAX_TOKENS)
    longest = _count("--max-model-len", settings.get("max_model_len"), MAX_TOKENS)
    if longest is None and context is None:
        assumed["max-model-len"] = f"{model.max_context} (the model's)"
    elif longest is None:
        assumed["max-model-len"] = "the context"
    longest = longest or context or model.max_context
    if context is None:
        assumed["context"] = "max-model-len"
    return context or longest, longest


def _batch(settings: MemorySettings, assumed: dict[str, str]) -> int:
    batch = settings.get("batch")
    check_batch(batch)
    if batch is None:
        assumed["batch"] = "1 sequence"
    return batch or 1


def _count(flag: str, value: int | None, limit: int) -> int | None:
    if value is not None and not 1 <= value <= limit:
        raise InferometerError(f"{flag} {value}: must be from 1 to {limit}")
    return value


def _share(settings: MemorySettings) -> float | None:
    share = settings.get("gpu_memory_utilization")
    if share is not None and settings.get("reserve_bytes") is not None:
        raise InferometerError("give --reserve-bytes or --gpu-memory-utilization, not both")
    if share is not None and not 0 < share <= 1:
        raise InferometerError(f"--gpu-memory-utilization {share}: must be above 0 and at most 1")
    return share


def _reserve(settings: MemorySettings, visible_bytes: float) -> float | None:
    kept = settings.get("reserve_bytes")
    if kept is not None and not 0 <= kept < math.inf:
        raise InferometerError(f"--reserve-bytes {kept}: must be 0 or more")
    if kept is not None and kept >= visible_bytes:
        raise InferometerError(f"a reserve of {kept:.0f} bytes leaves nothing of {visible_bytes:.0f} visible bytes")
    return kept


def _gpu_layers(settings: MemorySettings, rules: EngineMemory) -> int | None:
    layers = settings.get("n_gpu_layers")
    if layers is not None and not rules.splits_layers:
        raise InferometerError(f"--n-gpu-layers is for llama.cpp and ollama; {rules.name} has all layers on the chip")
    if layers is not None and not 0 <= layers <= MAX_TOKENS:
        raise InferometerError(f"--n-gpu-layers {layers}: must be from 0 to {MAX_TOKENS}")
    return layers


class Adapters(TypedDict, total=False):
    """LoRA adapters of a question."""

    adapters: int
    adapter_rank: int


def _adapters(settings: MemorySettings) -> Adapters:
    number = _count("--lora-adapters", settings.get("lora_adapters"), MAX_SEQUENCES)
    rank = _count("--lora-rank", settings.get("lora_rank"), MAX_SEQUENCES)
    if (number is None) != (rank is None):
        raise InferometerError("adapters have a number and a rank: give --lora-adapters and --lora-rank")
    return {} if number is None or rank is None else {"adapters": number, "adapter_rank": rank}


def _say_defaults(asked: Asked, assumed: dict[str, str]) -> None:
    """Say what the engine takes where nobody said."""
    if asked.share is None and asked.reserve_bytes is None and asked.used_share < 1:
        assumed["gpu-memory-utilization"] = f"{asked.used_share:.4g}"
    if asked.max_num_batched_tokens is None and asked.defaults.max_num_batched_tokens is not None:
        assumed["max-num-batched-tokens"] = f"{asked.pass_tokens}"
    if asked.max_num_seqs is None and asked.defaults.max_num_seqs is not None:
        assumed["max-num-seqs"] = f"{asked.seqs}"


def broken(question: Question) -> tuple[str, ...]:
    """Return the rules of model and engine that the sharding breaks."""
    columns = {role: np.array([float(getattr(question.asked.sizes, role))]) for role in ROLES}
    rules = broken_rules(question.asked.model, question.spec, columns)
    return tuple(dict.fromkeys(f"{rule.name}: {rule.advice}" for rule in rules if bool(rule.broken[0])))
