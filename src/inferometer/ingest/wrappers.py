"""Configs that wrap a language model: `text_config` is its config, other objects are towers before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferometer.errors import unknown_name
from inferometer.ingest.dialects import ALIASES, DIALECTS
from inferometer.ingest.known_keys import is_irrelevant
from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.towers import KINDS, TowerRule, kind_of, tower
from inferometer.specs.tower import Tower

TEXT = "text_config"
INHERITED = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")
"""Fields that may stand beside `text_config` instead of in it."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One family of wrappers."""

    text: str | None = None
    """Dialect of the language model; None: as its own `model_type` says."""
    towers: Mapping[str, TowerRule] = field(default_factory=dict)
    """Object of the config -> the tower it describes."""
    inert: tuple[str, ...] = ()
    flat: bool = False
    """The fields of the language model stand beside the towers, where there is no `text_config`."""


_IMAGE_TOKENS = ("boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image")
_LLAVA = (
    *("image_token_index", "image_seq_length", "ignore_index", "projector_hidden_act", "use_image_newline_parameter"),
    *("vision_feature_layer", "vision_feature_select_strategy", "multimodal_projector_bias", "spatial_merge_size"),
    "image_grid_pinpoints",
)
_QWEN_TOKENS = ("vision_start_token_id", "vision_end_token_id", "vision_token_id")

WRAPPERS: dict[str, Wrapper] = {
    "gemma3": Wrapper("gemma3_text", {"vision_config": TowerRule("siglip", "gemma3")}, inert=_IMAGE_TOKENS),
    "gemma4": Wrapper(
        "gemma4_text",
        {"vision_config": TowerRule("gemma4_vision")},
        inert=(*_IMAGE_TOKENS, "eoa_token_index", "boa_token_index", "vision_soft_tokens_per_image"),
    ),
    "qwen2_vl": Wrapper("qwen2", {"vision_config": TowerRule("qwen2_vl")}, flat=True, inert=_QWEN_TOKENS),
    "qwen2_5_vl": Wrapper("qwen2", {"vision_config": TowerRule("qwen2_5_vl")}, flat=True),
    "qwen3_vl": Wrapper("qwen3", {"vision_config": TowerRule("qwen3_vl")}),
    "qwen3_vl_moe": Wrapper("qwen3_moe", {"vision_config": TowerRule("qwen3_vl")}),
    "qwen3_5": Wrapper("qwen3_5_text", {"vision_config": TowerRule("qwen3_vl")}, inert=("language_model_only",)),
    "qwen3_5_moe": Wrapper(
        "qwen3_5_moe_text", {"vision_config": TowerRule("qwen3_vl")}, inert=("language_model_only",)
    ),
    "qwen4_exp": Wrapper("qwen4_exp_text", {"vision_config": TowerRule("qwen3_vl")}, inert=("language_model_only",)),
    "glm5_next": Wrapper("glm5_next_text", {"vision_config": TowerRule("glm5_next")}, inert=("vision_start_token_id",)),
    "deepseek_v41": Wrapper("deepseek_v41_text", {"vision_config": TowerRule("deepseek_vit")}),
    "inkling2": Wrapper("inkling2_text"),
    "inkling2_loop": Wrapper("inkling2_loop_text"),
    "mistral_large4": Wrapper("mistral_large4_text"),
    "dots3_note": Wrapper("dots3_note_text"),
    "llama4": Wrapper(
        "llama4_text",
        {"vision_config": TowerRule("llama4", by_class=True)},
        inert=("boi_token_index", "eoi_token_index", "image_token_index"),
    ),
    "mllama": Wrapper("mllama_text_model", {"vision_config": TowerRule("mllama")}, inert=("image_token_index",)),
    "llava": Wrapper(towers={"vision_config": TowerRule("clip", "llava")}, inert=_LLAVA),
    "llava_next": Wrapper(towers={"vision_config": TowerRule("clip", "llava_next")}, inert=_LLAVA),
    "mistral3": Wrapper(towers={"vision_config": TowerRule("pixtral", "mistral3")}, inert=_LLAVA),
    "voxtral": Wrapper(
        "llama",
        {"audio_config": TowerRule("voxtral_encoder")},
        inert=("projector_hidden_act", "audio_token_id", "hidden_size"),
    ),
    "phi3_v": Wrapper("phi3_v", {"img_processor": TowerRule("phi3_clip")}, flat=True),
    "inkling_mm_model": Wrapper("inkling_text"),
    "step3p7": Wrapper("step3p5", inert=("projector_bias", "understand_projector_stride")),
    "kimi_k3": Wrapper(
        "kimi_k3_text", inert=("ignore_index", "image_placeholder", "media_placeholder_token_id", "bos_token_id")
    ),
    "kimi_k25": Wrapper(
        "kimi_k2",
        {"vision_config": TowerRule("moonvit")},
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
    read = [_read(outer, key, rule, hidden) for key, rule in wrapper.towers.items()]
    no_tower = {key for key, value in config.items() if value is None and str(key).endswith("_config")}
    left = [name for name in outer.unknown() if not is_irrelevant(name) and name not in no_tower]
    uncounted = tuple(
        f"The parameters of {name} are not counted." for name in left if isinstance(config[name], Mapping)
    )
    return Beside(
        towers=tuple(tower for one in read for tower in one.towers),
        unknown=(*left, *(key for one in read for key in one.unknown)),
        assumed=(*(said for one in read for said in one.assumed), *uncounted),
    )


def _read(outer: ConfigReader, key: str, rule: TowerRule, hidden: int) -> Beside:
    """Return the tower that stands under `key`; nothing where it is not understood, and its key stays unknown."""
    values = outer.mapping(key)
    if values is None and not rule.by_class:
        return Beside(assumed=(f"{key} is absent: no parameters of a tower are counted.",))
    kind = kind_of(rule, values or {})
    if kind is None:
        outer.known.discard(key)
        return Beside()
    inner = ConfigReader(values=values or {}, where=f"{outer.where}: {key}", defaults=KINDS[kind].defaults)
    made = tower(key.removesuffix("_config"), kind, rule, inner, outer=outer, out=hidden)
    return Beside(
        towers=(made,),
        unknown=tuple(f"{key}.{name}" for name in inner.unknown() if not is_irrelevant(name)),
        assumed=inner.said(key),
    )
