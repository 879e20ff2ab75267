"""The engines that published rows ran: how each admits requests, what it takes beside the model, whose kernels it runs.

Rows name a framework in many ways; an engine is known by the start of its name.
"""

from collections.abc import Mapping
from typing import NamedTuple


class EngineLoop(NamedTuple):
    """How an engine admits requests, and what it takes before and after the model."""

    front_s: float
    """To tokenise, schedule and stream."""
    reserves_all: bool
    """A request is admitted only where its KV fits at full length; else by what it holds now."""
    kernels: str
    """Engine of the catalogue whose kernels it runs."""
    source: str


ENGINES: Mapping[str, EngineLoop] = {
    "vllm": EngineLoop(0.022, reserves_all=False, kernels="vllm", source="TTFT of published runs, up to 16 in flight"),
    "sglang": EngineLoop(0.09, reserves_all=False, kernels="sglang", source="same"),
    "atom": EngineLoop(0.033, reserves_all=False, kernels="vllm", source="same"),
    "trt": EngineLoop(
        0.053, reserves_all=True, kernels="trtllm", source="same; TensorRT-LLM guaranteed_no_evict scheduler"
    ),
}
"""Start of the framework's name, lower case -> its loop. Others run as vLLM."""


def engine_loop_name(framework: str) -> str:
    """Return whose loop a framework runs, as published: a key of ENGINES.

    >>> engine_loop_name("TensorRT-LLM"), engine_loop_name("vllm-tpu"), engine_loop_name("")
    ('trt', 'vllm', 'vllm')
    """
    name = framework.lower().replace("tensorrt-llm", "trt").replace("dynamo-", "").replace("mori-", "")
    return next((start for start in ENGINES if name.startswith(start)), "vllm")


def engine_loop(framework: str) -> EngineLoop:
    """Return the loop of a framework as published."""
    return ENGINES[engine_loop_name(framework)]
