"""How vLLM and SGLang are started for a deployment, or why they cannot run it.

vLLM: attention is TP x DP, experts are tensor parallel over DP x TP unless --enable-expert-parallel makes them expert
parallel over it; --max-num-seqs counts one DP rank (docs.vllm.ai serving/data_parallel_deployment, engine_args).
SGLang: --tp-size is the whole stage, --dp-size its attention ranks under --enable-dp-attention, --ep-size cuts the
experts of the stage; --max-running-requests counts all DP ranks; --dcp-size is for MLA
(docs.sglang.io advanced_features/server_arguments, advanced_features/dcp).
"""

import math
from dataclasses import dataclass

from inferometer.blocks.model import is_moe
from inferometer.report.answer import Answer
from inferometer.specs.deployment import Sizes
from inferometer.specs.model import Mla

KV_FLAGS = {"fp8": "fp8_e4m3", "bf16": "auto", "fp16": "auto", "fp32": "auto"}
"""KV format -> value of --kv-cache-dtype; auto leaves the flag out."""


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
    reasons = _shared_reasons(answer)
    if moe and sizes.etp > 1 and sizes.ep > 1:
        reasons.append(f"EP={sizes.ep} with ETP={sizes.etp}: experts are either expert or tensor parallel, not both")
    if reasons:
        return LaunchFlags(engine="vllm", command=None, servers=sizes.r, notes=tuple(reasons))
    flags = {
        "--tensor-parallel-size": sizes.tp,
        "--pipeline-parallel-size": sizes.pp if sizes.pp > 1 else None,
        "--data-parallel-size": sizes.dpa if sizes.dpa > 1 else None,
        "--enable-expert-parallel": "" if moe and sizes.ep > 1 else None,
        "--decode-context-parallel-size": sizes.dcp if sizes.dcp > 1 else None,
        "--max-model-len": answer.problem.max_length,
        "--max-num-seqs": _each(answer, sizes.r * sizes.dpa),
        "--gpu-memory-utilization": _memory_share(answer),
        "--kv-cache-dtype": _kv(answer),
    }
    return LaunchFlags(
        engine="vllm",
        command=_spelled(f"vllm serve {answer.served_name}", flags),
        servers=sizes.r,
        notes=_notes(answer, sizes),
    )


def _sglang(answer: Answer) -> LaunchFlags:
    sizes, moe = answer.estimate.sizes, is_moe(answer.problem.model)
    reasons = _shared_reasons(answer)
    if sizes.dcp > 1 and not all(isinstance(m, Mla) for m in answer.problem.model.mixers):
        reasons.append(f"DCP={sizes.dcp}: --dcp-size is for MLA")
    if reasons:
        return LaunchFlags(engine="sglang", command=None, servers=sizes.r, notes=tuple(reasons))
    flags = {
        "--tp-size": sizes.stage,
        "--pp-size": sizes.pp if sizes.pp > 1 else None,
        "--dp-size": sizes.dpa if sizes.dpa > 1 else None,
        "--enable-dp-attention": "" if sizes.dpa > 1 else None,
        "--ep-size": sizes.ep if moe and sizes.ep > 1 else None,
        "--dcp-size": sizes.dcp if sizes.dcp > 1 else None,
        "--context-length": answer.problem.max_length,
        "--max-running-requests": _each(answer, sizes.r),
        "--mem-fraction-static": _memory_share(answer),
        "--kv-cache-dtype": _kv(answer),
    }
    command = _spelled(f"python -m sglang.launch_server --model-path {answer.served_name}", flags)
    return LaunchFlags(engine="sglang", command=command, servers=sizes.r, notes=_notes(answer, sizes))


def _shared_reasons(answer: Answer) -> list[str]:
    """Return why neither engine can run the deployment."""
    reasons = list(answer.estimate.reasons)
    kv = answer.problem.model.kv_format
    if kv not in KV_FLAGS:
        reasons.append(f"a {kv} KV cache has no --kv-cache-dtype")
    if answer.problem.machine.chip.vendor == "Google":
        reasons.append("TPUs are started by other front ends; the sizes carry over, these flags may not")
    return reasons


def _each(answer: Answer, ranks: int) -> int:
    return max(math.ceil(answer.estimate.batch / ranks), 1)


def _memory_share(answer: Answer) -> str:
    """Return the share of memory that is not reserved; both engines take a share, and mean a little less by it."""
    memory = answer.estimate.memory
    return f"{1 - memory.reserve_bytes / memory.visible_bytes:.2f}"


def _kv(answer: Answer) -> str | None:
    value = KV_FLAGS[answer.problem.model.kv_format]
    return None if value == "auto" else value


def _notes(answer: Answer, sizes: Sizes) -> tuple[str, ...]:
    notes = []
    if sizes.r > 1:
        notes.append(f"start {sizes.r} such servers, each on {sizes.n_chips // sizes.r} chips, behind a router")
    if sizes.pp * sizes.stage > answer.problem.machine.fabric.axes[0].size:
        notes.append("spans nodes: add each engine's node, rank and address flags")
    if answer.problem.workload.phase == "prefill":
        notes.append("the batch is of prefill passes; a server that also decodes needs its own")
    return tuple(notes)


def _spelled(command: str, flags: dict[str, int | str | None]) -> str:
    given = {flag: value for flag, value in flags.items() if value is not None}
    return " ".join([command, *(f"{flag} {value}".rstrip() for flag, value in given.items())])
