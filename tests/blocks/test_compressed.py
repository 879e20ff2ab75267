"""DeepSeek-V4's attention by hand: weights, caches and reads of window, entries and indexer."""

import msgspec
import pytest
from blocks.made_up import axis, decode, machine, model, prefill
from blocks.test_sparse import of, ops, total

from inferometer.blocks.params import count_params
from inferometer.estimate.estimate import find_candidates, make_problem
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.deployment import Sizes, Workload
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.indexer import Indexer
from inferometer.specs.mixers import Compressed
from inferometer.specs.model import Layer, ModelSpec

FFN = Ffn(width=512)


def indexer(top_k, **more):
    return Indexer(
        **({"heads": 64, "dim": 128, "top_k": top_k, "pool": 4, "k_norm": "none", "key_format": None} | more)
    )


def attention(ratio, *, heads=64, q_rank=1024, groups=8, top_k=512, **more):
    own = indexer(top_k) if ratio == 4 else None
    fields = {"head_dim": 512, "rope_dim": 64, "out_rank": 1024, "window": 128, "overlap": ratio == 4, "indexer": own}
    return Compressed(heads=heads, q_rank=q_rank, out_groups=groups, ratio=ratio, **(fields | more))


def v4(ratios, *, hidden, experts, width, kv_format="fp8", **shape):
    """A model of DeepSeek-V4's blocks, without its residual streams and hashed layers."""
    kinds = sorted(set(ratios))
    return ModelSpec(
        name="v4",
        architecture="made-up",
        hidden=hidden,
        vocab=129280,
        max_context=1 << 20,
        mixers=tuple(attention(ratio, **shape) for ratio in kinds),
        ffns=(Moe(experts=experts, top_k=6, width=width, shared_width=width),),
        layers=tuple(Layer(mixer=kinds.index(ratio), ffn=0) for ratio in ratios),
        tied=False,
        dtype="bf16",
        kv_format=kv_format,
        source="made up by the tests",
    )


FLASH = v4([0, 0, *([4, 128] * 20), 4], hidden=4096, experts=256, width=2048)
PRO = v4(
    [128, 128, *([4, 128] * 29), 4],
    hidden=7168,
    experts=384,
    width=3072,
    heads=128,
    q_rank=1536,
    groups=16,
    top_k=1024,
)


def streams(spec):
    """Return the parameters of four residual streams: two mixings a layer, and one before the head."""
    wide = 4 * spec.hidden
    return len(spec.layers) * 2 * (24 * wide + 24 + 3) + 4 * wide + 4 + 1


@pytest.mark.parametrize(
    ("spec", "published"), [(FLASH, 284_332_230_231), (PRO, 1_572_997_179_491)], ids=["flash", "pro"]
)
def test_both_sizes_have_the_parameters_of_their_class(spec, published):
    """Counted without memory (transformers 5.24.0), where correction biases and hash tables are no parameters."""
    assert count_params(spec).total + streams(spec) == published


@pytest.mark.parametrize(
    ("spec", "kv_format", "each"),
    [(FLASH, "fp8", 3850.25), (FLASH, "bf16", 6880), (PRO, "fp8", 5511.4375), (PRO, "bf16", 9848)],
)
def test_a_token_keeps_the_bytes_published_of_the_layouts(spec, kv_format, each):
    """584 B an entry and 132 B an index key in fp8; 1024 B and 256 B in bf16."""
    stored = msgspec.structs.replace(spec, kv_format=kv_format)
    assert kv_bytes_per_token(stored, windows=False) == each


def test_windows_and_pending_entries_of_a_sequence():
    got = ops(FLASH, decode(1 << 20), batch=1, sizes=Sizes())
    compressed = 3850.25 * (1 << 20)
    assert got.memory.kv_bytes_per_sequence == pytest.approx(compressed + 43 * 128 * 584, rel=1e-12)
    overlapping, plain = 8 * 2 * 1024, 128 * 2 * 512
    keys = 8 * 2 * 256
    assert got.memory.state_bytes_per_sequence == 4 * (21 * (overlapping + keys) + 20 * plain)


def entries(ratio, query, top_k=512):
    """Return the entries that token `query`, counted from one, reads: its window, and those complete of all."""
    window = len([token for token in range(1, query + 1) if token > query - 128])
    complete = [first for first in range(1, query + 1, ratio) if first + ratio - 1 <= query] if ratio else []
    return window + (min(len(complete), top_k) if ratio == 4 else len(complete))


@pytest.mark.parametrize("ratio", [0, 4, 128])
@pytest.mark.parametrize("new", [100, 513, 2500])
def test_a_prompt_s_pairs_are_counted_one_by_one(ratio, new):
    spec = model(attention(ratio, heads=8, q_rank=64), FFN, layers=1)
    pairs = sum(entries(ratio, query) for query in range(1, new + 1))
    got = ops(spec, prefill(new), batch=2)
    assert total(got, "attention-core") == 2 * 4 * 8 * 512 * pairs
    if ratio == 4:
        scored = sum(query // 4 for query in range(1, new + 1))
        assert total(got, "index-scores") == 2 * 2 * 64 * 128 * scored


@pytest.mark.parametrize(("ratio", "context"), [(0, 64), (0, 4096), (4, 1024), (4, 8192), (128, 8192)])
def test_a_decode_reads_window_and_entries(ratio, context):
    mixer = attention(ratio, heads=8, q_rank=64)
    got = ops(model(mixer, FFN, layers=1, kv_format="fp8"), decode(context), batch=4)
    assert total(got, "attention-core") == 4 * 4 * 8 * 512 * entries(ratio, context)
    assert total(got, "attention-core", "kv") == 4 * 584 * entries(ratio, context)


def test_the_mean_over_a_growing_context_is_cut_at_window_and_choice():
    spec, low, more = model(attention(4, heads=8, q_rank=64, top_k=40), FFN, layers=1), 60, 240

    def flops(workload):
        return total(ops(spec, workload), "attention-core")

    each = [flops(decode(context)) for context in range(low, low + more + 1)]
    mean = (sum(each) - (each[0] + each[-1]) / 2) / more
    assert flops(Workload(isl=low, osl=more)) == pytest.approx(mean, rel=1e-12)


def test_a_step_s_arithmetic_is_that_of_the_published_formula():
    """Context part: 4 N D for 128 in each layer, C/4 or C/128 entries, and 2 n d for C/4 keys (window layers: 128)."""
    context = 4096
    got = ops(FLASH, decode(context), batch=1)
    work = sum(op.flops * op.layers * op.share for op in got.ops if op.kind == "attention")
    read = 2 * 128 + 21 * (128 + min(context / 4, 512)) + 20 * (128 + context / 128)
    assert work == 4 * 64 * 512 * read + 21 * 2 * 64 * 128 * context / 4
    gemms = sum(op.flops * op.layers for op in got.ops if op.kind in ("gemm", "grouped-gemm"))
    assert (gemms + work) * 32 == pytest.approx(0.932e12, rel=2e-2)


def test_what_ranks_hold_whole_is_issued_by_each():
    spec = model(attention(4), FFN, layers=1)
    one, four = ops(spec, decode(4096)), ops(spec, decode(4096), sizes=Sizes(tp=4), axes=(axis(4),))
    whole = ("q_a+kv+compress_kv+compress_gate", "index_q", "index-scores")
    for name in whole:
        assert total(one, name) == total(four, name)
        assert of(four, name)[0].replication == 4
    for name in ("q_b", "out_a", "out_b", "attention-core"):
        assert total(one, name) == 4 * total(four, name)
        assert of(four, name)[0].replication == 1


def test_tp_splits_output_groups():
    problem = make_problem(model(attention(4), FFN), machine(axis(16)), decode(100), backend="roofline")
    _, rules = find_candidates(problem, {"tp": 16})
    broken = {rule.name: rule.advice for rule in rules if rule.broken.all()}
    assert broken["tp-exceeds-heads"] == "TP must be at most 8, the output groups"


SHARED = {"q_rank": 64, "heads": 8, "gated": False, "overlap": False, "indexer": None}


def test_entries_and_keys_of_a_layer_before_are_read_and_not_kept():
    """As DeepSeek-V4.1 has them: one layer compresses, others read its entries, and some its index keys."""
    own = attention(1, **SHARED | {"indexer": indexer(512, heads=32, pool=1), "index_keys": "latent"})
    reads = attention(1, **SHARED | {"entries_shared": True})
    picks = attention(
        1,
        **SHARED
        | {"entries_shared": True, "indexer": indexer(512, heads=32, pool=1, among=1024), "index_keys": "shared"},
    )
    count = [count_params(model(mixer, FFN, layers=1)).total for mixer in (attention(0, **SHARED), reads, picks, own)]
    queries = 32 * 128 * 64 + 32 * 256
    assert count[1] == count[0]
    assert count[2] - count[0] == queries
    assert count[3] - count[0] == 512 * 256 + 512 + queries + 128 * 512
    nvfp4 = [kv_bytes_per_token(model(m, FFN, layers=1, kv_format="nvfp4"), windows=False) for m in (own, reads, picks)]
    assert nvfp4 == [256 + 32 + 64 + 4, 0, 0]
    assert total(ops(model(picks, FFN, layers=1), decode(4096), batch=1), "index-scores") == 2 * 32 * 128 * 1024
    assert total(ops(model(reads, FFN, layers=1), decode(4096), batch=1), "attention-core") == 4 * 8 * 512 * (
        128 + 4096
    )


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="need a ratio"):
        attention(0, indexer=indexer(4))
    with pytest.raises(ValueError, match="must divide"):
        attention(0, groups=7)
