"""Which kernels engines run: every name is one that was timed or is lowered, every statement has its source."""

import pytest

from inferometer import estimate
from inferometer.catalog import engine_kernels
from inferometer.catalog.engine_kernels import kernels_of, load_kernels
from inferometer.cost.calibrated import load_fits
from inferometer.errors import InferometerError
from inferometer.specs.deployment import NO_KERNELS
from inferometer.specs.formats import FORMATS


def test_every_family_was_timed():
    fits = load_fits().generations.values()
    timed = {name for own in fits for table in (*own.decode.values(), *own.grouped.values()) for name in table}
    for kernels in load_kernels().values():
        assert set(kernels.families) <= timed


def test_every_launch_is_of_an_op_that_is_lowered():
    rows = [
        estimate(model, "h200 8x1", sizes="TP=8", batch=8, quant=quant, backend="calibrated")
        for model, quant in (("llama-3.1-70b", "fp8"), ("deepseek-v3", None), ("qwen3-235b-a22b", "nvfp4"))
    ]
    lowered = {op.name for row in rows for op in row.estimate.ops}
    for kernels in load_kernels().values():
        assert set(kernels.reduced) <= lowered
        for name in kernels.launches:
            op, _, stored = name.partition("@")
            assert op in lowered, name
            assert not stored or stored in FORMATS


def test_an_engine_nobody_wrote_down_has_none_in_particular():
    assert kernels_of("ideal") == kernels_of("llama.cpp") == NO_KERNELS


def test_a_statement_without_source_is_refused(monkeypatch):
    monkeypatch.setattr(engine_kernels, "read_data", lambda _: '[[engine]]\nname = "x"\nfamilies = ["flash"]\n')
    load_kernels.cache_clear()
    with pytest.raises(InferometerError, match="x: no source for families"):
        load_kernels()
    load_kernels.cache_clear()


def test_engines_are_priced_by_their_kernels():
    """An fp8 Llama on Hopper: TensorRT-LLM launches fewer kernels than vLLM, and its attention starts sooner."""
    steps = {
        engine: estimate(
            "llama-3.1-70b", "h200 2x1", sizes="TP=2", batch=16, quant="fp8", engine=engine, backend="calibrated"
        ).estimate.step_s
        for engine in ("vllm", "trtllm", "ideal")
    }
    assert steps["trtllm"] < steps["ideal"]
    assert steps["trtllm"] < steps["vllm"]
