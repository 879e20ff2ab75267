"""How each family spells its config: data only. A new family is a row here, not a function.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers
(`src/transformers/models/<model_type>/`), for kimi_k2 and deepseek_v2 also of the repository's own code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inferometer.ingest.reader import Default

ALIASES: dict[str, tuple[str, ...]] = {
    "num_experts": ("n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_token",),
    "max_position_embeddings": ("context_window_size",),
    "sliding_window": ("sliding_window_size",),
    "torch_dtype": ("dtype",),
    "rope_scaling": ("rope_parameters",),
}
"""Canonical field -> other spellings, for every family."""


@dataclass(frozen=True, slots=True)
class WindowRule:
    """When `sliding_window` limits attention."""

    switch: str | None = None
    """Flag that must be true; None: the window holds whenever it is not null."""
    first_layer: str | None = None
    """Field with the first windowed layer (below it attention is full)."""
    layer_types: bool = False
    """Whether a `layer_types` list overrides `first_layer`."""


@dataclass(frozen=True, slots=True)
class MoeRule:
    """How a family spells its experts."""

    layers: Literal["every", "sparse_step", "after_dense"]
    """every; `decoder_sparse_step` and `mlp_only_layers`; `first_k_dense_replace` and `moe_layer_freq`."""
    width: str
    """Field with the width of one routed expert."""
    shared_count: str | None = None
    """Field with the number of shared experts, each as wide as a routed one."""
    topk_method: str | None = None
    """`topk_method` where the key is absent; None: the family has no such key."""
    router_bias: bool = False
    """`e_score_correction_bias` exists whatever the config says."""


Modules = Mapping[str, tuple[str, ...]]
"""Tensor of ours -> module names below `model.layers.{i}.`, the checkpoint's first."""

ATTENTION_MODULES: Modules = {
    "q": ("self_attn.q_proj", "self_attn.qkv_proj"),
    "k": ("self_attn.k_proj", "self_attn.qkv_proj"),
    "v": ("self_attn.v_proj", "self_attn.qkv_proj"),
    "o": ("self_attn.o_proj",),
}
MLA_MODULES: Modules = {
    "q_a": ("self_attn.q_a_proj",),
    "q_b": ("self_attn.q_b_proj",),
    "q": ("self_attn.q_proj",),
    "kv_a": ("self_attn.kv_a_proj_with_mqa",),
    "kv_b": ("self_attn.kv_b_proj",),
    "o": ("self_attn.o_proj",),
}
FFN_MODULES: Modules = {
    "gate": ("mlp.gate_proj", "mlp.gate_up_proj"),
    "up": ("mlp.up_proj", "mlp.gate_up_proj"),
    "down": ("mlp.down_proj",),
}
MOE_MODULES: Modules = {
    "router": ("mlp.gate",),
    "gate": ("mlp.experts.{e}.gate_proj",),
    "up": ("mlp.experts.{e}.up_proj",),
    "down": ("mlp.experts.{e}.down_proj",),
    "shared_gate_proj": ("mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj"),
    "shared_up": ("mlp.shared_experts.up_proj", "mlp.shared_expert.up_proj"),
    "shared_down": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj"),
    "shared_gate": ("mlp.shared_expert_gate",),
}
MIXTRAL_MODULES: Modules = {
    "router": ("block_sparse_moe.gate", "mlp.gate"),
    "gate": ("block_sparse_moe.experts.{e}.w1", "mlp.experts.{e}.gate_proj"),
    "up": ("block_sparse_moe.experts.{e}.w3", "mlp.experts.{e}.up_proj"),
    "down": ("block_sparse_moe.experts.{e}.w2", "mlp.experts.{e}.down_proj"),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One family's spelling and class defaults."""

    mixer: Literal["attention", "mla"] = "attention"
    qkv_bias: bool | None = False
    """Bias on q, k, v; None: as `attention_bias` says."""
    out_bias: bool | None = False
    """Bias on o; None: as `attention_bias` says."""
    ffn_bias: bool | None = False
    """Bias on gate, up, down; None: as `mlp_bias` says."""
    qk_norm: bool = False
    window: WindowRule | None = None
    moe: MoeRule | None = None
    tied: bool = False
    """`tie_word_embeddings` where the key is absent."""
    defaults: Mapping[str, Default] = field(default_factory=dict)
    """Class defaults of fields that a real config may leave out."""
    inert: tuple[str, ...] = ()
    """Fields this family's code does not use, although others do."""
    moe_modules: Modules = field(default_factory=lambda: MOE_MODULES)


_QWEN_WINDOW = WindowRule(switch="use_sliding_window", first_layer="max_window_layers", layer_types=True)
_MLA_INERT = ("num_key_value_heads", "head_dim", "qk_head_dim")

DIALECTS: dict[str, Dialect] = {
    "llama": Dialect(qkv_bias=None, out_bias=None, ffn_bias=None),
    "mistral": Dialect(window=WindowRule(), defaults={"sliding_window": 4096}),
    "ministral3": Dialect(window=WindowRule(), defaults={"head_dim": 128}),
    "mixtral": Dialect(
        window=WindowRule(), moe=MoeRule(layers="every", width="intermediate_size"), moe_modules=MIXTRAL_MODULES
    ),
    "qwen2": Dialect(qkv_bias=True, window=_QWEN_WINDOW, defaults={"max_window_layers": 28}, inert=("attention_bias",)),
    "qwen3": Dialect(
        qkv_bias=None,
        out_bias=None,
        qk_norm=True,
        window=_QWEN_WINDOW,
        defaults={"max_window_layers": 28, "head_dim": 128},
    ),
    "qwen3_moe": Dialect(
        qkv_bias=None,
        out_bias=None,
        qk_norm=True,
        window=WindowRule(switch="use_sliding_window", first_layer="max_window_layers"),
        moe=MoeRule(layers="sparse_step", width="moe_intermediate_size"),
        defaults={"max_window_layers": 0, "decoder_sparse_step": 1},
    ),
    "deepseek_v2": Dialect(
        mixer="mla",
        moe=MoeRule(
            layers="after_dense", width="moe_intermediate_size", shared_count="n_shared_experts", topk_method="greedy"
        ),
        defaults={"q_lora_rank": 1536, "first_k_dense_replace": 0, "moe_layer_freq": 1},
        inert=_MLA_INERT,
    ),
    "deepseek_v3": Dialect(
        mixer="mla",
        moe=MoeRule(
            layers="after_dense",
            width="moe_intermediate_size",
            shared_count="n_shared_experts",
            topk_method="noaux_tc",
            router_bias=True,
        ),
        defaults={
            "q_lora_rank": 1536,
            "first_k_dense_replace": 3,
            "moe_layer_freq": 1,
            "n_shared_experts": 1,
            "n_group": 8,
            "topk_group": 4,
        },
        inert=_MLA_INERT,
    ),
}
DIALECTS["kimi_k2"] = DIALECTS["deepseek_v3"]
"""moonshotai's kimi_k2 names DeepseekV3ForCausalLM and its configuration class."""

GROUPED_TOPK = ("group_limited_greedy", "noaux_tc")
"""`topk_method` values that choose groups of experts first."""
TOPK_METHODS = ("greedy", "gready", *GROUPED_TOPK)
"""`gready` is DeepSeek-V2's own spelling of its default."""
