"""The residual scheme of a model, from a config read through its dialect. A reader a scheme."""

from collections.abc import Callable, Mapping

from inferometer.ingest.bounds import MAX_HIDDEN, MAX_LAYERS
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.residual import AttentionResiduals, GatedStreams, HyperConnections, Residual

MAX_STREAMS = 64


def residual(reader: ConfigReader, dialect: Dialect) -> Residual | None:
    """Return how blocks are added to the stream; None is a plain sum.

    Raises InferometerError for sizes that are missing or out of range.
    """
    return None if dialect.residual is None else READERS[dialect.residual](reader)


def _hyper(reader: ConfigReader) -> Residual:
    return HyperConnections(streams=reader.integer("hc_mult", low=2, high=MAX_STREAMS))


def _independent(reader: ConfigReader) -> Residual:
    return HyperConnections(streams=reader.integer("hc_mult", low=2, high=MAX_STREAMS), mixes=False)


def _headless(reader: ConfigReader) -> Residual:
    return HyperConnections(streams=reader.integer("hc_mult", low=2, high=MAX_STREAMS), head=False)


def _gated(reader: ConfigReader) -> Residual:
    streams = reader.integer("hc_count", low=2, high=MAX_STREAMS)
    return GatedStreams(streams=streams, rank=reader.integer("hc_lowrank", high=MAX_HIDDEN))


def _attention(reader: ConfigReader) -> Residual | None:
    every = reader.integer_or_none("attn_res_block_size", high=MAX_LAYERS)
    return None if every is None else AttentionResiduals(every=every)


def _sourced(reader: ConfigReader) -> Residual:
    """Return Inkling 2's, whose averaged vectors have norms without weights and whose queries are fp32."""
    every = reader.integer("n_layers_per_attn_res_block", high=MAX_LAYERS)
    return AttentionResiduals(every=every, norm=False, format="fp32")


READERS: Mapping[str, Callable[[ConfigReader], Residual | None]] = {
    "hyper": _hyper,
    "independent": _independent,
    "headless": _headless,
    "gated": _gated,
    "attention": _attention,
    "sourced": _sourced,
}
"""`Dialect.residual` -> what reads it."""
