"""Features that a token brings to each layer: looked up and projected at the start, gated into the stream by layers.

Letters: T tokens, H hidden, L layers, w features a layer. TP splits the rows of the table and of the projection of the
embedding: ranks give partial sums of [T, L w], which become what the residual layout wants. The gate and projection of
a layer are whole on every TP rank and run on the tokens that a rank holds, as its norms do. The table is in the chip's
memory, on the first stage; with stages in a row the features of all layers are handed over (an upper bound).
Source: the modelling class of Gemma 4 in huggingface/transformers (`src/transformers/models/gemma4/`).
"""

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Tensor, local_rows
from inferometer.graph.ops import NONE, ONE, Node, OpKind, Traffic, Work
from inferometer.specs.model import ModelSpec

NAME = "layer-inputs"
"""What its part of a layer is called."""


def features(model: ModelSpec) -> int:
    """Return L w, the features a token brings to all layers; 0 where it brings none."""
    return 0 if model.layer_inputs is None else len(model.layers) * model.layer_inputs.width


def first(model: ModelSpec) -> tuple[Tensor, ...]:
    """Return the table, the projection of the embedding and its norm, over the w features of a layer."""
    inputs = model.layer_inputs
    if inputs is None:
        return ()
    wide, dtype = features(model), model.dtype
    return (
        Tensor(name="layer_table", rows=inputs.rows, cols=wide, format=dtype, kind="embedding", split_rows="tp"),
        Tensor(name="layer_model", rows=wide, cols=model.hidden, format=dtype, kind="layer-inputs", split_rows="tp"),
        Tensor(name="layer_model_norm", rows=inputs.width, format=dtype, kind="norm"),
    )


def of_layer(model: ModelSpec) -> tuple[Tensor, ...]:
    """Return the gate, projection and norm of one layer."""
    inputs = model.layer_inputs
    if inputs is None:
        return ()
    width, hidden, dtype = inputs.width, model.hidden, model.dtype
    return (
        Tensor(name="input_gate", rows=width, cols=hidden, format=dtype, kind="layer-inputs"),
        Tensor(name="input_projection", rows=hidden, cols=width, format=dtype, kind="layer-inputs"),
        Tensor(name="input_norm", rows=hidden, format=dtype, kind="norm"),
    )


def lower_first(low: Lowering, model: ModelSpec) -> list[Node]:
    """Return the lookup of T rows, and the projection of the embeddings with its norm, added to them."""
    if model.layer_inputs is None:
        return []
    tokens, wide = low.at.tokens, features(model)
    projection = first(model)[1]
    local = local_rows(projection, low.shards)
    lookup = Work(
        name="layer-inputs",
        kind=OpKind.LOOKUP,
        dtype=low.at.core_dtype,
        flops=NONE,
        traffic_bytes={
            Traffic.WEIGHTS: tokens * (wide * WIDE_BYTES),
            Traffic.ACTIVATIONS: tokens * (wide * WIDE_BYTES),
        },
        replication=ONE,
        shape=f"[{{t}}] of [{{v}}, {wide}] -> [{{t}}, {wide}]",
        sizes={"t": tokens, "v": local_rows(first(model)[0], low.shards)},
    )
    return [
        lookup,
        *low.gemm("layer-inputs.project", (projection,), tokens),
        low.elementwise("layer-inputs.norm+add", tokens * (4 * local * WIDE_BYTES)),
    ]


def gather(low: Lowering, model: ModelSpec, residual: str) -> tuple[Node, ...]:
    """Return what makes the partial sums of [T, L w] whole on the tokens that a rank holds."""
    if model.layer_inputs is None:
        return ()
    element_bytes = WIDE_BYTES * features(model) / low.hidden
    return (low.reshard(low.layout(tp="P"), low.residual_layout(residual), element_bytes),)


def lower_layer(low: Lowering, model: ModelSpec, residual: str) -> tuple[Node, ...]:
    """Return a layer's gate, product, projection and norm, on the tokens of the residual stream that a chip holds."""
    inputs = model.layer_inputs
    if inputs is None:
        return ()
    rows, tokens = low.residual_rows(residual), low.at.tokens
    gate, projection, _ = of_layer(model)
    return (
        *low.gemm("layer-inputs.gate", (gate,), rows, tokens),
        low.elementwise("layer-inputs.multiply", rows * (3 * inputs.width * WIDE_BYTES)),
        *low.gemm("layer-inputs.add", (projection,), rows, tokens),
        low.norm("layer-inputs.post-norm", rows),
    )
