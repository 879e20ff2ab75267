"""Phi-3-vision's tower: CLIP ViT-L/14 of 336 pixels, named but not described in the config, and its projector.

As in `image_embedding_phi3_v.py` beside the checkpoints on the hub; the sizes of `openai/clip-vit-large-patch14-336`
are of its config. How many crops an image takes stands in no config, so images are counted for no prompt.
"""

from dataclasses import replace
from typing import Final

from inferometer.ingest.reader import ConfigReader
from inferometer.ingest.towers import contrastive
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import TowerPart

CLIP_L: Final = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 336,
    "patch_size": 14,
}
NAME = "openai/clip-vit-large-patch14-336"
CROP = 4
"""Patches that are one token: 2 x 2."""


def phi3_clip(reader: ConfigReader, out: int) -> p.Encoder:
    """Return CLIP-L with Phi-3-vision's projector [O, 4 H], [O, O] and its two separators of 4 H.

    Raises InferometerError for another image model than the one known by name.
    """
    for name, allowed in (("name", "clip_vision_model"), ("model_name", NAME)):
        if reader.text(name) != allowed:
            raise reader.wrong(name, reader.find(name)[1], allowed)
    hidden = p.sized(reader, "image_dim_out")
    if hidden != CLIP_L["hidden_size"]:
        raise reader.wrong("image_dim_out", hidden, str(CLIP_L["hidden_size"]))
    reader.skip("num_img_tokens", "layer_idx", "type_feature")
    reader.remark(f"img_processor names {NAME}, whose sizes are taken")
    encoder = contrastive.clip(ConfigReader(values=CLIP_L, where=reader.where), out)
    merged = CROP * hidden
    separators = TowerPart(name="separators", over=None, width=merged, tables={"row": merged, "image": merged})
    projector = p.two_matrices("projector", merged, out, out, bias=True)
    return replace(encoder, parts=(*encoder.parts, separators, projector), width=out, image=None)
