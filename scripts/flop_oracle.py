"""Holds our FLOP counts, op by op, against what PyTorch counts when a tiny random model really runs.

`make oracle` installs torch and transformers into an environment of their own and runs this; no weights are fetched.
torch.utils.flop_counter counts every matrix product by module. Eager attention multiplies all pairs of new and cached
tokens, also those that the mask hides: its core is scaled by the share that is seen. transformers caches the expanded
keys of latent attention, which no engine does, so behind a prefix only the products before and after are held.
"""

import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from inferometer.api.counts import count
from inferometer.blocks.causal import causal_pairs, keys_seen
from inferometer.blocks.model import layer_kinds
from inferometer.ingest.config import model_from_config
from inferometer.specs.mixers import Attention
from inferometer.specs.model import ModelSpec

BATCH = 3

Counted = dict[tuple[int, str], float]
"""(Layer, operation) -> FLOPs; the head is layer -1."""

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 200,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}

EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}

CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**SHAPE, **EXPERTS, num_experts=8),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **{**SHAPE, "num_key_value_heads": 8, "head_dim": 8},
        **EXPERTS,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        n_shared_experts=1,
        q_lora_rank=40,
        kv_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=12,
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **SHAPE, num_experts_per_tok=2, num_local_experts=8, sliding_window=16
    ),
    "gemma3_text": lambda: transformers.Gemma3TextConfig(
        **{**SHAPE, "num_hidden_layers": 6}, sliding_window=16, sliding_window_pattern=3
    ),
}

PARTS = {
    "q_proj": "qkv",
    "k_proj": "qkv",
    "v_proj": "qkv",
    "o_proj": "o",
    "q_a_proj": "q_a+kv_a",
    "kv_a_proj_with_mqa": "q_a+kv_a",
    "q_b_proj": "q_b",
    "kv_b_proj": "kv_b",
    "mlp.gate_proj": "gate+up",
    "mlp.up_proj": "gate+up",
    "mlp.down_proj": "down",
    "shared_experts.gate_proj": "shared.gate+up",
    "shared_experts.up_proj": "shared.gate+up",
    "shared_experts.down_proj": "shared.down",
    "mlp.gate": "router",
    "mlp.router": "router",
    "mlp.experts": "experts",
    "lm_head": "head",
}
"""End of a module's name -> our operation."""

CACHED_EXPANDED = ("kv_b", "q-absorb", "v-absorb", "attention-core")
"""Operations of latent attention behind a prefix that transformers does another way."""


class Ask(NamedTuple):
    """One pass: tokens cached before it, and new ones."""

    phase: str
    prefix: int
    new: int

    @property
    def work(self) -> dict[str, Any]:
        """Return our settings for it."""
        return {
            "prefill": {"phase": "prefill", "isl": self.new},
            "extend": {"phase": "extend", "isl": self.new, "context": self.prefix},
            "decode": {"context": self.prefix + self.new},
            "verify": {"phase": "verify", "draft_tokens": self.new - 1, "context": self.prefix},
        }[self.phase]


ASKED = (Ask("prefill", 0, 40), Ask("extend", 24, 10), Ask("decode", 24, 1), Ask("verify", 24, 4))


def counted_by_torch(config: transformers.PretrainedConfig, ask: Ask) -> Counted:
    """Return the FLOPs of one pass of a random model, counted while it runs."""
    torch.manual_seed(0)
    config._attn_implementation = "eager"  # noqa: SLF001 (the only spelling there is for a random model)
    config._experts_implementation = "eager"  # noqa: SLF001 (same)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(0, SHAPE["vocab_size"], (BATCH, ask.prefix + ask.new))
    cache = transformers.DynamicCache(config=config)
    with torch.no_grad():
        if ask.prefix:
            model(ids[:, : ask.prefix], cache=cache)
        with FlopCounterMode(display=False) as counter:
            model(ids[:, ask.prefix :], cache=cache, logits_to_keep=ask.new if ask.phase == "verify" else 1)
    modules = {name.partition(".")[2]: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    found: Counted = defaultdict(float)
    for name, flops in modules.items():
        layer = int(name.split(".")[2]) if name.startswith("model.layers.") else -1
        part = next((part for end, part in PARTS.items() if name.endswith(f".{end}") or name == end), None)
        if part is not None:
            found[layer, part] += flops
        elif name.endswith(".self_attn"):
            found[layer, "attention-core"] += flops - sum(
                inner for child, inner in modules.items() if child.rpartition(".")[0] == name
            )
    return dict(found)


def counted_by_us(model: ModelSpec, ask: Ask) -> Counted:
    """Return the same of our own count, experts' operations together."""
    by_segment: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for op in count(model, batch=BATCH, **ask.work).ops:
        name = "experts" if op.name.startswith("experts.") else op.name
        if op.flops:
            by_segment[op.segment][name] += op.flops * op.share
    kinds = layer_kinds(model)
    found = {(-1, name): flops for name, flops in by_segment["head"].items()}
    for layer, kind in enumerate(model.layers):
        own = by_segment[f"layer-{kinds.index(kind)}"]
        found |= {(layer, name): flops for name, flops in own.items()}
    return found


def seen_share(model: ModelSpec, layer: int, ask: Ask) -> float:
    """Return the share of the pairs multiplied, new rows by tokens in reach of any, that the mask lets through."""
    mixer = model.mixers[model.layers[layer].mixer or 0]
    window = mixer.window if isinstance(mixer, Attention) else None
    multiplied = ask.new * keys_seen(ask.new, window, prefix=ask.prefix)
    return causal_pairs(ask.new, window, prefix=ask.prefix) / multiplied


def compared(name: str, ask: Ask) -> Iterator[tuple[str, float, float]]:
    """Yield (operation, theirs, ours) of one model and pass."""
    config = CONFIGS[name]()
    model = model_from_config(config.to_dict(), name=name, source="random")
    theirs, ours = counted_by_torch(config, ask), counted_by_us(model, ask)
    latent = ask.prefix and not isinstance(model.mixers[0], Attention)
    for layer, part in sorted({*theirs, *ours}):
        if latent and part in CACHED_EXPANDED:
            continue
        there = theirs.get((layer, part), 0.0)
        if part == "attention-core":
            there *= seen_share(model, layer, ask)
        yield f"{layer} {part}", there, ours.get((layer, part), 0.0)


def main() -> int:
    """Print a line a model and pass; return 1 where an operation differs."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    wrong = 0
    for name in CONFIGS:
        for ask in ASKED:
            rows = list(compared(name, ask))
            bad = [row for row in rows if not math.isclose(row[1], row[2], rel_tol=1e-12)]
            total = sum(ours for _, _, ours in rows)
            print(f"{name}, {ask.phase}: {len(rows)} operations, {total:,.0f} FLOP, {len(bad)} differ")
            for part, theirs, ours in bad:
                print(f"  {part}: torch {theirs:,.0f}, ours {ours:,.0f}")
            wrong += len(bad)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
