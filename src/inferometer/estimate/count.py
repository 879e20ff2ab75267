"""What a pass is made of, counted and not priced: no chip is needed, and every Choice is taken by a stated rule.

The whole pass is the model unsharded: every weight read once for the batch. A chip's part is that of the fullest rank
under a sharding, copies and messages included; the batch runs in one microbatch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inferometer.blocks.images import ImageCount
from inferometer.blocks.model import lower_model, stage_kinds, unit_count
from inferometer.blocks.tower import is_part
from inferometer.estimate.passes import make_pass
from inferometer.estimate.pick import Shape, pick
from inferometer.estimate.precision import Precision
from inferometer.graph.ops import Choice, Message, Node, OpKind, Work, unwrapped
from inferometer.specs.deployment import ROLES, Sizes, Workload
from inferometer.specs.model import ModelSpec

PARTS = {"mixer": "attention", "ffn": "ffn"}
"""Block of a layer -> what it counts as; the ends count as themselves."""

TOWER = "tower"
"""What every part of a tower counts as."""

CORE_KINDS = (OpKind.GEMM, OpKind.GROUPED_GEMM, OpKind.ATTENTION)
"""Kinds whose FLOPs are `gemm_attention_flops`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedOp:
    """One operation of one layer, or one message between chips."""

    name: str
    kind: str
    segment: str
    part: str
    """attention (whatever mixes tokens), ffn, layer-inputs, tower, embedding, head, hand-over."""
    layers: int
    """Times it runs over the whole model."""
    share: float
    """Share of the passes it has these counts in."""
    shape: str
    """Of a chip's part."""
    dtype: str
    plan: str
    """The Choice it was taken under."""
    flops: float
    """Of the whole pass, one layer; messages have none."""
    traffic_bytes: dict[str, float]
    """Same, by what they are."""
    flops_per_chip: float
    chip_bytes: dict[str, float]
    """Of the busiest chip, by what they are; a message's as `message`."""

    @property
    def times(self) -> float:
        """Factor from one layer to the mean pass of the model."""
        return self.layers * self.share


class _Leaf(NamedTuple):
    segment: str
    part: str
    layers: int
    plan: str
    node: Work | Message


def default_plans(work: Workload) -> dict[str, str]:
    """Return the plans that are taken unless told: MLA is absorbed where tokens are generated, else expanded.

    A TP rank holds all tokens between blocks. A Choice not named takes its first plan (gather before exchange), a
    reshard its shortest.

    >>> default_plans(Workload())["mla"], default_plans(Workload(phase="prefill"))["mla"]
    ('absorbed', 'expanded')
    """
    return {"residual": "replicated", "mla": "absorbed" if work.generates else "expanded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """What is counted."""

    model: ModelSpec
    workload: Workload
    precision: Precision
    batch: int
    """Sequences in flight over the whole deployment."""
    plans: Mapping[str, str]
    """Choice -> plan; the residual layout is one."""
    image: ImageCount | None = None
    """What an image of the workload is to the model's tower."""


def count_ops(of: Counting, sizes: Sizes) -> tuple[CountedOp, ...]:
    """Return every operation and message of a pass, counted whole and of the busiest chip under a sharding."""
    left = iter([leaf for leaf in _leaves(of, Sizes()) if isinstance(leaf.node, Work)])
    found = []
    for leaf in _leaves(of, sizes):
        if isinstance(leaf.node, Work):
            found.append(_work(leaf, next(left).node))
        elif (ranks := _ranks(sizes, leaf.node.role)) > 1:
            found.append(_message(leaf, ranks))
    return tuple(found)


def _leaves(of: Counting, sizes: Sizes) -> list[_Leaf]:
    model = of.model
    columns = {role: np.full((1, 1), float(getattr(sizes, role))) for role in ROLES}
    replica = np.ceil(of.batch / columns["r"])
    each = np.ceil(replica / columns["dpa"])
    at = make_pass(model, of.workload, of.precision, columns, sequences=each, replica_sequences=replica, image=of.image)
    (stage,) = stage_kinds(model, (unit_count(model),))
    times = [*stage.multiplicities[:-1], sizes.pp - 1]
    found = []
    for segment, layers in zip(lower_model(model, at).segments, times, strict=True):
        for part in segment.blocks or (segment,):
            edges = list(unwrapped(part.edges[of.plans["residual"]]))
            before = [node for node in edges if isinstance(node, Work)]
            after = [node for node in edges if not isinstance(node, Work)]
            nodes = [*before, *unwrapped(part.nodes), *after]
            name = TOWER if is_part(part.name) else PARTS.get(part.name, part.name)
            found += [_Leaf(segment.name, name, layers, plan, node) for node, plan in _taken(nodes, of.plans, "")]
    return [leaf for leaf in found if leaf.layers]


def _taken(nodes: Sequence[Node], plans: Mapping[str, str], plan: str) -> Iterator[tuple[Work | Message, str]]:
    """Yield the operations and messages of nodes, Choices taken by rule, with the Choice they stand in."""
    for node in nodes:
        if not isinstance(node, Choice):
            yield node, plan
            continue
        named = [one for one in node.plans if one.name == plans.get(node.name)]
        plainest = min(node.plans, key=lambda one: sum(isinstance(inner, Choice) for inner in one.nodes))
        taken = named[0] if named else plainest if node.name == "reshard" else node.plans[0]
        yield from _taken(
            list(unwrapped(taken.nodes)), plans, plan if node.name == "reshard" else f"{node.name}={taken.name}"
        )


def _ranks(sizes: Sizes, role: str) -> int:
    return sizes.stage if role == "stage" else int(getattr(sizes, role))


def _work(leaf: _Leaf, whole: Work | Message) -> CountedOp:
    part = leaf.node
    if not (isinstance(part, Work) and isinstance(whole, Work) and part.name == whole.name):
        raise AssertionError(f"a sharding changes the operations: {part.name}, {whole.name}")
    return CountedOp(
        name=part.name,
        kind=str(part.kind),
        segment=leaf.segment,
        part=leaf.part,
        layers=leaf.layers,
        share=part.share,
        shape=str(Shape(part.shape, part.sizes)),
        dtype=part.dtype,
        plan=leaf.plan,
        flops=pick(whole.flops, 0),
        traffic_bytes={str(kind): pick(column, 0) for kind, column in whole.traffic_bytes.items()},
        flops_per_chip=pick(part.flops, 0),
        chip_bytes={str(kind): pick(column, 0) for kind, column in part.traffic_bytes.items()},
    )


def _message(leaf: _Leaf, ranks: int) -> CountedOp:
    node = leaf.node
    if not isinstance(node, Message):
        raise AssertionError(f"{node.name} is no message")
    return CountedOp(
        name=node.name if "(" in node.name else f"{node.name}({node.role})",
        kind=str(node.kind),
        segment=leaf.segment,
        part=leaf.part,
        layers=leaf.layers,
        share=1.0,
        shape=f"{node.role} x {ranks}",
        dtype="",
        plan=leaf.plan,
        flops=0.0,
        traffic_bytes={},
        flops_per_chip=0.0,
        chip_bytes={"message": pick(node.message_bytes, 0)},
    )
