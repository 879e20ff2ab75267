"""Questions about memory, for the tests."""

from inferometer.api.load import load_model
from inferometer.blocks.kinds import is_moe
from inferometer.blocks.model import stage_layers
from inferometer.catalog.engine_memory import find_engine_memory
from inferometer.memory.asked import Asked
from inferometer.memory.plan import plan
from inferometer.specs.deployment import Sizes

GIB = 2.0**30


def asked(model, engine="ideal", *, gib=80.0, context=1000, sizes=None, quant=None, **more):
    """Return a question; `sizes` are role sizes, experts over the stage unless told."""
    spec = load_model(model, quant) if isinstance(model, str) else model
    given = dict(sizes or {})
    stage = given.get("dpa", 1) * given.get("tp", 1)
    filled = Sizes(**({"etp": stage} if is_moe(spec) and "ep" not in given else {}) | given)
    fields = {"max_model_len": context} | more
    return Asked(
        model=spec,
        chip=fields.pop("chip", "h100-sxm"),
        visible_bytes=gib * GIB,
        sizes=filled,
        splits=stage_layers(spec, filled.pp, "vllm"),
        rules=fields.pop("rules", None) or find_engine_memory(engine),
        context=context,
        **fields,
    )


def planned(*words, **more):
    """Return how memory is divided."""
    return plan(asked(*words, **more))
