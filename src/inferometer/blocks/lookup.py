"""Memory tables: Engram (DeepSeek-V4.1), n-gram embeddings (Qwen3.8-Flash-Next, LongCat-Flash-Lite).

Letters: T tokens of a DPA rank, H hidden, w width of a row, n residual streams. TP splits a row's columns in the chips'
memory: ranks read their part, and gather the rows. In the host's memory a row is read over the host's link, whose rate
no chip states: it depends on token ids alone, so it can be fetched ahead, and takes no time here. The projection is
whole on every TP rank and runs on the tokens that a rank holds. Left out: hashing, and what a sequence keeps (its last
few token ids, and the taps of the convolution).
"""

from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import TABLE, Tensor, local_cols
from inferometer.graph.ops import NONE, ONE, CollectiveKind, Node, OpKind, Traffic, Work
from inferometer.specs.formats import bytes_per_element, find_format
from inferometer.specs.lookup import Lookup


def tensors(block: Lookup, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return the table, the projection of what a token reads, norms and convolution."""
    fmt, streams = block.formats, max(block.outputs - 1, 1)
    host = block.place == "host"
    found = [
        Tensor(
            name="table",
            rows=block.rows,
            cols=block.width,
            format=fmt.get("table", dtype),
            kind=TABLE,
            split_cols="" if host else "tp",
            host=host,
        ),
        Tensor(
            name="project",
            rows=block.outputs * hidden,
            cols=block.reads * block.width,
            format=fmt.get("project", dtype),
            kind="memory",
        ),
    ]
    if block.norms:
        found.append(Tensor(name="norms", rows=streams * hidden, count=block.norms, format=dtype, kind="norm"))
    if block.conv:
        found.append(Tensor(name="conv", rows=streams * hidden, count=block.conv, format=dtype, kind="memory"))
    return tuple(found)


def lower(block: Lookup, low: Lowering, dtype: str) -> list[Node]:
    """Return the read of T tokens' rows, and their gather over TP."""
    table = tensors(block, low.hidden, dtype)[0]
    at = low.at
    elements = at.tokens * block.reads
    row_bytes = local_cols(table, low.shards) * bytes_per_element(find_format(table.format))
    lookup = Work(
        name="memory-table",
        kind=OpKind.LOOKUP,
        dtype=at.core_dtype,
        flops=NONE,
        traffic_bytes={
            Traffic.WEIGHTS: elements * (NONE if table.host else row_bytes),
            Traffic.ACTIVATIONS: elements * (local_cols(table, low.shards) * WIDE_BYTES),
        },
        replication=ONE,
        shape=f"[{{t}}, {block.reads}] of [{block.rows}, {{w}}] -> [{{t}}, {block.reads}, {{w}}]",
        sizes={"t": at.tokens, "w": local_cols(table, low.shards)},
    )
    if table.host:
        return [lookup]
    whole = elements * (block.width * WIDE_BYTES)
    return [lookup, low.message("gather-rows", CollectiveKind.ALL_GATHER, "tp", whole)]


def edges(block: Lookup, low: Lowering, residual: str, dtype: str) -> tuple[Node, ...]:
    """Return the projection of the rows, and what it adds to the streams: read and written, with what is added."""
    project = tensors(block, low.hidden, dtype)[1]
    rows = low.residual_rows(residual)
    streams = max(block.outputs - 1, 1)
    vectors = block.outputs + 2 * streams + 2 * streams * (block.norms > 0)
    return (
        *low.gemm("memory.project", (project,), rows, low.at.tokens),
        low.elementwise("memory.add", rows * (vectors * (low.hidden * WIDE_BYTES))),
    )
