"""Dense feed-forward, gated (down(act(gate) * up)) or plain (down(act(up))). F is the width; TP splits it."""

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Tensor, local_rows
from inferometer.graph.ops import Node
from inferometer.specs.feedforward import Ffn


def tensors(block: Ffn, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return gate (where gated), up and down, with biases and the norm before down."""
    ins = ("gate", "up") if block.gated else ("up",)
    fmt = block.formats
    found = [
        Tensor(name=n, rows=block.width, cols=hidden, format=fmt.get(n, dtype), kind="ffn", split_rows="tp")
        for n in ins
    ]
    found.append(
        Tensor(name="down", rows=hidden, cols=block.width, format=fmt.get("down", dtype), kind="ffn", split_cols="tp")
    )
    if block.bias:
        found += [Tensor(name=f"{n}_bias", rows=block.width, format=dtype, kind="ffn", split_rows="tp") for n in ins]
        found.append(Tensor(name="down_bias", rows=hidden, format=dtype, kind="ffn"))
    if block.sub_norm:
        found.append(Tensor(name="sub_norm", rows=block.width, format=dtype, kind="norm", split_rows="tp"))
    return tuple(found)


def lower(block: Ffn, low: Lowering, dtype: str) -> list[Node]:
    """Return the ops of one layer's feed-forward, from normed input to partial output sums."""
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    ins = tuple(by_name[n] for n in ("gate", "up") if n in by_name)
    nodes = dense(low, "", ins, by_name["down"])
    if block.sub_norm:
        width = local_rows(by_name["sub_norm"], low.shards)
        nodes.append(low.elementwise("sub-norm", low.at.tokens * (2 * width * WIDE_BYTES)))
    return nodes


def dense(low: Lowering, prefix: str, ins: tuple[Tensor, ...], down: Tensor) -> list[Node]:
    """Return the three ops of a feed-forward whose input projections `ins` are one GEMM."""
    tokens = low.at.tokens
    width = local_rows(ins[0], low.shards)
    return [
        *low.gemm(prefix + "+".join(t.name.removeprefix("shared_").removesuffix("_proj") for t in ins), ins, tokens),
        low.elementwise(
            prefix + "activation",
            tokens * (width * ((len(ins) + 1) * WIDE_BYTES)),
            shape="[{t}, {i}] -> [{t}, {o}]",
            sizes={"t": tokens, "i": width * len(ins), "o": width},
        ),
        *low.gemm(prefix + "down", (down,), tokens),
    ]
