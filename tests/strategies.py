"""Hypothesis strategies that several rooms share: models, chips, fabrics, problems, shardings.

Models and fabrics are small (a few layers, at most 16 chips) but cover every block kind and geometry. Sizes are
mostly powers of two, so that most shardings divide evenly and are legal.
"""

from itertools import zip_longest
from typing import NamedTuple

import msgspec
import numpy as np
from hypothesis import strategies as st
from mixer_strategies import compressed, crosses, formats, matrices, mixers_of_text

from inferometer.blocks.kinds import is_moe
from inferometer.blocks.model import unit_count
from inferometer.estimate.candidates import Placements, Shardings, make_shardings
from inferometer.estimate.estimate import IDEAL, make_problem
from inferometer.estimate.legality import legal_mask
from inferometer.estimate.space import enumerate_space
from inferometer.estimate.step import Problem
from inferometer.specs.deployment import Sizes, Workload
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.hardware import Axis, ChipSpec, Fabric, Machine
from inferometer.specs.lookup import Lookup
from inferometer.specs.mixers import Compressed
from inferometer.specs.model import Layer, LayerInputs, ModelSpec
from inferometer.specs.residual import AttentionResiduals, GatedStreams, HyperConnections

PEAKS = ("bf16", "fp8", "fp4")
GEOMETRIES = ("switch", "mesh", "pcie", "ring", "line")


@st.composite
def ffns(draw):
    """Gated or plain, with or without biases; after the mixer, or beside it with a norm of its own or without."""
    parallel = draw(st.booleans())
    return Ffn(
        width=draw(st.sampled_from((256, 512, 768))),
        gated=draw(st.booleans()),
        bias=draw(st.booleans()),
        parallel=parallel,
        pre_norm=not parallel or draw(st.booleans()),
        formats=draw(formats("gate", "up", "down")),
    )


@st.composite
def moes(draw):
    """Routed experts: with or without shared ones, a latent, zero experts or a table; free or group-limited."""
    experts = draw(st.sampled_from((8, 16, 32)))
    groups = draw(st.sampled_from((1, 1, 2, 4)))
    top_groups = draw(st.integers(1, groups))
    return Moe(
        experts=experts,
        top_k=draw(st.integers(1, min(6, top_groups * experts // groups))),
        width=draw(st.sampled_from((128, 256))),
        gated=draw(st.booleans()),
        shared_width=draw(st.sampled_from((0, 256))),
        shared_gate=draw(st.booleans()),
        groups=groups,
        top_groups=top_groups,
        router_bias=draw(st.booleans()),
        latent_width=draw(st.sampled_from((0, 0, 128))),
        latent_norm=draw(st.booleans()),
        zero_experts=draw(st.sampled_from((0, 0, 8))) if groups == 1 else 0,
        hash_vocab=draw(st.sampled_from((0, 0, 1000))),
        routed_shared=draw(st.sampled_from((0, 2))),
        formats=draw(formats("gate", "up", "down", "latent_down", "latent_up")),
    )


def residuals():
    """A plain sum, mostly, or any other scheme."""
    streams = st.sampled_from((2, 4))
    return st.one_of(
        st.none(),
        st.none(),
        st.builds(HyperConnections, streams=streams, mixes=st.booleans(), head=st.booleans()),
        st.builds(GatedStreams, streams=streams, rank=st.just(32)),
        st.builds(AttentionResiduals, every=st.integers(1, 4), norm=st.booleans()),
    )


@st.composite
def tables(draw):
    """Rows found by hashes, projected to the stream or to every stream of it."""
    return Lookup(
        pre_norm=False,
        rows=draw(st.sampled_from((1000, 4096))),
        width=draw(st.sampled_from((32, 64))),
        reads=draw(st.integers(1, 8)),
        outputs=draw(st.sampled_from((1, 3))),
        norms=draw(st.sampled_from((0, 3))),
        conv=draw(st.sampled_from((0, 4))),
    )


@st.composite
def tailed(draw, layers, mixers):
    """Layers of which the last take a prompt's tail alone, as many as can, in some cases."""
    of = [None if layer.mixer is None else mixers[layer.mixer] for layer in layers]
    first = len(layers)
    while first and (of[first - 1] is None or isinstance(of[first - 1], Compressed)):
        first -= 1
        if of[first] is not None and of[first].makes:
            break
    windows = [mixer.window for mixer in of[first:] if mixer is not None]
    tail = max([*windows, 1]) + draw(st.sampled_from((0, 0, 5)))
    if draw(st.booleans()):
        return layers
    return [*layers[:first], *(msgspec.structs.replace(layer, prompt_tail=tail) for layer in layers[first:])]


@st.composite
def models(draw, *, moe=None):
    """A decoder of one to eight layers that use every block; `moe` asks for routed experts, or for none.

    Some layers lack a mixer, a feed-forward, or both.
    """
    with_moe = draw(st.booleans()) if moe is None else moe
    hidden = draw(st.sampled_from((256, 512)))
    text = st.one_of(mixers_of_text(), compressed())
    others = st.one_of(text, text, crosses(), matrices(hidden))
    mixers = (draw(text), *draw(st.lists(others, max_size=1)))
    blocks = draw(st.lists(st.one_of(ffns(), ffns(), matrices(hidden)), max_size=1))
    if with_moe:
        blocks.append(draw(moes()))
    pairs = zip_longest(range(len(mixers)), range(len(blocks)))
    every = [Layer(mixer=mixer, ffn=ffn) for mixer, ffn in pairs]
    some = st.builds(Layer, mixer=_index(mixers), ffn=_index(blocks), visits=st.sampled_from((1, 1, 3)))
    layers = [*every, *draw(st.lists(some, max_size=6))]
    units = ()
    if draw(st.sampled_from((False, False, True))):
        blocks.append(draw(tables()))
        units = (2, *(1,) * (len(layers) - 1))
        layers.insert(0, Layer(ffn=len(blocks) - 1))
    layers = draw(tailed(layers, mixers))
    return ModelSpec(
        name="made-up",
        architecture="made-up",
        hidden=hidden,
        vocab=draw(st.sampled_from((512, 1000, 4096))),
        max_context=1 << 17,
        mixers=mixers,
        ffns=tuple(blocks),
        layers=tuple(layers),
        units=units,
        tied=draw(st.booleans()),
        dtype="bf16",
        head_format=draw(st.sampled_from((None, "fp8"))),
        kv_format=draw(st.sampled_from(("bf16", "fp8"))),
        residual=draw(residuals()),
        state_format=draw(st.sampled_from(("fp32", "bf16"))),
        more_rows=draw(st.sampled_from((0, 0, 8))),
        layer_inputs=draw(st.sampled_from((None, None, LayerInputs(width=64, rows=1000)))),
        source="made up by the tests",
    )


def _index(listed):
    """Return an index into a list, or None."""
    return st.one_of(st.none(), st.integers(0, len(listed) - 1)) if listed else st.none()


def rates(low, high):
    """Return rates spread evenly over their decades."""
    return st.floats(np.log10(low), np.log10(high)).map(lambda x: float(10**x))


@st.composite
def chips(draw):
    """A chip with bf16 and perhaps narrower arithmetic, no slower the narrower it is."""
    peak = draw(rates(1e11, 1e15))
    peaks = {name: peak * 2**i for i, name in enumerate(PEAKS[: draw(st.integers(1, 3))])}
    return ChipSpec(
        id="made-up",
        name="made up",
        vendor="tests",
        memory_bytes=draw(st.sampled_from((1 << 24, 1 << 28, 1 << 34))),
        memory_bytes_per_s=draw(rates(1e9, 1e13)),
        peak_flops_per_s=peaks,
        default_machine="none",
    )


@st.composite
def axes(draw, name, sizes):
    """One axis of any geometry."""
    geometry = draw(st.sampled_from(GEOMETRIES))
    return Axis(
        name=name,
        geometry=geometry,
        size=draw(st.sampled_from(sizes)),
        bytes_per_s=draw(rates(1e8, 1e12)),
        latency_s=draw(rates(1e-7, 1e-4)),
        reduces=draw(st.booleans()) and geometry == "switch",
    )


@st.composite
def fabrics(draw, *, most=16):
    """One to three axes of 1 to `most` chips in all; sometimes two axes are alike."""
    found = []
    left = most
    for i in range(draw(st.integers(1, 3))):
        fits = [n for n in (1, 2, 3, 4, 6, 8, 16) if n <= left]
        twin = bool(found) and found[-1].size <= left and draw(st.booleans())
        axis = found[-1] if twin else draw(axes(f"x{i}", fits))
        found.append(axis)
        left //= axis.size
    return Fabric(axes=tuple(found))


@st.composite
def workloads(draw):
    """Decode or verify at one context or over a growing one, prefill, or extend."""
    phase = draw(st.sampled_from(("decode", "decode", "prefill", "extend", "verify")))
    contexts = {
        "decode": st.one_of(st.none(), st.integers(1, 8192)),
        "verify": st.one_of(st.none(), st.integers(0, 8192)),
        "extend": st.integers(0, 8192),
        "prefill": st.none(),
    }
    return Workload(
        isl=draw(st.integers(1, 4096)),
        osl=draw(st.integers(0, 2048)),
        phase=phase,
        context=draw(contexts[phase]),
        draft_tokens=draw(st.integers(0, 4)) if phase == "verify" else 0,
        all_token_logits=draw(st.booleans()),
        cross_tokens=draw(st.sampled_from((0, 600))),
    )


class Case(NamedTuple):
    """A problem, and every legal sharding of its machine."""

    problem: Problem
    shardings: Shardings
    placements: Placements
    legal: np.ndarray
    """Indices of the legal shardings."""

    def __repr__(self) -> str:
        """Say what was drawn, without the columns made of it."""
        at = self.problem
        return f"Case({at.model}, {at.machine}, {at.workload}, {at.scheduler.name})"

    def sizes(self, index) -> Sizes:
        """Return the sizes of a legal sharding; the index is taken modulo their number."""
        return self.shardings.at(int(self.legal[index % len(self.legal)]))


def make_case(model, machine, workload, **options):
    """Return a problem with its candidates."""
    problem = make_problem(model, machine, workload, **options)
    columns, placements = enumerate_space(machine.fabric, moe=is_moe(model))
    kept = np.minimum(columns["pp"], unit_count(model))
    shardings = make_shardings(model, columns | {"pp": kept}, problem.engine.partition)
    legal = legal_mask(model, IDEAL, columns) & (columns["pp"] == kept)
    return Case(problem, shardings, placements, np.flatnonzero(legal))


@st.composite
def cases(draw, *, moe=None, most=16, schedulers=("serial", "streams", "overlap"), workload=None):
    """A model on a machine under a workload, with at least one legal sharding (R = chips always is)."""
    machine = Machine(chip=draw(chips()), fabric=draw(fabrics(most=most)), label="made-up")
    return make_case(
        draw(models(moe=moe)),
        machine,
        draw(workloads() if workload is None else workload),
        scheduler=draw(st.sampled_from(schedulers)),
    )
