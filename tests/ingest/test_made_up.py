"""Small made-up configs of every family that `transformers` has a class for, counted by that class.

Odd sizes, flags on and off, and keys left out to their class defaults, several a family. The counts are written by
`scripts/count_with_transformers.py`, which needs transformers; these tests do not.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from inferometer.blocks.params import count_params
from inferometer.errors import InferometerError
from inferometer.ingest.config import model_from_config
from inferometer.ingest.dialects import DIALECTS

VERSIONS, *ROWS = (json.loads(line) for line in (Path(__file__).parent / "made_up.jsonl").read_text().splitlines())
FAMILIES = Counter(row["config"]["model_type"] for row in ROWS)
NOT_COUNTED = {
    # no class in transformers: modelling code beside the checkpoints
    *("baichuan", "internlm", "internlm2", "orion", "qwen", "mimo", "deepseek", "phi-msft", "phi3_v", "chatglm"),
    *("bailing_moe", "bailing_moe_v2_5", "hunyuan", "nemotron-nas", "deci", "molmo"),
    *("longcat_flash_ngram", "kimi_k3_text"),
    "step3p5",  # its class stands only behind a vision tower
    "mimo_v2",
    "mistral_large4_text",  # no class of its own with a head: see test_sparse
    "minimax_m3",  # its class reads another spelling
    *("deepseek_v4", "deepseek_ref"),  # its class has residual streams, which are refused
    "glm5_next_text",  # its class stands only behind a vision tower: see test_late
    "deepseek_v41_text",  # no class: see test_late
    *("inkling2_text", "inkling2_loop_text"),  # their first layer lacks a query that ours has: see test_late
    "mimo_v2_flash",  # its class does not read the keys of the checkpoint's config
}


def model(row):
    return model_from_config(row["config"], name="made-up", source="test")


@pytest.mark.parametrize("family", FAMILIES)
def test_made_up_models_have_the_parameters_that_transformers_counts(family):
    for row in ROWS:
        if row["config"]["model_type"] == family:
            wanted = row["parameters"] + row.get("correction_biases", 0)
            assert count_params(model(row)).total == wanted, row["config"]


@pytest.mark.parametrize("family", FAMILIES)
def test_made_up_models_are_windowed_on_the_layers_that_transformers_windows(family):
    for row in ROWS:
        if row["config"]["model_type"] == family and "windowed" in row:
            made = model(row)
            mixers = [made.mixers[layer.mixer] for layer in made.layers]
            assert [bool(mixer.window or getattr(mixer, "chunk", None)) for mixer in mixers] == row["windowed"], row[
                "config"
            ]


def test_every_family_is_counted_several_times_or_said_not_to_be():
    assert set(FAMILIES) == set(DIALECTS) - NOT_COUNTED
    assert min(FAMILIES.values()) >= 2


def test_the_versions_that_counted_are_known():
    assert set(VERSIONS) == {"transformers", "torch"}


def refusal(family, **changes):
    """Return the error for the first made-up config of a family with keys changed."""
    config = next(row["config"] for row in ROWS if row["config"]["model_type"] == family) | changes
    with pytest.raises(InferometerError) as caught:
        model({"config": {key: value for key, value in config.items() if value is not ...}})
    return str(caught.value)


@pytest.mark.parametrize(
    ("family", "changes", "problem"),
    [
        ("ernie4_5_moe", {"use_bias": True}, "use_bias is true; allowed: false"),
        ("smollm3", {"use_sliding_window": True}, "use_sliding_window is true; allowed: false"),
        ("mllama_text_model", {"tie_word_embeddings": True}, "tie_word_embeddings is true; allowed: false"),
        ("mistral", {"num_key_value_heads": ...}, "num_key_value_heads is 8; allowed: a divisor of"),
    ],
)
def test_what_the_class_would_build_otherwise_is_refused(family, changes, problem):
    assert problem in refusal(family, **changes)


def test_norms_of_q_and_k_have_biases_in_phi():
    row = next(r for r in ROWS if r["config"]["model_type"] == "phi" and r["config"].get("qk_layernorm"))
    assert model(row).mixers[0].qk_norm_bias
