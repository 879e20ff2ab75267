"""What mixers with a state of fixed size share: the short convolution, the scan, the norm of a gated output.

Letters: B sequences, T tokens, N heads, G groups, C chunk, K tokens a convolution spans, w channels.

Heads split over TP, and their states with them: each rank scans the whole sequence for its heads, so DCP, which cuts
a cache along the sequence, has nothing to cut and saves no byte of a state. Groups split as far as there are any;
where TP exceeds them, each is on TP / G ranks. A prompt is counted as fused: its state is written once, at the end, and
read once where a prefix is cached (kernels that write a state a chunk move more). Generated tokens read the state once
and write it after each, so that refused drafts can be taken back: once in decode, 1 + k times in verify, which is k + 1
recurrent steps (as vllm-project/vllm does, `fused_recurrent.py` of its linear attention).
"""

import numpy as np

from inferometer.blocks.cache import CONV, Cache
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.tensors import Tensor, local_rows, one_copy_bytes
from inferometer.graph.ops import NONE, ONE, Choice, CollectiveKind, Column, Node, OpKind, Plan, Traffic, Work
from inferometer.specs.formats import bytes_per_element, find_format

STATISTIC_BYTES = 4.0
"""A sum of squares of a token's output, fp32."""


def vector(name: str, rows: int, dtype: str, split: str, kind: str = "recurrence") -> Tensor:
    """Return a vector of a mixer."""
    return Tensor(name=name, rows=rows, format=dtype, kind=kind, split_rows=split)


def matrix(name: str, rows: int, cols: int, fmt: str, *, split_rows: str = "", split_cols: str = "") -> Tensor:
    """Return a matrix of a mixer."""
    return Tensor(
        name=name, rows=rows, cols=cols, format=fmt, kind="mixer", split_rows=split_rows, split_cols=split_cols
    )


def filters(name: str, rows: int, cols: int, dtype: str, split: str) -> Tensor:
    """Return rows of weights, one a channel, that no matrix product takes: of a convolution, of decays."""
    return Tensor(name=name, rows=rows, cols=cols, format=dtype, kind="recurrence", split_rows=split)


def conv_cache(heads: int, width: int, span: int, split: str) -> Cache:
    """Return what a convolution keeps: K - 1 tokens of its input, in the model's format."""
    return Cache(name=CONV, heads=heads, width=width * (span - 1), split=split, fixed=True, holds="dtype")


def state_cache(heads: int, width: int) -> Cache:
    """Return a recurrent state of `width` elements a head, in the model's state format."""
    return Cache(name="state", heads=heads, width=width, split="tp", fixed=True, holds="state")


def chunk_pairs(new: float, chunk: int) -> float:
    """Return (query, key) pairs of whole chunks: the sum of c^2 over chunks of C and the rest.

    A chunk is a matrix product, whose masked half is multiplied too.

    >>> chunk_pairs(10, 4), chunk_pairs(3, 4)
    (36.0, 9.0)
    """
    whole, rest = divmod(new, chunk)
    return float(whole * chunk * chunk + rest * rest)


def conv(low: Lowering, dtype: str, taps: tuple[Tensor, ...]) -> Work:
    """Return the convolution: channels in and out, and the K - 1 tokens before; a draft keeps a token more a row.

    Its 2 K multiply-adds a channel are not counted, as those of norms are not.
    """
    at = low.at
    wide = bytes_per_element(find_format(dtype))
    drafted = at.new_tokens - 1 if at.generates else 0
    times = min(passes_over_state(low), 2.0)
    wide_in = weights = kept = np.asarray(0.0)
    for tap in taps:
        channels = local_rows(tap, low.shards)
        wide_in = wide_in + channels
        kept = kept + channels * ((times * (tap.cols - 1) + drafted) * wide)
        weights = weights + one_copy_bytes(tap, low.shards)
    return Work(
        name="conv",
        kind=OpKind.ELEMENTWISE,
        dtype=at.core_dtype,
        flops=NONE,
        traffic_bytes={
            Traffic.WEIGHTS: weights,
            Traffic.STATE: at.sequences * kept,
            Traffic.ACTIVATIONS: at.tokens * (2 * wide_in * WIDE_BYTES),
        },
        replication=ONE,
        shape=f"[{{t}}, {{c}}], {taps[0].cols} tokens",
        sizes={"t": at.tokens, "c": wide_in},
    )


def passes_over_state(low: Lowering) -> float:
    """Return how often a state crosses memory: read and written by every token, or by a prompt once, read if it is."""
    at = low.at
    if at.generates:
        return 1.0 + at.new_tokens
    return 2.0 if at.contexts[0][0] > at.new_tokens else 1.0


def scan(
    low: Lowering,
    *,
    flops: Column,
    whole_flops: float,
    state: Column,
    io: Column,
    heads: Column,
    shape: str,
    weights: Column | None = None,
) -> Work:
    """Return the op that reads and updates the states of `state` elements a sequence on a chip.

    `flops` are of one sequence on a chip, `whole_flops` of one sequence on all; `io` bytes of activations a token.
    `heads` are a chip's, `shape` that of a head's state.
    """
    at = low.at
    held = at.state_bytes_per_element * passes_over_state(low)
    traffic = {Traffic.STATE: at.sequences * (state * held), Traffic.ACTIVATIONS: at.tokens * io}
    if weights is not None:
        traffic = {Traffic.WEIGHTS: weights, **traffic}
    return Work(
        name="state-scan",
        kind=OpKind.SCAN,
        dtype=at.core_dtype,
        flops=at.sequences * flops,
        traffic_bytes=traffic,
        replication=at.padding * (at.tp * flops / whole_flops),
        shape=f"[{{b}}, {{n}}] of {shape}, {{t}} tokens",
        sizes={"b": at.sequences, "n": heads, "t": np.asarray(float(at.new_tokens))},
    )


def gated_norm(low: Lowering, width: Column, gates: Column, groups: int | None) -> list[Node]:
    """Return norm and gate of the output: `width` read and written, `gates` read.

    A norm over fewer groups than TP has ranks needs the sums of squares of the ranks of a group.
    """
    at = low.at
    work = low.elementwise("gated-norm", at.tokens * ((2 * width + gates) * WIDE_BYTES))
    if groups is None:
        return [work]
    sums = low.message("norm-sums", CollectiveKind.ALL_REDUCE, "tp", at.tokens * (groups * STATISTIC_BYTES))
    alone = Plan(name="own", nodes=(), legal=at.tp <= groups)
    return [Choice(name="norm-sums", plans=(Plan(name="summed", nodes=(sums,)), alone)), work]
