"""Configs that wrap a language model: `text_config` is its config, other objects are towers before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferometer.errors import unknown_name
from inferometer.ingest.dialects import ALIASES, DIALECTS
from inferometer.ingest.known_keys import is_irrelevant
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.towers import tower
from inferometer.specs.model import Tower

TEXT = "text_config"
INHERITED = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")
"""Fields that may stand beside `text_config` instead of in it."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One family of wrappers."""

    text: str | None = None
    """Dialect of the language model; None: as its own `model_type` says."""
    towers: Mapping[str, str] = field(default_factory=dict)
    """Object of the config -> kind of tower that is counted exactly."""
    inert: tuple[str, ...] = ()
    flat: bool = False
    """The fields of the language model stand beside the towers, where there is no `text_config`."""


_IMAGE_TOKENS = ("boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image")
_LLAVA = (
    *("image_token_index", "image_seq_length", "image_grid_pinpoints", "ignore_index", "vision_feature_layer"),
    *("vision_feature_select_strategy", "projector_hidden_act", "multimodal_projector_bias", "spatial_merge_size"),
    *("use_image_newline_parameter",),
)

WRAPPERS: dict[str, Wrapper] = {
    "gemma3": Wrapper(text="gemma3_text", towers={"vision_config": "siglip"}, inert=_IMAGE_TOKENS),
    "gemma4": Wrapper(
        text="gemma4_text",
        towers={"vision_config": "gemma4_vision"},
        inert=(*_IMAGE_TOKENS, "eoa_token_index", "boa_token_index", "vision_soft_tokens_per_image"),
    ),
    "qwen2_5_vl": Wrapper(text="qwen2", towers={"vision_config": "qwen2_5_vl"}, flat=True),
    "qwen3_vl": Wrapper(text="qwen3", towers={"vision_config": "qwen3_vl"}),
    "qwen3_vl_moe": Wrapper(text="qwen3_moe", towers={"vision_config": "qwen3_vl"}),
    "llama4": Wrapper(text="llama4_text", inert=("boi_token_index", "eoi_token_index", "image_token_index")),
    "llava": Wrapper(inert=_LLAVA),
    "llava_next": Wrapper(inert=_LLAVA),
    "mistral3": Wrapper(inert=_LLAVA),
    "voxtral": Wrapper(text="llama", inert=("projector_hidden_act", "audio_token_id")),
    "kimi_k25": Wrapper(
        text="kimi_k2",
        towers={"vision_config": "moonvit"},
        inert=("ignore_index", "media_placeholder_token_id", "use_unified_vision_chunk", "video_placeholder"),
    ),
}


def text_config(config: Mapping[str, object], wrapper: Wrapper, where: str) -> tuple[Mapping[str, object], str]:
    """Return (the config of the language model, the name of its dialect).

    Raises InferometerError where there is none, UnknownNameError where its family is not understood.
    """
    outer = ConfigReader(values=config, where=where)
    if wrapper.flat and TEXT not in config:
        return {key: value for key, value in config.items() if key not in wrapper.towers}, str(wrapper.text)
    inner = outer.mapping(TEXT)
    if inner is None:
        raise outer.error(TEXT, "is missing or null")
    name = wrapper.text
    if name is None:
        stated = ConfigReader(values=inner, where=f"{where}: {TEXT}").text("model_type")
        if stated not in DIALECTS:
            raise unknown_name("model_type", str(stated)[:80], DIALECTS)
        name = stated
    passed_on = {key: config[key] for key in INHERITED if key in config}
    return {
        **passed_on,
        **{key: value for key, value in inner.items() if value is not None or key not in passed_on},
    }, name


@dataclass(frozen=True, slots=True)
class Beside:
    """What a wrapper holds beside its language model."""

    towers: tuple[Tower, ...] = ()
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


def beside(config: Mapping[str, object], wrapper: Wrapper, *, hidden: int, where: str) -> Beside:
    """Return the towers that are understood, and say which are not counted.

    Raises InferometerError for a tower whose shapes are missing or out of range.
    """
    outer = ConfigReader(values=config, where=where, aliases=ALIASES)
    outer.skip(TEXT, *INHERITED, *wrapper.inert)
    if TEXT not in config:
        outer.skip(*(key for key in config if key not in wrapper.towers))
    towers: list[Tower] = []
    unknown: list[str] = []
    assumed: list[str] = []
    for key, kind in wrapper.towers.items():
        values = outer.mapping(key)
        if values is None:
            assumed.append(f"{key} is absent: no parameters of a tower are counted.")
            continue
        inner = ConfigReader(values=values, where=f"{where}: {key}", defaults={"num_channels": 3, "in_channels": 3})
        towers.append(tower(key.removesuffix("_config"), kind, inner, hidden))
        unknown += [f"{key}.{name}" for name in inner.unknown() if not is_irrelevant(name)]
        assumed += inner.said(key)
    no_tower = {key for key, value in config.items() if value is None and str(key).endswith("_config")}
    left = [name for name in outer.unknown() if not is_irrelevant(name) and name not in no_tower]
    assumed += [f"The parameters of {name} are not counted." for name in left if isinstance(config[name], Mapping)]
    if not wrapper.towers and not any(isinstance(config[name], Mapping) for name in left):
        assumed.append("The config describes no tower before the language model: none is counted.")
    return Beside(towers=tuple(towers), unknown=(*left, *unknown), assumed=tuple(assumed))
