"""Small configs of every family, shared by the tests of ingest, and a count of parameters by hand."""

import csv
from pathlib import Path

from inferometer.catalog.presets import preset_config
from inferometer.ingest.config import model_from_config

TRUTH = tuple(csv.DictReader((Path(__file__).parent / "truth.csv").read_text().splitlines()))
MODELS = tuple(row["model"] for row in TRUTH)

_COMMON = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_MLA = {
    "kv_lora_rank": 64,
    "q_lora_rank": 96,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "moe_intermediate_size": 128,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 4,
    "topk_group": 2,
    "attention_bias": False,
}
TINY = {
    "llama": _COMMON | {"attention_bias": False, "mlp_bias": False},
    "mistral": _COMMON | {"sliding_window": None},
    "ministral3": _COMMON | {"sliding_window": None, "head_dim": 32},
    "mixtral": _COMMON | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen2": _COMMON | {"use_sliding_window": False},
    "qwen3": _COMMON | {"attention_bias": False, "head_dim": 64},
    "qwen3_moe": _COMMON
    | {
        "attention_bias": False,
        "head_dim": 64,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 128,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "deepseek_v2": _COMMON | _MLA | {"topk_method": "greedy"},
    "deepseek_v3": _COMMON | _MLA | {"topk_method": "noaux_tc"},
    "kimi_k2": _COMMON | _MLA | {"topk_method": "noaux_tc"},
}
TINY = {name: config | {"model_type": name} for name, config in TINY.items()}


def tiny(family, *, sidecar=None, drop=(), **changes):
    """Return the model of a small config of `family` with keys changed or dropped."""
    config = {key: value for key, value in (TINY[family] | changes).items() if key not in drop}
    return model_from_config(config, name="tiny", source="test", sidecar=sidecar)


def preset(hub_id):
    """Return the model of a published config."""
    entry = preset_config(hub_id)
    return model_from_config(entry.config, name=entry.id, source=entry.source, sidecar=entry.quant_sidecar)


def params_by_hand(c):
    """Return the parameters of a raw config, counted family by family without any of the project's code."""
    hidden, layers = c["hidden_size"], c["num_hidden_layers"]
    tables = c["vocab_size"] * hidden * (1 if c["tie_word_embeddings"] else 2)
    routed = sum(_is_routed(c, layer) for layer in range(layers))
    ffn = (layers - routed) * (3 * hidden * c["intermediate_size"] + _ffn_bias(c))
    if routed:
        ffn += routed * _experts(c)
    return tables + hidden + layers * (2 * hidden + _attention(c)) + ffn


def _ffn_bias(c):
    return 2 * c["intermediate_size"] + c["hidden_size"] if c.get("mlp_bias") else 0


def _is_routed(c, layer):
    if c["model_type"] in ("mixtral", "qwen3_moe"):
        return True
    return "n_routed_experts" in c and layer >= c["first_k_dense_replace"]


def _experts(c):
    hidden = c["hidden_size"]
    count = c.get("num_local_experts") or c.get("num_experts") or c["n_routed_experts"]
    width = c.get("moe_intermediate_size") or c["intermediate_size"]
    bias = count if c["model_type"] in ("deepseek_v3", "kimi_k2") else 0
    return (count + c.get("n_shared_experts", 0)) * 3 * hidden * width + hidden * count + bias


def _attention(c):
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    if "kv_lora_rank" in c:
        nope, rope, v, latent = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        rank = c["q_lora_rank"]
        q_out = heads * (nope + rope)
        query = hidden * q_out if rank is None else hidden * rank + rank + rank * q_out
        return query + hidden * (latent + rope) + latent + latent * heads * (nope + v) + heads * v * hidden
    dim, kv = c.get("head_dim") or hidden // heads, c.get("num_key_value_heads") or heads
    total = 2 * hidden * heads * dim + 2 * hidden * kv * dim
    if c["model_type"] == "qwen2" or c.get("attention_bias"):
        total += (heads + 2 * kv) * dim + (0 if c["model_type"] == "qwen2" else hidden)
    return total + (2 * dim if c["model_type"].startswith("qwen3") else 0)
