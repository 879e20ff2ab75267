"""Published configs of families that have no preset, with their published parameter counts.

`kind` is how the count was had: independent of any model code (an index, or published), formula, meta (instances of
transformers' own class without memory), or recalled: config and count both from memory, so that only their exact
agreement says anything. `source` says where the count is from and, where the two differ, the config; "stored copy" is
a number in the search index of public files. `apart` is what the published count holds and ours does not, `why`
says what that is.
"""

import json
from pathlib import Path

from inferometer.ingest.config import model_from_config

FAMILIES = tuple(json.loads(line) for line in (Path(__file__).parent / "families.jsonl").read_text().splitlines())
IDS = tuple(row["model"] for row in FAMILIES)
_BY_NAME = {row["model"]: row["config"] for row in FAMILIES}


def family(model, *, drop=(), inside=None, **changes):
    """Return the model of a published config with keys changed or dropped; `inside` changes its `text_config`."""
    config = {key: value for key, value in (_BY_NAME[model] | changes).items() if key not in drop}
    if inside is not None:
        config["text_config"] = config["text_config"] | inside
    return model_from_config(config, name=model, source="test")


def mixers(model):
    """Return the mixer of every layer that has one."""
    return [model.mixers[layer.mixer] for layer in model.layers if layer.mixer is not None]


def ffns(model):
    """Return the feed-forward of every layer."""
    return [model.ffns[layer.ffn] for layer in model.layers]
