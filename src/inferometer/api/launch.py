"""Whether the engines we print flags for can run a deployment, by their own rules, and what of it they do otherwise."""

from dataclasses import replace

import numpy as np

from inferometer.blocks.model import stage_layers
from inferometer.catalog.engine_memory import find_engine_memory
from inferometer.catalog.loader import find_engine
from inferometer.estimate.legality import broken_rules
from inferometer.estimate.result import Estimate
from inferometer.estimate.step import Problem
from inferometer.memory.asked import Asked
from inferometer.memory.plan import plan
from inferometer.report.answer import EngineFit
from inferometer.specs.deployment import ROLES, EngineSpec


def engine_fits(problem: Problem, priced: Estimate) -> dict[str, EngineFit]:
    """Return engine -> why it cannot run the deployment, and which plans priced it has not.

    Rules of another engine and limits that are missed keep nobody from starting it.
    """
    own = set(_rules(problem, problem.engine, priced))
    shared = [text for text in priced.reasons if text not in own and not text.startswith("misses-slo")]
    longest = problem.model.max_context
    if problem.max_length > longest:
        shared.append(f"beyond-context: {problem.max_length} tokens, {problem.model.name} states {longest}")
    vllm = problem.engine if problem.engine.name == "vllm" else find_engine("vllm")
    differs = _differs(problem, vllm, priced)
    return {
        "vllm": _held(problem, priced, vllm, EngineFit((*_rules(problem, vllm, priced), *shared), differs)),
        "sglang": _held(problem, priced, _SGLANG, EngineFit((*_rules(problem, _SGLANG, priced), *shared), ())),
    }


_SGLANG = EngineSpec(name="sglang", version="", whole_latents=True)
"""sgl-project/sglang python/sglang/srt/models/deepseek_v2.py: fused_qkv_a_proj_with_mqa is a ReplicatedLinear."""


def _held(problem: Problem, priced: Estimate, engine: EngineSpec, fit: EngineFit) -> EngineFit:
    """Return the fit with what the engine's own memory rules say of the flags that are printed.

    Where one sequence of full length lacks room it does not start: refused. Where it starts and holds fewer
    sequences than were priced, that is said. What is refused already is not asked.
    """
    if fit.refused or priced.reasons:
        return fit
    started = plan(_started(problem, priced, engine))
    if not started.fits:
        reasons = "; ".join(started.reasons)
        return EngineFit((*fit.refused, f"would not start with these flags: {reasons}"), fit.differs)
    most = started.resident
    if most >= priced.batch:
        return fit
    note = f"its own reserves leave room for {most:,.0f} of these {priced.batch:,} sequences at full length"
    return EngineFit(fit.refused, (*fit.differs, note))


def _started(problem: Problem, priced: Estimate, engine: EngineSpec) -> Asked:
    """Return what the flags that are printed ask of the engine's memory: what was asked for, where it is the one."""
    splits, share = stage_layers(problem.model, priced.sizes.pp, engine.partition), round(priced.memory.used_share, 2)
    sequences = max(priced.sequences, 1)
    own = problem.asked
    if own is not None and own.rules.name == engine.name:
        seqs = own.max_num_seqs or sequences
        sized = replace(own, sizes=priced.sizes, splits=splits, max_num_seqs=seqs)
        return replace(sized, share=share or None, reserve_bytes=None)
    return Asked(
        model=problem.model,
        chip=problem.machine.chip.id,
        visible_bytes=priced.memory.visible_bytes,
        sizes=priced.sizes,
        splits=splits,
        rules=find_engine_memory(engine.id),
        context=problem.max_length,
        max_model_len=problem.max_length,
        max_num_seqs=sequences,
        share=share or None,
    )


def _rules(problem: Problem, engine: EngineSpec, priced: Estimate) -> tuple[str, ...]:
    columns = {role: np.array([float(getattr(priced.sizes, role))]) for role in ROLES}
    rules = broken_rules(problem.model, engine, columns)
    return tuple(dict.fromkeys(f"{rule.name}: {rule.advice}" for rule in rules if bool(rule.broken[0])))


def _differs(problem: Problem, engine: EngineSpec, priced: Estimate) -> tuple[str, ...]:
    """Return what was priced that the engine does another way."""
    allows = replace(problem, engine=engine).allows
    taken = {choice.name: choice.plan for choice in priced.choices} | {"residual": priced.residual}
    others = [f"{name}={plan}" for name, plan in taken.items() if plan not in allows.get(name, (plan,))]
    if not others:
        return ()
    return (f"priced with {', '.join(others)}, which {engine.id} has not: --engine {engine.id} prices what it runs",)
