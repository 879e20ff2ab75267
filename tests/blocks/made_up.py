"""Small parts that the tests of blocks and estimates are made of."""

import numpy as np

from inferometer.blocks.lowering import Pass
from inferometer.specs.deployment import Workload
from inferometer.specs.hardware import Axis, ChipSpec, Fabric, Machine
from inferometer.specs.model import Layer, ModelSpec

ROOMY = ChipSpec(
    id="roomy",
    name="roomy",
    vendor="tests",
    memory_bytes=1 << 45,
    memory_bytes_per_s=1e13,
    peak_flops_per_s={"bf16": 1e15, "fp8": 2e15},
    default_machine="none",
)


def axis(size, geometry="switch", name="x0", bytes_per_s=1e11, latency_s=1e-6):
    return Axis(name=name, geometry=geometry, size=size, bytes_per_s=bytes_per_s, latency_s=latency_s)


def machine(*axes, chip=ROOMY):
    return Machine(chip=chip, fabric=Fabric(axes=axes or (axis(1),)), label="made-up")


def model(mixer, ffn, *, layers=2, hidden=256, vocab=1000, tied=False, **more):
    return ModelSpec(
        name="made-up",
        architecture="made-up",
        hidden=hidden,
        vocab=vocab,
        max_context=1 << 17,
        mixers=(mixer,),
        ffns=(ffn,),
        layers=(Layer(mixer=0, ffn=0),) * layers,
        tied=tied,
        dtype="bf16",
        source="made up by the tests",
        **more,
    )


def lone_pass(phase, new_tokens, contexts):
    """One sequence on one chip."""
    one = np.ones(())
    return Pass(
        phase=phase,
        sequences=one,
        new_tokens=new_tokens,
        contexts=contexts,
        tp=one,
        dpa=one,
        ep=one,
        etp=one,
        dcp=one,
        replica_sequences=one,
        dtypes={"bf16": "bf16"},
        core_dtype="bf16",
        kv_bytes_per_element=2.0,
        kv_format="bf16",
    )


def decode(context):
    return Workload(context=context)


def prefill(isl, **more):
    return Workload(isl=isl, phase="prefill", **more)


def extend(isl, prefix, **more):
    return Workload(isl=isl, context=prefix, phase="extend", **more)


def verify(draft_tokens, prefix, **more):
    return Workload(context=prefix, draft_tokens=draft_tokens, phase="verify", **more)
