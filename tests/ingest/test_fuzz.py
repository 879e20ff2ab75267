"""Whatever a config holds, the answer is a model or one InferometerError."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ingest.families import FAMILIES
from ingest.samples import MODELS, TINY

from inferometer.blocks.params import count_params
from inferometer.catalog.presets import preset_config
from inferometer.errors import InferometerError
from inferometer.ingest.config import load_model_path, model_from_config
from inferometer.ingest.known_keys import REFUSED

CONFIGS = [(preset_config(name).config, preset_config(name).quant_sidecar) for name in MODELS]
CONFIGS += [(config, None) for config in TINY.values()]
CONFIGS += [(row["config"], None) for row in FAMILIES]
QUANT = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head", "re:.*gate$"],
    "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}}},
}
SIDECAR = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": {"quant_algo": "FP8"}}}}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 200)
    | st.integers()
    | st.sampled_from([10**30, 10**400, -(2**63), 1e308, float("nan"), float("inf")])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["llama", "fp8", "awq", "modelopt", "Linear", "re:.*", "re:(", "*", "greedy", "float16"])
)
junk = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner))


def places(value, path=()):
    """Return the path of every node below `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, item in list(items)[:40]:
        found += [(*path, key), *places(item, (*path, key))]
    return found


def mutate(data, value):
    """Delete or replace a node of `value` at random."""
    path = data.draw(st.sampled_from(places(value)))
    for key in path[:-1]:
        value = value[key]
    if data.draw(st.booleans()):
        del value[path[-1]]
    else:
        value[path[-1]] = data.draw(junk)


def answer(config, sidecar):
    """Return the model, or None where it is refused in one line."""
    try:
        model = model_from_config(config, name="fuzzed", source="test", sidecar=sidecar)
    except InferometerError as error:
        said = str(error)
    else:
        assert all(key in config or "." in key for key in model.unknown_keys)
        return model
    assert "\n" not in said
    assert len(said) < 2000
    return None


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_a_mutated_config_is_a_model_or_refused(data):
    config, sidecar = copy.deepcopy(data.draw(st.sampled_from(CONFIGS)))
    if data.draw(st.booleans()):
        config["quantization_config"] = copy.deepcopy(QUANT)
    if data.draw(st.booleans()):
        sidecar = copy.deepcopy(SIDECAR)
    for _ in range(data.draw(st.integers(1, 4))):
        mutate(data, data.draw(st.sampled_from([part for part in (config, sidecar) if part and places(part)])))
    model = answer(config, sidecar)
    if model is not None and len(model.layers) < 200:
        assert count_params(model).total > 0


@settings(max_examples=200, deadline=None)
@given(junk, junk)
def test_junk_is_refused(config, sidecar):
    answer(config, sidecar)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted({*TINY, *REFUSED})), st.dictionaries(st.sampled_from(sorted(TINY["kimi_k2"])), junk))
def test_a_family_with_junk_values_is_a_model_or_refused(model_type, values):
    answer(values | {"model_type": model_type}, None)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | junk.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_on_disk_are_a_model_or_refused(tmp_path, data):
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(InferometerError):
        load_model_path(path)
