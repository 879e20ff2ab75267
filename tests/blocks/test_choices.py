"""What engines may mask exists, and alternatives can be told apart."""

import numpy as np
import pytest
from blocks.made_up import model
from hypothesis import given
from strategies import models

from inferometer.blocks.lowering import Pass
from inferometer.blocks.model import lower_model
from inferometer.catalog.loader import load_engines
from inferometer.graph.ops import Choice, unwrapped
from inferometer.graph.verify import verify
from inferometer.specs.feedforward import Moe
from inferometer.specs.formats import FORMATS
from inferometer.specs.mixers import Attention, Mla


def one_pass(phase="decode", *, context=64.0, batch=4.0, unpacked=frozenset(), **sizes):
    roles = {role: np.full((1, 1), float(sizes.get(role, 1))) for role in ("tp", "dpa", "ep", "etp", "dcp")}
    return Pass(
        phase=phase,
        sequences=np.full((1, 1), batch),
        replica_sequences=np.full((1, 1), batch * sizes.get("dpa", 1)),
        new_tokens=int(context) if phase == "prefill" else 1,
        contexts=((context, 1.0),),
        dtypes=dict.fromkeys(FORMATS, "bf16"),
        unpacked=unpacked,
        core_dtype="bf16",
        kv_bytes_per_element=2.0,
        kv_format="bf16",
        **roles,
    )


def choices(nodes):
    for node in unwrapped(nodes):
        if isinstance(node, Choice):
            yield node
            for plan in node.plans:
                yield from choices(plan.nodes)


def plans_by_choice(graph):
    found = {"residual": set(graph.residuals)}
    for segment in graph.segments:
        for nodes in (segment.nodes, *segment.edges.values()):
            for choice in choices(nodes):
                found.setdefault(choice.name, set()).update(plan.name for plan in choice.plans)
    return found


MOE = Moe(experts=8, top_k=2, width=128, shared_width=128)
EVERYTHING = (
    model(Mla(heads=4, q_rank=None, kv_rank=64, nope_dim=32, rope_dim=16, v_dim=32), MOE),
    model(Attention(heads=4, kv_heads=2, head_dim=32, formats={"q": "fp8"}), MOE),
)


@pytest.mark.parametrize("engine", load_engines().values(), ids=lambda e: e.id)
def test_an_engine_names_only_choices_and_plans_that_exist(engine):
    known = {}
    for spec in EVERYTHING:
        for name, plans in plans_by_choice(lower_model(spec, one_pass(unpacked=frozenset({"fp8"})))).items():
            known.setdefault(name, set()).update(plans)
    named = {key.partition(".")[0]: set(plans) for key, plans in engine.allows.items()}
    assert {name: plans - known.get(name, set()) for name, plans in named.items()} == {name: set() for name in named}


@given(models())
def test_every_lowering_is_legal(spec):
    for phase in ("decode", "prefill"):
        verify(lower_model(spec, one_pass(phase, tp=2, dpa=2, ep=4, dcp=2)))
        verify(lower_model(spec, one_pass(phase, tp=2, dpa=2, ep=4, dcp=2, unpacked=frozenset({"fp8", "nvfp4"}))))
