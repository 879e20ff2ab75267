"""Configs that transformers has saved again: what it moved goes back under the fields of the makers' own configs.

Rules are of huggingface/transformers 5.24.0 (`src/transformers/models/<model_type>/configuration_<model_type>.py`).
"""

from collections.abc import Callable, Mapping

from inferometer.ingest.bounds import MAX_LAYERS
from inferometer.ingest.reader import ConfigReader

_LAYERS = "per_layer_config"
_GLOBAL = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
"""Field of a layer -> that of all layers without a window."""

_RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""Word of a layer -> its ratio, where `compress_rates` does not say."""


def as_released(config: Mapping[str, object], family: str, where: str) -> Mapping[str, object]:
    """Return the config with what transformers moved back in its place.

    Raises InferometerError where what it moved cannot be told apart by the fields of the makers' own configs.
    """
    move = _MOVES.get(family)
    return config if move is None else move(config, ConfigReader(values=config, where=where))


def _gemma4(config: Mapping[str, object], reader: ConfigReader) -> Mapping[str, object]:
    """Sizes of layers without a window stand in an object a layer, under the layer's number."""
    listed = reader.mapping(_LAYERS)
    if listed is None:
        return config
    words = reader.texts("layer_types")
    found = {_index(key, reader): _sizes(key, value, reader) for key, value in listed.items()}
    plain = {name: config.get(name) for name in _GLOBAL}
    full = [layer for layer, word in enumerate(words) if word == "full_attention"] if words else list(found)
    other = [layer for layer in found if layer not in full]
    apart = [{**plain, **found.get(layer, {})} for layer in full]
    if any({**plain, **found[layer]} != plain for layer in other) or any(sizes != apart[0] for sizes in apart):
        raise reader.error(_LAYERS, "tells layers apart otherwise than by their window, which is not understood")
    sizes = apart[0] if apart else plain
    left = {key: value for key, value in config.items() if key != _LAYERS}
    return left | {_GLOBAL[name]: value for name, value in sizes.items() if value is not None}


def _index(key: str, reader: ConfigReader) -> int:
    if not key.isdecimal() or int(key[:9]) >= MAX_LAYERS:
        raise reader.error(_LAYERS, f"has the layer {key[:40]!r}; allowed: the number of a layer")
    return int(key)


def _sizes(key: str, value: object, reader: ConfigReader) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not set(value) <= set(_GLOBAL):
        raise reader.wrong(f"{_LAYERS}.{key}", value, f"an object of {' and '.join(_GLOBAL)}")
    return value


def _deepseek_v4(config: Mapping[str, object], reader: ConfigReader) -> Mapping[str, object]:
    """Ratios and hashed layers stand in words, a word a layer."""
    words = reader.texts("layer_types")
    if config.get("compress_ratios") is not None or not words:
        return config
    rates = _RATIOS | dict(reader.mapping("compress_rates") or {})
    for word in words:
        if word not in _RATIOS:
            raise reader.wrong("layer_types", word, ", ".join(_RATIOS))
    moved = {"layer_types", "compress_rates", "mlp_layer_types", "compress_ratios"}
    left = {key: value for key, value in config.items() if key not in moved}
    hashed = [word == "hash_moe" for word in reader.texts("mlp_layer_types")]
    if hashed != sorted(hashed, reverse=True):
        raise reader.error("mlp_layer_types", "has hashed layers behind others, which is not understood")
    count = {"num_hash_layers": sum(hashed)} if hashed else {}
    return left | count | {"compress_ratios": [rates[word] for word in words]}


_MOVES: Mapping[str, Callable[[Mapping[str, object], ConfigReader], Mapping[str, object]]] = {
    "gemma4_text": _gemma4,
    "deepseek_v4": _deepseek_v4,
}
