"""One object a line: deployments as JSON holds them. Infinity and NaN are no JSON: they become null."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from inferometer.estimate.estimate import placement_steps
from inferometer.estimate.result import ChoiceRow, OpRow
from inferometer.report.answer import Answer
from inferometer.report.flags import launch_flags
from inferometer.specs.deployment import ROLES, Deployment, Placement
from inferometer.specs.hardware import Fabric
from inferometer.version import __version__

LISTED_PLACES = ("tp", "dpa", "dcp", "pp", "ep", "etp")
"""Roles a placement lists; the stage and the replicas follow from them."""


SILENT = (
    *("what_if", "images", "image_size", "image_tokens", "draft_tokens", "all_token_logits"),
    *("expert_skew", "distinct_prompts", "redundant_experts"),
)
"""Parts of a workload that do not count where they ask for nothing."""


def dumps(row: Mapping[str, Any]) -> str:
    """Return a row as one line of JSON.

    >>> dumps({"a": float("inf"), "b": [1.5, float("nan")]})
    '{"a": null, "b": [1.5, null]}'
    """
    return json.dumps(_finite(row), allow_nan=False)


def deployment_row(answer: Answer) -> dict[str, Any]:
    """Return the keys of DEPLOYMENT in `report.schema`, in that order."""
    priced, rates = answer.estimate, answer.rates
    memory, sizes = priced.memory, priced.sizes
    asked = _asked(answer)
    row = {
        "version": __version__,
        "id": _identity(asked, answer),
        **asked,
        "feasible": priced.feasible,
        "reasons": list(priced.reasons),
        "sizes": {role: getattr(sizes, role) for role in ROLES},
        "placement": placement_table(answer),
        "choices": choices_taken(priced.residual, priced.choices),
        "batch": priced.batch,
        "step_s": priced.step_s,
        "tpot_s": rates.tpot_s,
        "ttft_s": rates.ttft_s,
        "tok_per_s": rates.tok_per_s,
        "tok_per_s_per_chip": rates.tok_per_s_per_chip,
        "tok_per_s_per_user": rates.tok_per_s_per_user,
        "bound": priced.bound,
        "busy_s": dict(priced.busy_s),
        "mfu": priced.mfu,
        "mbu": priced.mbu,
        "weights_bytes_per_chip": memory.weights_bytes,
        "kv_bytes_per_sequence_per_chip": memory.kv_bytes_per_sequence,
        "state_bytes_per_sequence_per_chip": memory.state_bytes_per_sequence,
        "resident_sequences": resident_sequences(answer),
        "usd_per_hour": rates.usd_per_hour,
        "usd_per_mtok_output": rates.usd_per_mtok_output,
        "decode_only_usd_per_mtok_output": rates.decode_only_usd_per_mtok_output,
        "price_source": rates.price_source,
        "low": priced.low_s,
        "high": priced.high_s,
        "basis": priced.basis,
        "tied": answer.tied,
        "diagnostics": [asdict(note) for note in priced.diagnostics],
    }
    return _finite(row)  # type: ignore[no-any-return]  # a dict in, a dict out


def explain_row(answer: Answer) -> dict[str, Any]:
    """Return the keys of EXPLAIN: a deployment row with its operations and launch flags."""
    priced = answer.estimate
    ops = [_op(op, priced.choices) for op in priced.ops]
    flags = [asdict(f) for f in launch_flags(answer)]
    return deployment_row(answer) | {"ops": _finite(ops), "basis_shares": priced.basis_shares, "flags": flags}


def resident_sequences(answer: Answer) -> int | None:
    """Return the sequences that fit over the whole deployment; None where nothing limits them."""
    fits, sizes = answer.estimate.memory.fits_sequences, answer.estimate.sizes
    return max(int(fits), 0) * sizes.r * sizes.dpa if math.isfinite(fits) else None


def placement_table(answer: Answer) -> dict[str, dict[str, int]]:
    """Return role -> axis -> factor, factors of 1 left out; strides follow from the nesting of roles."""
    return placed(answer.estimate.placement, answer.problem.machine.fabric)


def placed(placement: Placement, fabric: Fabric) -> dict[str, dict[str, int]]:
    """Return role -> axis -> factor of a placement, factors of 1 left out."""
    axes = [axis.name for axis in fabric.axes]
    roles = placement.roles
    listed = [(role, roles[role].factors) for role in LISTED_PLACES if role in roles]
    return {role: {a: f for a, f in zip(axes, factors, strict=True) if f > 1} for role, factors in listed}


def placement_rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the keys of PLACEMENT in `report.schema`, fastest first."""
    problem, priced = answer.problem, answer.estimate
    steps = placement_steps(problem, Deployment(sizes=priced.sizes, batch=priced.batch))
    per_chip = answer.rates.tok_per_s_per_chip * priced.step_s
    return [
        {
            "placement": placed(placement, problem.machine.fabric),
            "step_s": step_s,
            "tok_per_s_per_chip": per_chip / step_s,
            "taken": placement == priced.placement,
        }
        for placement, step_s in steps
    ]


def choices_taken(residual: str, choices: tuple[ChoiceRow, ...]) -> dict[str, str]:
    """Return Choice -> plan; layouts between ops (`reshard`) are left to the op list."""
    taken = {"residual": residual}
    for choice in choices:
        if choice.name == "reshard" or taken.setdefault(choice.name, choice.plan) == choice.plan:
            continue
        taken[f"{choice.name}@{choice.segment}"] = choice.plan
    return taken


def _asked(answer: Answer) -> dict[str, Any]:
    """Return what was asked: model to workload, in the row's order."""
    problem = answer.problem
    work = problem.workload
    return {
        "model": problem.model.name,
        "chip": problem.machine.chip.id,
        "machine": problem.machine.name,
        "n_chips": problem.machine.fabric.n_chips,
        "engine": problem.engine.id,
        "backend": problem.backend.name,
        "calibration": answer.calibration,
        "scheduler": problem.scheduler.name,
        "phase": work.phase,
        "workload": {
            "isl": work.isl,
            "osl": work.osl,
            "context": work.context,
            "images": work.images,
            "image_size": [work.image_width, work.image_height] if work.images else [],
            "image_tokens": work.image_tokens,
            "draft_tokens": work.draft_tokens,
            "all_token_logits": work.all_token_logits,
            "expert_skew": work.expert_skew,
            "distinct_prompts": work.distinct_prompts,
            "redundant_experts": work.redundant_experts,
            "kv_cache_dtype": problem.model.kv_format,
            "reserve_bytes": answer.estimate.memory.reserve_bytes,
            "overlap": list(problem.overlap),
            "assumed": [name for name in answer.assumed if name != "order"],
            "what_if": [change._asdict() for change in answer.changes],
        },
    }


def _identity(asked: dict[str, Any], answer: Answer) -> str:
    """Return a short hash of what was asked and of the deployment.

    What was assumed does not count: saying a default aloud is the same question.
    """
    sizes = [getattr(answer.estimate.sizes, role) for role in ROLES]
    work = {k: v for k, v in asked["workload"].items() if k != "assumed" and (v or k not in SILENT)}
    plain = {k: v for k, v in asked.items() if k != "calibration" or v is not None}
    counted = [plain | {"workload": work}, sizes, placement_table(answer), answer.estimate.batch]
    return blake2b(json.dumps(counted).encode(), digest_size=6).hexdigest()


def _op(op: OpRow, choices: tuple[ChoiceRow, ...]) -> dict[str, Any]:
    return {
        "name": op.name,
        "kind": op.kind,
        "segment": op.segment,
        "layers": op.layers,
        "share": op.share,
        "shapes": str(op.shape),
        "dtype": op.dtype,
        "flops": op.flops,
        "bytes": dict(op.traffic_bytes),
        "seconds": op.alone_s,
        "bound": op.bound,
        "plan": op.plan,
        "plans_beaten": _beaten(op, choices),
        "basis": op.basis,
    }


def _beaten(op: OpRow, choices: tuple[ChoiceRow, ...]) -> dict[str, float]:
    """Return the plans that lost against the one this operation belongs to."""
    here = [c for c in choices if c.segment == op.segment]
    for choice in here:
        if op.plan == f"{choice.name}={choice.plan}" or (choice.name == "reshard" and op.name in choice.plan.split()):
            return dict(choice.beaten_s)
    return {}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
