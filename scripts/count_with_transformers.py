"""Count the parameters of the made-up configs with the classes of `transformers`, and write the counts beside them.

python scripts/count_with_transformers.py [tests/ingest/made_up.jsonl]

Needs `pip install transformers torch`, which no test and no part of the project does: instances are made on torch's
meta device, without memory. The first line of the file names the versions that counted; each other line has a
`config`, and is written back with

* `parameters`: the unique parameters of the model (a tied table once);
* `correction_biases`: elements of the buffers of routers' biases, which checkpoints store as tensors;
* `windowed`: for each layer whether attention is windowed or chunked, where every layer is attention and the
  configuration class says it.

A config may state `model_type` of a family that has another family's class: `CLASS_OF`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

DEFAULT = Path(__file__).parents[1] / "tests/ingest/made_up.jsonl"
WINDOWED = ("sliding_attention", "chunked_attention", "hybrid_sliding")
CLASS_OF = {"kimi_k2": "deepseek_v3", "minimax_m1": "minimax"}
BIASES = ("e_score_correction_bias", "expert_bias")
MODEL_OF = {"mllama_text_model": "MllamaForCausalLM"}
"""Language models that no auto class finds by their configuration."""
WINDOWED = ("sliding_attention", "chunked_attention", "hybrid_sliding")
HEADS = ("AutoModelForCausalLM", "AutoModelForImageTextToText")


def build(config: dict[str, Any]) -> Any:
    """Return an instance without memory of the model that a raw config describes."""
    name = CLASS_OF.get(config["model_type"], config["model_type"])
    read = transformers.CONFIG_MAPPING[name].from_dict(config | {"model_type": name})
    if name in MODEL_OF:
        with torch.device("meta"):
            return getattr(transformers, MODEL_OF[name])(read)
    for head in HEADS:
        auto = getattr(transformers, head)
        if type(read) in auto._model_mapping:  # noqa: SLF001  # no public way to ask
            with torch.device("meta"):
                model = auto.from_config(read)
            model.tie_weights()
            return model
    raise SystemExit(f"no language model for {config['model_type']}")


def count(config: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one config."""
    model = build(config)
    row: dict[str, Any] = {"config": config}
    row["parameters"] = sum(tensor.numel() for tensor in {id(p): p for p in model.parameters()}.values())
    biases = [b.numel() for name, b in model.named_buffers() if name.endswith(BIASES)]
    if biases:
        row["correction_biases"] = sum(biases)
    kinds = getattr(model.config.get_text_config(), "layer_types", None)
    if kinds and set(kinds) <= {"full_attention", *WINDOWED}:
        row["windowed"] = [kind in WINDOWED for kind in kinds]
    return row


def main(path: Path) -> None:
    """Count every config of the file and write it back."""
    _, *lines = path.read_text().splitlines()
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.partition("+")[0]}
    rows = [versions, *(count(json.loads(line)["config"]) for line in lines)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
