"""Towers before the language model: tensors and ops from one declaration, `specs.tower`.

They stand on the first pipeline stage. TP splits heads and feed-forwards, mergers and projectors of two matrices, as
engines do by default (vLLM `--mm-encoder-tp-mode weights`); patches, positions, norms and lone projectors are whole on
every rank (docs/decisions/0007). In a prefill each rank encodes the images of its own B sequences; decode runs nothing.

Letters: B sequences, n images a sequence, N heads, D head dim; of an image p patches, q positions (with class tokens).
"""

from collections.abc import Iterator

import numpy as np

from inferometer.blocks.images import ImageCount
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Shards, Tensor, chip_bytes, local_cols, local_rows
from inferometer.graph.ops import ONE, CollectiveKind, Column, Node, OpKind, Segment, Traffic, Work
from inferometer.specs.model import ModelSpec
from inferometer.specs.tower import Linear, TowerPart

OF = "."
"""Between a tower's name and its part's, in the name of a segment; no other segment has it."""

HEADS = "heads"
"""Shard key of what TP splits by heads: no further than there are heads."""


def parts(model: ModelSpec) -> Iterator[tuple[str, TowerPart]]:
    """Yield (segment's name, part) over the towers of a model, in the order they run."""
    for tower in model.towers:
        for part in tower.parts:
            yield f"{tower.name}{OF}{part.name}", part


def is_part(segment: str) -> bool:
    """Return whether a segment is a part of a tower.

    >>> is_part("vision.layer"), is_part("layer-1"), is_part("head")
    (True, False, False)
    """
    return OF in segment


def tensors(part: TowerPart, dtype: str) -> tuple[Tensor, ...]:
    """Return the tensors of one layer of a part."""
    found = []
    for name in part.linears:
        found += [_matrix(part, name, dtype), *_biases(part, name, dtype)]
    for vectors in (part.norms, part.tables):
        found += [Tensor(name=name, rows=size, format=dtype, kind="tower") for name, size in vectors.items()]
    return tuple(found)


def _key(part: TowerPart, name: str) -> str:
    return HEADS if part.heads and name in ("qkv", "o") else "tp"


def _matrix(part: TowerPart, name: str, dtype: str) -> Tensor:
    linear, key = part.linears[name], _key(part, name)
    return Tensor(
        name=name,
        rows=linear.rows,
        cols=linear.cols,
        format=dtype,
        kind="tower",
        split_rows=key if linear.split == "rows" else "",
        split_cols=key if linear.split == "cols" else "",
    )


def _biases(part: TowerPart, name: str, dtype: str) -> list[Tensor]:
    linear = part.linears[name]
    key = _key(part, name) if linear.split == "rows" else ""
    rows = linear.bias
    return [Tensor(name=f"{name}_bias", rows=rows, format=dtype, kind="tower", split_rows=key)] if rows else []


def shards(part: TowerPart, tp: Column) -> Shards:
    """Return how many ways each shard key splits a part."""
    return {"tp": tp, HEADS: np.minimum(tp, float(part.heads or 1))}


def chip_bytes_of(model: ModelSpec, tp: Column) -> Column:
    """Return the bytes a chip of the first stage holds of all towers, a column."""
    total: Column = np.zeros_like(tp)
    for _, part in parts(model):
        total = total + part.layers * chip_bytes(tensors(part, model.dtype), shards(part, tp))
    return total


def lower(low: Lowering, model: ModelSpec, residuals: tuple[str, ...]) -> list[Segment]:
    """Return a segment a part: what its positions of all images go through; empty where no image comes in.

    The language model's residual layout changes nothing here.
    """
    at = low.at
    edges: dict[str, tuple[Node, ...]] = dict.fromkeys(residuals, ())
    found = []
    for name, part in parts(model):
        running = at.image is not None and part.over is not None and part.running
        nodes = tuple(_nodes(low, part, at.image, model.dtype)) if running and at.image else ()
        found.append(Segment(name=name, nodes=nodes, edges=edges))
    return found


def _nodes(low: Lowering, part: TowerPart, image: ImageCount, dtype: str) -> Iterator[Node]:
    """Yield the ops of one layer: norms, then each matrix with what stands behind it."""
    at = low.at
    own = Lowering(at=at, hidden=part.width, has_dpa=False)
    own.shards.update(shards(part, at.tp))
    images = at.sequences * float(at.images)
    rows = images * image.over(part.over or "patches")
    for name in part.norms:
        yield own.elementwise(name, rows * (4 * part.width * WIDE_BYTES))
    names = list(part.linears)
    for place, name in enumerate(names):
        linear, matrix = part.linears[name], _matrix(part, name, dtype)
        yield from own.gemm(name, (matrix,), rows)
        if part.heads and name == "qkv":
            yield from _core(own, part, images, image)
        elif linear.split == "rows":
            after = _matrix(part, names[place + 1], dtype)
            read = local_rows(matrix, own.shards) + local_cols(after, own.shards)
            yield own.elementwise("activation", rows * (read * WIDE_BYTES))
        elif linear.split == "cols":
            yield _reduce(own, name, linear, rows)


def _reduce(low: Lowering, name: str, linear: Linear, rows: Column) -> Node:
    return low.message(f"{name}.reduce", CollectiveKind.ALL_REDUCE, "tp", rows * (linear.rows * WIDE_BYTES))


def _core(low: Lowering, part: TowerPart, images: Column, image: ImageCount) -> Iterator[Node]:
    """Yield rotation and the core of bidirectional attention: 4 N D flops a pair of positions.

    A pair costs a product of D with k and one with v. Activations are q, k and v in, the output out.
    """
    at = low.at
    heads = np.ceil(part.heads / low.shards[HEADS])
    positions = images * image.over("positions")
    width = heads * part.head_dim
    if part.rotated:
        yield low.elementwise("rope", positions * (4 * width * WIDE_BYTES))
    pairs = image.pairs(part.window)
    yield Work(
        name="attention-core",
        kind=OpKind.ATTENTION,
        dtype=at.core_dtype,
        flops=images * (width * (4 * pairs)),
        traffic_bytes={Traffic.ACTIVATIONS: positions * (4 * width * WIDE_BYTES)},
        replication=at.padding * (at.tp * heads / part.heads) * ONE,
        rows=np.asarray(float(image.over("positions"))),
        items=images * heads,
        shape=f"images x {part.heads} heads x {part.head_dim}, {pairs:.0f} pairs",
    )
