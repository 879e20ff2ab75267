"""What stands before the language model of a wrapper: vision and audio towers with their projectors, by kind.

The kind is the tower's own `model_type` where it states one, else the wrapper's; the projector is the wrapper's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from inferometer.ingest.reader import ConfigReader, Default
from inferometer.ingest.towers import contrastive, llama4, mllama, native, phi3, projectors, qwen, rotary, whisper
from inferometer.ingest.towers.parts import Encoder
from inferometer.specs.tower import Tower


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of encoder."""

    read: Callable[[ConfigReader, int], Encoder]
    defaults: Mapping[str, Default] = field(default_factory=dict)
    """What its class takes for fields that are absent."""


_CHANNELS: Final[Mapping[str, Default]] = {"in_channels": 3}
_QWEN2: Final[Mapping[str, Default]] = {**_CHANNELS, "mlp_ratio": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}

KINDS: Final[Mapping[str, Kind]] = {
    "siglip": Kind(contrastive.siglip, contrastive.SIGLIP_DEFAULTS),
    "clip": Kind(contrastive.clip, contrastive.CLIP_DEFAULTS),
    "pixtral": Kind(native.pixtral, native.PIXTRAL_DEFAULTS),
    "llama4": Kind(llama4.llama4_vision, llama4.DEFAULTS),
    "mllama": Kind(mllama.mllama_vision, mllama.DEFAULTS),
    "qwen2_vl": Kind(qwen.qwen2_vl, _QWEN2),
    "qwen2_5_vl": Kind(qwen.qwen2_5_vl, {**_QWEN2, "window_size": 112}),
    "qwen3_vl": Kind(qwen.qwen3_vl, _CHANNELS),
    "moonvit": Kind(native.moonvit),
    "gemma4_vision": Kind(native.gemma4_vision),
    "voxtral_encoder": Kind(whisper.voxtral_encoder, whisper.DEFAULTS),
    "phi3_clip": Kind(phi3.phi3_clip),
    "deepseek_vit": Kind(rotary.deepseek_vit),
    "glm5_next": Kind(rotary.glm5_next, {**_CHANNELS, "temporal_patch_size": 2}),
}

STATED: Final[Mapping[str, str]] = {
    "siglip_vision_model": "siglip",
    "clip_vision_model": "clip",
    "pixtral": "pixtral",
    "llama4_vision_model": "llama4",
    "mllama_vision_model": "mllama",
    "gemma4_vision": "gemma4_vision",
    "voxtral_encoder": "voxtral_encoder",
    "deepseek_v41_vision": "deepseek_vit",
    "glm5_next_vision": "glm5_next",
    **{f"qwen2_vl{end}": "qwen2_vl" for end in ("", "_vision")},
    **{f"qwen2_5_vl{end}": "qwen2_5_vl" for end in ("", "_vision")},
    **{f"qwen3_vl{end}": "qwen3_vl" for end in ("", "_vision", "_moe", "_moe_vision")},
    **{f"qwen3_5{end}": "qwen3_vl" for end in ("", "_vision", "_moe", "_moe_vision")},
}
"""`model_type` of a tower -> its kind."""

Projector = Callable[[Encoder, ConfigReader, int], Encoder]

_ENDS: Final[Mapping[str, tuple[str, ...]]] = {
    "gemma3": ("siglip",),
    "llava": ("clip", "siglip", "pixtral"),
    "llava_next": ("clip", "siglip"),
    "mistral3": ("pixtral",),
}
"""Projector -> the encoders it may stand behind; one that is not here stands behind none but its own."""

_PROJECTORS: Final[Mapping[str, Projector]] = {
    "gemma3": projectors.gemma3,
    "llava": projectors.llava,
    "llava_next": projectors.llava_next,
    "mistral3": projectors.mistral3,
}


@dataclass(frozen=True, slots=True)
class TowerRule:
    """How a wrapper holds a tower."""

    kind: str
    """Its kind where it does not state a `model_type`."""
    projector: str = ""
    """What stands behind it; empty: the tower ends in the language model by itself."""
    by_class: bool = False
    """A tower that is absent from the config is there all the same, with the defaults of its class."""


def kind_of(rule: TowerRule, values: Mapping[str, object]) -> str | None:
    """Return the kind of a tower, None where it is not understood there.

    >>> kind_of(TowerRule("clip", "llava"), {"model_type": "pixtral"}), kind_of(TowerRule("clip", "llava"), {})
    ('pixtral', 'clip')
    >>> kind_of(TowerRule("pixtral", "mistral3"), {"model_type": "clip_vision_model"}) is None
    True
    """
    stated = values.get("model_type")
    kind = rule.kind if stated is None or stated == "" else STATED.get(str(stated))
    return kind if kind in _ENDS.get(rule.projector, (rule.kind,)) else None


def tower(name: str, kind: str, rule: TowerRule, reader: ConfigReader, *, outer: ConfigReader, out: int) -> Tower:
    """Return the tower of that kind with the wrapper's projector, `out` the hidden size of the language model.

    `reader` reads the tower's own object, `outer` the wrapper around it.
    Raises InferometerError for shapes that are missing or out of range.
    """
    reader.skip("torch_dtype", "dtype")
    encoder = KINDS[kind].read(reader, out)
    if rule.projector:
        encoder = _PROJECTORS[rule.projector](encoder, outer, out)
    return Tower(name=name, parts=encoder.parts, image=encoder.image, image_source=encoder.image_source)
