"""Attention of text tokens over the K and V of a sequence's images, made once and kept.

Letters: B sequences, T tokens, I image tokens of a sequence, N query heads, K kv heads, D head dim. TP and DCP split
heads and cache as in `blocks.attention`. A prompt, also one behind a cached prefix, makes K and V of the images it
brings; there is no mask between text and images (Llama 3.2 Vision masks images that come later: counted as seen).
Without images the layer is skipped.
"""

import numpy as np

from inferometer.blocks import attention
from inferometer.blocks.cache import Cache
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Heads, Tensor, kv_shards
from inferometer.graph.ops import ONE, Column, Node, OpKind, Traffic, Work
from inferometer.specs.mixers import Attention, CrossAttention


def _self(block: CrossAttention) -> Attention:
    """Return the self-attention of the same shapes."""
    return Attention(
        heads=block.heads,
        kv_heads=block.kv_heads,
        head_dim=block.head_dim,
        qk_norm=block.qk_norm,
        formats=block.formats,
    )


def tensors(block: CrossAttention, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return q, k, v and o, the norms of q and k, and the gates."""
    found = attention.tensors(_self(block), hidden, dtype)
    if not block.gates:
        return found
    return (*found, Tensor(name="gates", rows=block.gates, format=dtype, kind="attention"))


def heads(block: CrossAttention) -> Heads:
    """Return N and K."""
    return Heads(block.heads, block.kv_heads)


def takes(block: CrossAttention) -> tuple[str, ...]:
    """Return the tensor that fixes the format of the layer's input; K and V take that of the images."""
    del block
    return ("q",)


def caches(block: CrossAttention) -> tuple[Cache, ...]:
    """Return K and V: 2 D elements a kv head and image token."""
    return (Cache(name="image-kv", heads=block.kv_heads, width=2 * block.head_dim, split="kv", images=True),)


def lower(block: CrossAttention, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer's cross-attention, from normed input to partial output sums."""
    at = low.at
    low.shards["kv"] = kv_shards(at.tp, at.dcp, block.kv_heads)
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    kv_local = attention.kv_heads_local(block.kv_heads, at.tp, at.dcp)
    nodes = low.gemm("q", (by_name["q"],), at.tokens)
    if not at.generates:
        images = at.sequences * at.cross_tokens
        nodes += low.gemm("image-k+v", (by_name["k"], by_name["v"]), images)
        width = kv_local * (2 * block.head_dim)
        nodes.append(
            low.elementwise(
                "image-kv-write",
                images * (width * WIDE_BYTES),
                kv=images * (width / at.dcp * at.kv_bytes_per_element),
            )
        )
    if block.qk_norm:
        q_width = block.heads * block.head_dim / at.tp
        nodes.append(low.elementwise("q-norm", at.tokens * (2 * q_width * WIDE_BYTES)))
    return [*nodes, *_core(block, low, kv_local), *low.gemm("o", (by_name["o"],), at.tokens)]


def _core(block: CrossAttention, low: Lowering, kv_local: Column) -> list[Node]:
    """Return softmax attention: 4 N D I flops a token; K and V of a sequence are read once a pass."""
    at = low.at
    split = at.dcp if at.generates else ONE
    heads, both = block.heads / at.tp, 2 * block.head_dim
    gathered = heads * split
    core = Work(
        name="cross-attention-core",
        kind=OpKind.ATTENTION,
        stored=at.kv_format,
        dtype=at.core_dtype,
        flops=at.tokens * (heads * (2 * both * float(at.cross_tokens))),
        traffic_bytes={
            Traffic.KV: at.sequences * (kv_local / split * (both * at.kv_bytes_per_element * at.cross_tokens)),
            Traffic.ACTIVATIONS: at.tokens * (gathered * (both * WIDE_BYTES)),
        },
        replication=at.padding,
        rows=np.asarray(float(at.new_tokens)),
        features=gathered / kv_local,
        items=at.sequences * kv_local,
        shape=f"q [{{b}}, {{t}}, {{n}}, {block.head_dim}] kv [{{b}}, {{s}}, {{k}}, {both}]",
        sizes={
            "b": at.sequences,
            "t": np.asarray(float(at.new_tokens)),
            "n": gathered,
            "s": at.cross_tokens / split,
            "k": kv_local,
        },
    )
    if not at.generates:
        return [core]
    return attention.context_parallel(low, gathered * block.head_dim, gathered * block.head_dim, gathered, [core])
