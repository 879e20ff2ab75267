"""Whether the engines we print flags for can run a deployment, by their own rules, and what of it they do otherwise."""

from dataclasses import replace

import numpy as np

from inferometer.catalog.loader import find_engine
from inferometer.estimate.estimate import IDEAL
from inferometer.estimate.legality import broken_rules
from inferometer.estimate.result import Estimate
from inferometer.estimate.step import Problem
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
    return {
        "vllm": EngineFit((*_rules(problem, vllm, priced), *shared), _differs(problem, vllm, priced)),
        "sglang": EngineFit((*_rules(problem, IDEAL, priced), *shared), ()),
    }


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
