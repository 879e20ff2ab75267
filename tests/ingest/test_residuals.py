"""Residual schemes and memory tables as configs spell them."""

import pytest

from inferometer.errors import InferometerError
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.lookups import lookups
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.residuals import residual
from inferometer.specs.residual import AttentionResiduals, GatedStreams, HyperConnections


def reader(**values):
    return ConfigReader(values=values, where="made-up")


@pytest.mark.parametrize(
    ("scheme", "values", "wanted"),
    [
        (None, {}, None),
        ("hyper", {"hc_mult": 4}, HyperConnections(streams=4)),
        ("independent", {"hc_mult": 4}, HyperConnections(streams=4, mixes=False)),
        ("headless", {"hc_mult": 4}, HyperConnections(streams=4, head=False)),
        ("gated", {"hc_count": 4, "hc_lowrank": 320}, GatedStreams(streams=4, rank=320)),
        ("attention", {"attn_res_block_size": 12}, AttentionResiduals(every=12)),
        ("attention", {"attn_res_block_size": None}, None),
    ],
)
def test_a_scheme_is_read_from_its_fields(scheme, values, wanted):
    assert residual(reader(**values), Dialect(residual=scheme)) == wanted


def test_one_stream_is_no_scheme():
    with pytest.raises(InferometerError, match="hc_mult is 1; allowed: an integer from 2"):
        residual(reader(hc_mult=1), Dialect(residual="hyper"))


QWEN = {
    "ple_layer_ids": [2],
    "hc_count": 4,
    "heads_per_ngram": 8,
    "ngram_size": 3,
    "ple_embed_dim": 2560,
    "ngram_vocab_size_base": 20_000_000,
    "make_ngram_vocab_size_divisible_by": 128,
    "ple_conv_kernel_size": 4,
}


def test_qwen_s_table_is_sized_by_sixteen_primes():
    """The released table is [320,001,536 x 160]; layers are counted from one."""
    (placed,) = lookups(reader(**QWEN), Dialect(lookups="ple"), hidden=2560, layers=48)
    assert (placed.layer, placed.block.rows, placed.block.width, placed.block.reads) == (1, 320_001_536, 160, 16)
    assert (placed.block.outputs, placed.block.place) == (5, "host")


ENGRAM = {
    "engram_layer_ids": [1, 14],
    "engram_num_embeddings": [384_006_168, 384_016_682],
    "engram_max_ngram_size": 4,
    "engram_n_heads": 8,
    "engram_head_dim": 256,
    "hc_mult": 4,
}


def test_engram_has_a_table_for_each_of_its_layers():
    """196.61e9 parameters of 264 bytes a row of 256, 202.8 GB; a token reads 24 rows."""
    placed = lookups(reader(**ENGRAM), Dialect(lookups="engram"), hidden=5120, layers=40)
    assert [each.layer for each in placed] == [1, 14]
    rows = [each.block.rows for each in placed]
    assert sum(rows) * 256 == pytest.approx(196.61e9, rel=1e-4)
    assert sum(rows) * 264 == pytest.approx(202.8e9, rel=1e-3)
    assert {(each.block.reads, each.block.formats["table"]) for each in placed} == {(24, "mxfp8")}


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        ("engram", ENGRAM | {"engram_num_embeddings": [1]}, "engram_num_embeddings"),
        ("engram", ENGRAM | {"engram_layer_ids": [1, 40]}, "num_hidden_layers is 40, but a memory table stands before"),
        ("ple", QWEN | {"ple_embed_dim": 2561}, "ple_embed_dim is 2561; allowed: a multiple of the 16 rows"),
    ],
)
def test_tables_that_cannot_be_are_refused(kind, values, problem):
    with pytest.raises(InferometerError, match=problem):
        lookups(reader(**values), Dialect(lookups=kind), hidden=5120, layers=40)
