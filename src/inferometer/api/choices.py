"""Pins of choices: `mla=absorbed,unpack=apart` leaves one plan of each to be priced."""

from collections.abc import Mapping

import msgspec

from inferometer.blocks.kinds import grows, parts
from inferometer.catalog.engines import CHOICES
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.deployment import EngineSpec, Phase, Workload
from inferometer.specs.feedforward import Moe
from inferometer.specs.mixers import Mla
from inferometer.specs.model import ModelSpec


def parse_choices(text: str | None) -> dict[str, str]:
    """Return plan by choice.

    Raises UnknownNameError for a choice or plan that does not exist, InferometerError for one pinned twice.

    >>> parse_choices("mla=absorbed,logits=local")
    {'mla': 'absorbed', 'logits': 'local'}
    """
    pins: dict[str, str] = {}
    for part in (text or "").split(",") if text is not None else ():
        name, equals, plan = (word.strip() for word in part.partition("="))
        if not equals:
            raise InferometerError(f"--choice {part[:40]!r}: write NAME=PLAN, as in mla=absorbed")
        if name not in CHOICES:
            raise unknown_name("choice", name[:40], CHOICES)
        if plan not in CHOICES[name]:
            raise unknown_name(f"plan of {name}", plan[:40], CHOICES[name])
        if name in pins:
            raise InferometerError(f"--choice {name} is pinned twice")
        pins[name] = plan
    return pins


def check_routing(work: Workload, model: ModelSpec) -> None:
    """Raise InferometerError where routing is described of a model that routes nothing."""
    if any(isinstance(block, Moe) for block in model.ffns):
        return
    given = {
        "--expert-skew": work.expert_skew > 0,
        "--distinct-prompts": work.distinct_prompts is not None,
        "--redundant-experts": work.redundant_experts > 0,
    }
    for flag, told in given.items():
        if told:
            raise InferometerError(f"{flag}: {model.name} has no experts; leave it out")


def check_choices(pins: Mapping[str, str], model: ModelSpec) -> None:
    """Raise InferometerError for a choice that a model leaves nobody."""
    latent = any(isinstance(part, Mla) for mixer in model.mixers for part in parts(mixer))
    experts = [block for block in model.ffns if isinstance(block, Moe)]
    lacks = {
        "mla": "" if latent else "latent attention",
        "moe-dispatch": "" if experts else "experts",
        "moe-exchange": "" if experts else "experts",
        "join-shared": "" if any(block.shared_width for block in experts) else "shared experts",
        "dcp-combine": "" if grows(model) else "cache that grows",
    }
    for name, plan in pins.items():
        if lacks.get(name):
            raise InferometerError(f"--choice {name}={plan}: {model.name} has no {lacks[name]}; leave it out")


def pinned(engine: EngineSpec, pins: Mapping[str, str], phase: Phase) -> EngineSpec:
    """Return the engine with only the pinned plans of those choices.

    Raises InferometerError for a plan that the engine cannot run in this phase.
    """
    if not pins:
        return engine
    allows = engine.in_phase(phase)
    for name, plan in pins.items():
        allowed = allows.get(name, (plan,))
        if plan not in allowed:
            raise InferometerError(f"--choice {name}={plan}: {engine.id} runs only {', '.join(allowed)} in {phase}")
    kept = {key: plans for key, plans in engine.allows.items() if key.partition(".")[0] not in pins}
    return msgspec.structs.replace(engine, allows=kept | {name: (plan,) for name, plan in pins.items()})
