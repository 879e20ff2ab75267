"""Memory rules of engines and named schemes: sources, versions, formats."""

import pytest

from inferometer.catalog.engine_memory import find_engine_memory, load_engine_memory, memory_from_table
from inferometer.catalog.quant_schemes import find_scheme, load_schemes
from inferometer.errors import InferometerError, UnknownNameError
from inferometer.specs.formats import FORMATS, GGML_BLOCKS, bytes_per_element, find_format


def test_every_rule_has_a_source():
    with pytest.raises(InferometerError, match="no source for share"):
        memory_from_table({"name": "x", "share": 0.9})


def test_what_is_assumed_is_a_rule():
    for rows in load_engine_memory().values():
        for row in rows:
            assert set(row.assumed) <= set(row.__struct_fields__)


def test_versions_only_grow():
    for rows in load_engine_memory().values():
        assert [row.since for row in rows] == sorted(
            (row.since for row in rows), key=lambda s: [int(n) for n in s.split(".")] if s else []
        )


@pytest.mark.parametrize(
    ("asked", "since"), [("vllm@0.11.2", "0.11"), ("vllm@0.20", "0.19"), ("vllm@0.24", "0.21"), ("vllm@1.0", "0.29")]
)
def test_the_newest_row_that_is_old_enough(asked, since):
    assert find_engine_memory(asked).since == since


def test_a_later_row_keeps_what_it_does_not_say():
    old, new = find_engine_memory("vllm@0.11"), find_engine_memory("vllm@0.26")
    assert (new.block_size, new.defaults, new.pads) == (old.block_size, old.defaults, old.pads)
    assert (old.in_flight_passes, new.in_flight_passes) == (1, 2)
    assert set(old.sources) <= set(new.sources)


def test_unknown_engines_are_refused_with_the_closest():
    with pytest.raises(UnknownNameError, match=r"did you mean 'llama\.cpp'"):
        find_engine_memory("llamacpp")


def test_schemes_name_formats_and_sources():
    for scheme in load_schemes().values():
        assert scheme.source
        assert scheme.format in FORMATS


def test_a_format_is_the_scheme_of_every_linear_weight():
    assert find_scheme("mxfp4").format == "mxfp4"
    assert find_scheme("mxfp4").rules == ()
    with pytest.raises(UnknownNameError, match="did you mean 'q4_k_m'"):
        find_scheme("q4_km")


@pytest.mark.parametrize("name", GGML_BLOCKS)
def test_ggml_blocks_take_their_bytes(name):
    _, elements, size = GGML_BLOCKS[name]
    assert elements * bytes_per_element(find_format(name)) == size


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("nvfp4", 0.5625),
        ("mxfp4", 0.53125),
        ("mxfp8", 1.03125),
        ("int4-g128", 0.515625),
        ("bitnet", 0.25),
        ("q8_0", 1.0625),
    ],
)
def test_bytes_of_a_parameter(name, each):
    assert bytes_per_element(find_format(name)) == each
