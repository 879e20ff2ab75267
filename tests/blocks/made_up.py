"""Small parts that the tests of blocks and estimates are made of."""

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


def decode(context):
    return Workload(context=context)


def prefill(isl):
    return Workload(isl=isl, phase="prefill")
