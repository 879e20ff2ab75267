"""Residual schemes: what they hold, and what they add to every block, to the ends and to the hand-over of stages.

Letters: T tokens a chip holds of the residual stream, H hidden, n streams, m weights of them, r rank, s stored vectors.
Nothing here is split: every TP rank holds all weights, and works on the tokens it holds. Traffic is what a fused kernel
reads and writes beyond a plain residual's norm, which has read and written one vector of the stream already.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import RESIDUAL, Tensor, one_copy_bytes
from inferometer.graph.ops import Column, Node, OpKind, Traffic, Work
from inferometer.specs.model import ModelSpec
from inferometer.specs.residual import AttentionResiduals, GatedStreams, HyperConnections

WEIGHTS_FORMAT = "fp32"
"""Format of hyper-connections (DeepSeek-V4's checkpoint)."""


class Counts(NamedTuple):
    """What a scheme costs one token at one block: multiplications, and vectors of H read or written besides."""

    flops: float
    vectors: float


def stored(spec: AttentionResiduals, layers: int) -> float:
    """Return s, the stored vectors that a block averages over, a mean over the blocks of the model.

    The mixer of layer i sees ceil(i / every) of them, the feed-forward floor(i / every) + 1, for the stream is stored
    between. A mean, so that layers at different depths stay one kind: a stage early in the model is charged too much,
    a late one too little.

    >>> stored(AttentionResiduals(every=2), 4)  # mixers 0 1 1 2, feed-forwards 1 1 2 2
    1.25
    """
    every = spec.every
    return sum(-(-i // every) + i // every + 1 for i in range(layers)) / (2 * layers)


def vectors(model: ModelSpec) -> float:
    """Return the vectors of H that a token carries from layer to layer: 1, n, or 1 + s."""
    spec = model.residual
    if spec is None:
        return 1.0
    return 1.0 + stored(spec, len(model.layers)) if isinstance(spec, AttentionResiduals) else float(spec.streams)


def tensors(model: ModelSpec, place: str) -> tuple[Tensor, ...]:
    """Return the tensors of one block's residual; `place` names the block (mixer, ffn, or final: the model's end)."""
    spec = model.residual
    return () if spec is None else _SCHEMES[type(spec)].tensors(spec, model, place)


def around(model: ModelSpec, low: Lowering, place: str, rows: Column) -> tuple[Node, ...]:
    """Return what a block's residual does besides the norms, on `rows` tokens; `place` as of `tensors`."""
    spec = model.residual
    if spec is None:
        return ()
    scheme, held = _SCHEMES[type(spec)], tensors(model, place)
    if not held:
        return ()
    counts = scheme.counts(spec, model, place)
    at = low.at
    weights = sum((one_copy_bytes(tensor, low.shards) for tensor in held), start=rows * 0)
    work = Work(
        name=f"{place}.residual",
        kind=OpKind.GEMM,
        dtype=at.core_dtype,
        flops=rows * counts.flops,
        traffic_bytes={
            Traffic.WEIGHTS: weights,
            Traffic.ACTIVATIONS: rows * (counts.vectors * (model.hidden * WIDE_BYTES)),
        },
        replication=at.padding * (rows / (at.logit_tokens if place == "final" else at.tokens)) * at.tp,
        rows=rows,
        features=_features(held),
        shape=scheme.shape(spec),
    )
    return (work,)


def _features(held: tuple[Tensor, ...]) -> Column | None:
    """Return the columns of the scheme's first product; None where it has only vectors."""
    found = next((tensor.rows for tensor in held if tensor.cols > 1), None)
    return None if found is None else np.asarray(float(found))


def spread(model: ModelSpec, low: Lowering, rows: Column) -> tuple[Node, ...]:
    """Return the copy of the embedding into every stream."""
    spec = model.residual
    if spec is None or isinstance(spec, AttentionResiduals):
        return ()
    return (low.elementwise("embedding.streams", rows * ((1 + spec.streams) * (model.hidden * WIDE_BYTES))),)


def _hyper_tensors(spec: HyperConnections, model: ModelSpec, place: str) -> tuple[Tensor, ...]:
    n = spec.streams
    final = place == "final"
    if final and not spec.head:
        return ()
    rows = n if final else 2 * n + (n * n if spec.mixes else 0)
    scales = 1 if final else 3 if spec.mixes else 2
    return (
        _tensor(f"{place}_hc_fn", rows, n * model.hidden, WEIGHTS_FORMAT),
        _tensor(f"{place}_hc_base", rows, 1, WEIGHTS_FORMAT),
        _tensor(f"{place}_hc_scale", scales, 1, WEIGHTS_FORMAT),
    )


def _hyper_counts(spec: HyperConnections, model: ModelSpec, place: str) -> Counts:
    """Project n H to m weights: 2 m n H; collapse n H to H, spread H to n H and mix n n of them: 2 m H.

    All streams are read, and written after the block: 2 n vectors, of which the norm has counted two.
    """
    m = next(iter(_hyper_tensors(spec, model, place))).rows
    n, hidden = spec.streams, model.hidden
    return Counts(2 * m * n * hidden + 2 * m * hidden, n if place == "final" else 2 * n - 2)


def _gated_tensors(spec: GatedStreams, model: ModelSpec, place: str) -> tuple[Tensor, ...]:
    wide, dtype = spec.streams * model.hidden, model.dtype
    inject = () if place == "final" else (_tensor(f"{place}_inject", spec.streams, wide, dtype),)
    return (
        _tensor(f"{place}_stream_norm", wide, 1, dtype),
        _tensor(f"{place}_mix_down", spec.rank, wide, dtype),
        _tensor(f"{place}_mix_up", wide, spec.rank, dtype),
        *inject,
    )


def _gated_counts(spec: GatedStreams, model: ModelSpec, place: str) -> Counts:
    """Twice the matrices; every element is weighed and averaged, and written after the block with what it gave.

    Streams are read for the gates and again to be weighed, the gates are written and read between: 4 n; after the
    block 2 n more, of which the norm has counted two.
    """
    n, hidden = spec.streams, model.hidden
    matrices = sum(t.params for t in _gated_tensors(spec, model, place) if t.cols > 1)
    return Counts(2 * matrices + 4 * n * hidden, 4 * n if place == "final" else 6 * n - 2)


def _attention_tensors(spec: AttentionResiduals, model: ModelSpec, place: str) -> tuple[Tensor, ...]:
    fmt = spec.format or model.dtype
    norm = (_tensor(f"{place}_res_norm", model.hidden, 1, fmt),) if spec.norm else ()
    return (*norm, _tensor(f"{place}_res_query", model.hidden, 1, fmt))


def _attention_counts(spec: AttentionResiduals, model: ModelSpec, place: str) -> Counts:
    """Score and average s + 1 vectors: 4 (s + 1) H. The stored ones are read; one in `every` layers is written."""
    layers = len(model.layers)
    seen = float(-(-layers // spec.every)) if place == "final" else stored(spec, layers)
    return Counts(4 * (seen + 1) * model.hidden, seen + (0.0 if place == "final" else 0.5 / spec.every))


def _tensor(name: str, rows: int, cols: int, fmt: str) -> Tensor:
    return Tensor(name=name, rows=rows, cols=cols, format=fmt, kind=RESIDUAL)


class _Scheme(NamedTuple):
    tensors: Callable[[Any, ModelSpec, str], tuple[Tensor, ...]]
    counts: Callable[[Any, ModelSpec, str], Counts]
    shape: Callable[[Any], str]


def _streams(spec: HyperConnections | GatedStreams) -> str:
    return f"{spec.streams} streams of H"


def _groups(spec: AttentionResiduals) -> str:
    return f"stored every {spec.every} layers"


_SCHEMES: Mapping[type, _Scheme] = {
    HyperConnections: _Scheme(_hyper_tensors, _hyper_counts, _streams),
    GatedStreams: _Scheme(_gated_tensors, _gated_counts, _streams),
    AttentionResiduals: _Scheme(_attention_tensors, _attention_counts, _groups),
}
