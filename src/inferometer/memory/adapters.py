"""LoRA adapters held beside the weights.

Letters: N adapters, R their rank.
"""

from collections.abc import Sequence

from inferometer.blocks.model import layer_kinds
from inferometer.blocks.params import layer_tensors
from inferometer.blocks.tensors import local_cols, local_rows
from inferometer.memory.asked import Asked, columns_of
from inferometer.memory.weights import layer_shards
from inferometer.specs.model import Layer

ADAPTED = ("attention", "ffn", "shared-experts")
"""Kinds of tensors that adapters are for."""

ADAPTER_BYTES = 2.0
"""bf16."""


def adapter_bytes(asked: Asked, layers: Sequence[Layer]) -> float:
    """Return N adapters of rank R: R (rows + columns) of a chip's shard of each linear layer but routed experts, bf16.

    A tensor that TP cuts keeps the other side of its adapter whole (vLLM without fully_sharded_loras).
    """
    sizes, total = columns_of(asked), 0.0
    for kind in layer_kinds(asked.model):
        shards = layer_shards(asked.model, kind, sizes)
        for tensor in layer_tensors(asked.model, kind):
            if tensor.cols > 1 and tensor.kind in ADAPTED:
                sides = float(local_rows(tensor, shards).item() + local_cols(tensor, shards).item())
                total += layers.count(kind) * asked.adapter_rank * sides * ADAPTER_BYTES
    return asked.adapters * total
