import pytest

from inferometer.catalog.engines import CHOICES, engine_from_table, find_engine, load_engines
from inferometer.errors import InferometerError, UnknownNameError


def test_ideal_forbids_nothing():
    ideal = find_engine("ideal")
    assert (ideal.id, ideal.allows, ideal.partition) == ("ideal", {}, "even")
    assert not any((ideal.whole_experts, ideal.block_aligned, ideal.dcp_within_replication, ideal.ep_spans_stage))


def test_vllm_absorbs_in_decode_and_expands_in_prefill():
    vllm = find_engine("vllm")
    assert vllm.allows["mla.prefill"] == ("expanded",)
    assert vllm.allows["mla.decode"] == ("absorbed",)
    assert vllm.allows["logits"] == ("gather",)
    assert vllm.partition == "vllm"
    assert vllm.whole_experts
    assert vllm.block_aligned
    assert vllm.dcp_within_replication
    assert vllm.ep_spans_stage


def test_every_rule_has_its_source():
    for engine in load_engines().values():
        assert set(engine.allows) <= set(engine.sources)
        assert {key.partition(".")[0] for key in engine.allows} <= set(CHOICES)


@pytest.mark.parametrize("name", ["vllm@0.23", "vllm@0.240", "vllm@1", "sglang", "ideal@2", "", "@", "vllm@0"])
def test_an_unknown_version_is_not_guessed(name):
    with pytest.raises(UnknownNameError):
        find_engine(name)


@pytest.mark.parametrize(
    "change",
    [
        {"allows": {"mla": ["absorbed"]}},
        {"allows": {"mla": []}, "sources": {"mla": "s"}},
        {"allows": {"mla": ["folded"]}, "sources": {"mla": "s"}},
        {"allows": {"mla.mixed": ["absorbed"]}, "sources": {"mla.mixed": "s"}},
        {"allows": {"sampler": ["greedy"]}, "sources": {"sampler": "s"}},
        {"block_aligned": True},
        {"partition": "odd"},
    ],
)
def test_a_rule_that_is_unsourced_or_unheard_of_is_refused(change):
    with pytest.raises(InferometerError):
        engine_from_table({"name": "e", "version": "1"} | change)
