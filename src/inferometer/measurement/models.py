"""The models and chips that published rows name, as specs: by the catalogue, or by equal shape."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from inferometer.blocks.kinds import is_moe
from inferometer.catalog.loader import find_chip, preset_config
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.ingest.schemes import quant_scheme
from inferometer.specs.formats import FORMATS
from inferometer.specs.hardware import ChipSpec
from inferometer.specs.mixers import Mixer
from inferometer.specs.model import ModelSpec


class Shape(NamedTuple):
    """A model that is no preset: a preset's config with some keys changed."""

    preset: str
    changed: dict[str, Any]
    source: str


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "Qwen/Qwen2-7B": Shape(
            "qwen2.5-7b", {}, "Qwen2Config of Qwen/Qwen2-7B-Instruct: hidden 3584, 28 layers, 28 and 4 heads, FFN 18944"
        ),
        "Qwen/Qwen1.5-7B": Shape(
            "qwen2.5-7b",
            {
                "hidden_size": 4096,
                "intermediate_size": 11008,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
                "vocab_size": 151936,
            },
            "Qwen/Qwen1.5-7B README: no GQA, QKV bias; published total 7.72e9 parameters",
        ),
        "Qwen/Qwen2-72B": Shape(
            "qwen2.5-7b",
            {
                "hidden_size": 8192,
                "intermediate_size": 29568,
                "num_hidden_layers": 80,
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
            },
            "config.json of Qwen/Qwen2-72B; published total 72.7e9 parameters",
        ),
        "huggyllama/llama-7b": Shape(
            "llama-2-7b", {}, "LLaMA 7B and Llama 2 7B differ in context length only (arXiv:2307.09288, table 1)"
        ),
        "meta-llama/Llama-2-13b-hf": Shape(
            "llama-2-7b",
            {
                "hidden_size": 5120,
                "intermediate_size": 13824,
                "num_hidden_layers": 40,
                "num_attention_heads": 40,
                "num_key_value_heads": 40,
            },
            "scottlogic-alex/llm-memory-calculator llama-sizes.md, printed from the checkpoint",
        ),
        "BAAI/Aquila-7B": Shape(
            "llama-2-7b",
            {"vocab_size": 100008},
            "inclusionAI/Ling config_aquila.py: Llama's blocks and sizes, vocabulary 100008",
        ),
    }
)
"""Hub id -> equal shape."""

SAME: Mapping[str, str] = MappingProxyType(
    {
        "nvidia/Llama-3.3-70B-Instruct-FP8": "llama-3.1-70b",
        "nvidia/Llama-3.3-70B-Instruct-FP4": "llama-3.1-70b",
        "meta-llama/Llama-3.3-70B-Instruct": "llama-3.1-70b",
        "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
        "nvidia/Llama-3.1-405B-Instruct-FP8": "llama-3.1-405b",
        "nvidia/Llama-3.1-405B-Instruct-FP4": "llama-3.1-405b",
        "nvidia/Qwen3-30B-A3B-FP4": "qwen3-30b-a3b",
        "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
        "nvidia/Qwen3-235B-A22B-FP4": "qwen3-235b-a22b",
        "nvidia/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
        "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
        "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3",
        "nvidia/Llama-4-Maverick-17B-128E-Instruct-NVFP4": "llama-4-maverick-17b-128e-instruct",
        "zai-org/GLM-5": "glm-5-fp8",
    }
)
"""Hub id of a quantised or tuned copy -> the preset it is a copy of; the row says the format."""

CHIPS: Mapping[str, str] = MappingProxyType(
    {
        "A100": "a100-40-sxm",
        "Apple M1 Max 32-Core GPU": "m1-max",
        "Apple M2 Ultra 76-Core GPU": "m2-ultra",
        "Apple M3 Max 40-Core GPU": "m3-max",
        "TPU v6e (Trillium)": "tpu-v6e",
        "RTX PRO 6000 Blackwell": "rtxpro6000-server",
    }
)
"""Hardware as published -> chip, where the catalogue's own names do not say it. An A100 without a memory size is
taken for the 40 GB SXM part: its batch-1 decode fits 1555 GB/s, and 70B on four of them runs out of memory."""

WEIGHT_FORMATS: Mapping[str, str] = MappingProxyType(
    {"f16": "fp16", "fp8_block": "fp8-block", "int4": "int4-g32", "mxfp4 (moe)": ""} | {name: name for name in FORMATS}
)
"""Weight format as published, lower case -> ours. `int4` without a group: 4.5 bits an element, as MLC's q4f16_1.
`mxfp4 (moe)` is the checkpoint's own: experts alone (gpt-oss)."""

FFNS_ALONE = ("nvfp4", "mxfp4")
"""Weight formats of published mixtures of experts whose checkpoints leave attention in bf16: hf_quant_config.json of
nvidia/MiniMax-M2.7-NVFP4 and GLM-5-NVFP4 excludes self_attn; NVIDIA/Model-Optimizer issue 150 has DeepSeek-R1-FP4's in
BF16, ROCm/ATOM pull 527 that of DeepSeek-R1-0528-MXFP4. (DeepSeek-R1-0528-FP4-v2 has o in NVFP4, which rows do not
say.)"""

KV_FORMATS: Mapping[str, str] = MappingProxyType({"f16": "fp16", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"})

QUANTISED_HEAD = ("gpt-fast",)
"""Frameworks whose schemes take the head too (gpt-fast quantize.py replaces every nn.Linear)."""


@lru_cache(maxsize=256)
def find_model(name: str) -> ModelSpec | None:
    """Return the model a row names, as its checkpoint stores it; None where it is not known."""
    shape = SHAPES.get(name)
    try:
        preset = preset_config(shape.preset if shape else SAME.get(name, name))
    except InferometerError:
        return None
    config = preset.config | shape.changed if shape else preset.config
    source = f"{preset.source}; {shape.source}" if shape else preset.source
    return model_from_config(config, name=name, source=source, sidecar=preset.quant_sidecar)


def preset_id(name: str) -> str:
    """Return the preset of the same shape as a model that rows name; the name itself where there is none."""
    try:
        return name if name in SHAPES else preset_config(SAME.get(name, name)).id
    except InferometerError:
        return name


@lru_cache(maxsize=256)
def chip_of(name: str) -> ChipSpec | None:
    """Return the chip a row names; None where the catalogue has none."""
    try:
        return find_chip(CHIPS.get(name, name))
    except InferometerError:
        return None


def _plain(mixer: Mixer) -> Mixer:
    """Return a mixer with every matrix in the model's dtype."""
    return msgspec.structs.replace(mixer, formats={})


@lru_cache(maxsize=1024)
def stored_model(name: str, weights: str, kv: str, *, head: bool) -> ModelSpec:
    """Return the model called `name` with weights in the scheme `weights` and KV in the format `kv`.

    `weights` empty: as stored; `kv` empty: as the model's dtype. `head`: the scheme takes the head too.
    Both names are our own.
    """
    model = find_model(name)
    if model is None:
        raise AssertionError(f"{name} is not known")
    model = quant_scheme(model, weights) if weights else model
    if weights in FFNS_ALONE and is_moe(model):
        model = msgspec.structs.replace(model, mixers=tuple(_plain(mixer) for mixer in model.mixers))
    plain = not weights or weights in ("fp16", "bf16", "fp32")
    return msgspec.structs.replace(
        model,
        kv_format=kv or model.dtype,
        head_format=weights if head and not plain and not model.tied else model.head_format,
    )
