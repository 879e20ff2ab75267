"""How vLLM and SGLang are started for a deployment, or why they cannot run it.

vLLM: attention is TP x DP, experts are tensor parallel over DP x TP unless --enable-expert-parallel makes them expert
parallel over it; --max-num-seqs counts one DP rank (docs.vllm.ai serving/data_parallel_deployment, engine_args).
SGLang: --tp-size is the whole stage, --dp-size its attention ranks under --enable-dp-attention, --ep-size cuts the
experts of the stage; --max-running-requests counts all DP ranks; --dcp-size is for MLA
(docs.sglang.io advanced_features/server_arguments, advanced_features/dcp).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from inferometer.blocks.kinds import caches, is_moe
from inferometer.memory.asked import Asked
from inferometer.report.answer import Answer
from inferometer.specs.deployment import Sizes
from inferometer.specs.mixers import Attention

Flags = dict[str, int | str | None]
"""Flag -> value; empty: it takes none; None: not given."""

KV_FLAGS = {"fp8": "fp8_e4m3", "bf16": "bfloat16"}
"""KV format -> value of --kv-cache-dtype."""

STATE_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""State format -> value of vLLM's --mamba-ssm-cache-dtype and SGLang's --mamba-ssm-dtype."""

ALL2ALL = {
    "expanded": "deepep_low_latency",
    "coalesced": "deepep_high_throughput",
    "merged": "deepep_high_throughput",
}
"""Exchange priced -> vLLM's backend: a copy a chosen expert, or a copy a distinct rank (vllm/config/parallel.py)."""

DEEPEP_MODES = {"expanded": "low_latency", "coalesced": "normal", "merged": "normal"}
"""Exchange priced -> SGLang's --deepep-mode (docs.sglang.io advanced_features/expert_parallelism)."""

OTHER_FRONT_ENDS = {"Google": "TPUs", "Apple": "Apple GPUs", "Groq": "Groq LPUs", "Cerebras": "Cerebras wafers"}
"""Vendor -> chips that neither engine's CUDA and ROCm servers run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFlags:
    """One engine's command for one deployment."""

    engine: str
    command: str | None
    """One server; None where the engine cannot run this sharding."""
    servers: int
    notes: tuple[str, ...]


def launch_flags(answer: Answer) -> tuple[LaunchFlags, ...]:
    """Return how vLLM and SGLang are started for a deployment."""
    return (_vllm(answer), _sglang(answer))


def _vllm(answer: Answer) -> LaunchFlags:
    sizes, moe = answer.estimate.sizes, is_moe(answer.problem.model)
    reasons = _reasons(answer, "vllm")
    if reasons:
        return LaunchFlags(engine="vllm", command=None, servers=sizes.r, notes=tuple(reasons))
    flags = {
        "--tensor-parallel-size": sizes.tp,
        "--pipeline-parallel-size": sizes.pp if sizes.pp > 1 else None,
        "--data-parallel-size": sizes.dpa if sizes.dpa > 1 else None,
        "--enable-expert-parallel": "" if moe and sizes.ep > 1 else None,
        "--enable-eplb": "" if _copies(answer) else None,
        "--eplb-config.num_redundant_experts": _copies(answer),
        "--all2all-backend": ALL2ALL.get(_exchange(answer)) if _trades(answer) and sizes.dpa > 1 else None,
        "--decode-context-parallel-size": sizes.dcp if sizes.dcp > 1 else None,
        "--dcp-comm-backend": "a2a" if _taken(answer, "dcp-combine") == "exchange" else None,
        **_vllm_asked(answer, _each(answer, sizes.r * sizes.dpa)),
        "--gpu-memory-utilization": _memory_share(answer),
        "--kv-cache-dtype": _kv(answer),
        "--mamba-ssm-cache-dtype": _state(answer),
    }
    return LaunchFlags(
        engine="vllm",
        command=_spelled(f"vllm serve {answer.served_name}", flags),
        servers=sizes.r,
        notes=(*_notes(answer, sizes), *_vllm_notes(answer)),
    )


def _asked_of(answer: Answer, engine: str) -> Asked | None:
    """Return what was asked of the engine's own memory; None where another engine, or none, was named."""
    asked = answer.problem.asked
    return asked if asked is not None and asked.rules.name == engine else None


def _vllm_asked(answer: Answer, sequences: int) -> Flags:
    """Return the lengths and sizes that the server is started for, those asked for where it is the engine named."""
    length, asked = answer.problem.max_length, _asked_of(answer, "vllm")
    if asked is None:
        return {"--max-model-len": length, "--max-num-seqs": sequences}
    return {
        "--max-model-len": asked.max_model_len,
        "--max-num-seqs": asked.max_num_seqs or sequences,
        "--max-num-batched-tokens": asked.max_num_batched_tokens,
        "--enforce-eager": "" if asked.eager else None,
        "--enable-prefix-caching": "" if asked.cached_prefixes else None,
        "--cpu-offload-gb": f"{asked.offload_bytes / 2**30:g}" if asked.offload_bytes else None,
        **_lora(asked, "--max-loras"),
    }


def _sglang_asked(answer: Answer, sequences: int) -> Flags:
    """Return the same as SGLang spells it; its largest pass is a chunk of a prefill."""
    length, asked = answer.problem.max_length, _asked_of(answer, "sglang")
    if asked is None:
        return {"--context-length": length, "--max-running-requests": sequences}
    most = asked.max_num_seqs
    return {
        "--context-length": asked.max_model_len,
        "--max-running-requests": most * answer.estimate.sizes.dpa if most else sequences,
        "--chunked-prefill-size": asked.max_num_batched_tokens,
        "--disable-cuda-graph": "" if asked.eager else None,
        "--cpu-offload-gb": f"{asked.offload_bytes / 2**30:g}" if asked.offload_bytes else None,
        **_lora(asked, "--max-loras-per-batch"),
    }


def _lora(asked: Asked, number: str) -> Flags:
    """Return the flags of adapters: both engines take their number and their largest rank."""
    if not asked.adapters:
        return {}
    return {"--enable-lora": "", number: asked.adapters, "--max-lora-rank": asked.adapter_rank}


def _sglang(answer: Answer) -> LaunchFlags:
    sizes, moe = answer.estimate.sizes, is_moe(answer.problem.model)
    reasons = _reasons(answer, "sglang")
    if sizes.dcp > 1 and any(isinstance(m, Attention) for m in answer.problem.model.mixers):
        reasons.append(f"DCP={sizes.dcp}: --dcp-size is for MLA")
    if reasons:
        return LaunchFlags(engine="sglang", command=None, servers=sizes.r, notes=tuple(reasons))
    flags = {
        "--tp-size": sizes.stage,
        "--pp-size": sizes.pp if sizes.pp > 1 else None,
        "--dp-size": sizes.dpa if sizes.dpa > 1 else None,
        "--enable-dp-attention": "" if sizes.dpa > 1 else None,
        "--ep-size": sizes.ep if moe and sizes.ep > 1 else None,
        "--enable-eplb": "" if _copies(answer) else None,
        "--ep-num-redundant-experts": _copies(answer),
        "--moe-a2a-backend": "deepep" if _trades(answer) and sizes.etp == 1 else None,
        "--deepep-mode": DEEPEP_MODES.get(_exchange(answer)) if _trades(answer) and sizes.etp == 1 else None,
        "--dcp-size": sizes.dcp if sizes.dcp > 1 else None,
        **_sglang_asked(answer, _each(answer, sizes.r)),
        "--mem-fraction-static": _memory_share(answer),
        "--kv-cache-dtype": _kv(answer),
        "--mamba-ssm-dtype": _state(answer),
    }
    command = _spelled(f"python -m sglang.launch_server --model-path {answer.served_name}", flags)
    return LaunchFlags(
        engine="sglang", command=command, servers=sizes.r, notes=(*_notes(answer, sizes), *_sglang_notes(answer))
    )


def _reasons(answer: Answer, engine: str) -> list[str]:
    """Return why an engine cannot run the deployment."""
    fit = answer.engines.get(engine)
    reasons = list(answer.estimate.reasons if fit is None else fit.refused)
    kv = answer.problem.model.kv_format
    if kv not in KV_FLAGS and kv != answer.served_kv_format:
        reasons.append(f"a {kv} KV cache has no --kv-cache-dtype")
    chips = OTHER_FRONT_ENDS.get(answer.problem.machine.chip.vendor)
    if chips is not None:
        reasons.append(f"{chips} are started by other front ends; the sizes carry over, these flags may not")
    return reasons


def _taken(answer: Answer, name: str) -> str:
    """Return the plan of a Choice; empty where there was none."""
    return next((choice.plan for choice in answer.estimate.choices if choice.name == name), "")


def _copies(answer: Answer) -> int | None:
    """Return the redundant experts of a layer; None without any. vLLM: vllm/config/parallel.py, EPLBConfig."""
    copies = answer.problem.workload.redundant_experts
    return copies if copies and answer.estimate.sizes.ep > 1 else None


def _trades(answer: Answer) -> bool:
    """Return whether tokens were priced as exchanged between the ranks of expert parallelism."""
    return answer.estimate.sizes.ep > 1 and _taken(answer, "moe-dispatch") == "exchange"


def _exchange(answer: Answer) -> str:
    return _taken(answer, "moe-exchange").removesuffix("-etp-first")


def _each(answer: Answer, ranks: int) -> int:
    return max(math.ceil(answer.estimate.batch / ranks), 1)


def _memory_share(answer: Answer) -> str:
    """Return the share of memory that is not reserved; both engines take a share, and mean a little less by it."""
    return f"{answer.estimate.memory.used_share:.2f}"


def _kv(answer: Answer) -> str | None:
    """Return the format to ask for; None where the checkpoint's own is what was priced."""
    kv = answer.problem.model.kv_format
    return None if kv == answer.served_kv_format and kv != "fp8" else KV_FLAGS[kv]


def _state(answer: Answer) -> str | None:
    """Return the format to ask for, where there are recurrent states: engines differ in what they take untold."""
    model = answer.problem.model
    recurrent = any(cache.holds == "state" for block in model.mixers for cache in caches(block))
    return STATE_DTYPES[model.state_format] if recurrent else None


def _notes(answer: Answer, sizes: Sizes) -> tuple[str, ...]:
    notes = []
    if sizes.r > 1:
        notes.append(f"start {sizes.r} such servers, each on {sizes.n_chips // sizes.r} chips, behind a router")
    if sizes.pp * sizes.stage > answer.problem.machine.fabric.axes[0].size:
        notes.append("spans nodes: add each engine's node, rank and address flags")
    work = answer.problem.workload
    if not work.generates:
        notes.append(f"the batch is of {work.phase} passes; a server that also decodes needs its own")
    if answer.served_name == "MODEL":
        notes.append("MODEL stands for a checkpoint stored as priced: its hub id or its directory")
    return tuple(notes)


def _vllm_notes(answer: Answer) -> Iterator[str]:
    fit = answer.engines.get("vllm")
    yield from () if fit is None else fit.differs
    if k := answer.problem.workload.draft_tokens:
        yield f"add --speculative-config with the drafter's method and num_speculative_tokens {k}"
    if not _trades(answer):
        return
    if answer.estimate.sizes.dpa == 1:
        yield "priced with an exchange of tokens; vLLM exchanges between data-parallel ranks only, here one"
    elif answer.problem.machine.chip.vendor == "AMD":
        yield "DeepEP is for NVIDIA: on AMD take the MoRI backend of the same kind"


def _sglang_notes(answer: Answer) -> Iterator[str]:
    fit = answer.engines.get("sglang")
    yield from () if fit is None else fit.differs
    if k := answer.problem.workload.draft_tokens:
        yield f"add --speculative-algorithm with the drafter's model and --speculative-num-draft-tokens {k + 1}"
    if _trades(answer) and answer.estimate.sizes.etp > 1:
        yield "priced with an exchange of tokens; DeepEP wants EP to be the whole stage, without it SGLang gathers"
    if _taken(answer, "dcp-combine") == "gather-scatter":
        yield "priced with context ranks that gather and scatter; SGLang exchanges instead"


def _spelled(command: str, flags: Flags) -> str:
    given = {flag: value for flag, value in flags.items() if value is not None}
    return " ".join([command, *(f"{flag} {value}".rstrip() for flag, value in given.items())])
