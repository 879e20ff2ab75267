"""What the oracle runs: tiny configs, one a family of layers, and which of our operations each module's products are.

Data alone. We read what the class itself would save.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import transformers as hf

SHAPE: Final[dict[str, Any]] = {
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

EXPERTS: Final[dict[str, Any]] = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}

ROUTED: Final[dict[str, Any]] = {**EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1}

LATENT: Final[dict[str, Any]] = {
    **SHAPE,
    "num_key_value_heads": 8,
    "head_dim": 8,
    "q_lora_rank": 40,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}

INDEXER: Final[dict[str, Any]] = {"index_n_heads": 4, "index_head_dim": 12, "index_topk": 16}

DELTA: Final[dict[str, Any]] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}

DELTA_EXPERTS: Final[dict[str, Any]] = {
    **SHAPE,
    **EXPERTS,
    **DELTA,
    "num_experts": 8,
    "shared_expert_intermediate_size": 40,
}

SSD: Final[dict[str, Any]] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 20,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 32,
}

LINEAR_AND_FULL: Final = ["linear_attention", "full_attention"] * 2

COMPRESSED: Final = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")

CONFIGS: Final[Mapping[str, Callable[[], hf.PretrainedConfig]]] = {
    "llama": lambda: hf.LlamaConfig(**SHAPE),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(**SHAPE, **EXPERTS, num_experts=8),
    "glm4_moe": lambda: hf.Glm4MoeConfig(**SHAPE, **ROUTED, first_k_dense_replace=1),
    "minimax_m2": lambda: hf.MiniMaxM2Config(**SHAPE, num_experts_per_tok=2, num_local_experts=8),
    "gpt_oss": lambda: hf.GptOssConfig(**SHAPE, num_experts_per_tok=2, num_local_experts=8, sliding_window=16),
    "gemma3_text": lambda: hf.Gemma3TextConfig(
        **{**SHAPE, "num_hidden_layers": 6}, sliding_window=16, sliding_window_pattern=3
    ),
    "gemma4_text": lambda: hf.Gemma4TextConfig(
        **SHAPE,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=16,
        global_head_dim=24,
        hidden_size_per_layer_input=12,
        vocab_size_per_layer_input=200,
        num_kv_shared_layers=2,
    ),
    "llama4_text": lambda: hf.Llama4TextConfig(
        **SHAPE,
        intermediate_size_mlp=80,
        num_local_experts=8,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=16,
    ),
    "deepseek_v3": lambda: hf.DeepseekV3Config(**LATENT, **ROUTED, n_group=2, topk_group=1, first_k_dense_replace=1),
    "longcat_flash": lambda: hf.LongcatFlashConfig(
        **LATENT, num_layers=2, ffn_hidden_size=96, expert_ffn_hidden_size=48, moe_topk=2, zero_expert_num=4
    ),
    "deepseek_v32": lambda: hf.DeepseekV32Config(
        **LATENT, **ROUTED, **INDEXER, n_group=2, topk_group=1, first_k_dense_replace=1
    ),
    "glm_moe_dsa": lambda: hf.GlmMoeDsaConfig(
        **LATENT,
        **ROUTED,
        **INDEXER,
        n_group=1,
        topk_group=1,
        mlp_layer_types=["dense", *["sparse"] * 3],
        indexer_types=["full", "shared"] * 2,
    ),
    "hy_v4": lambda: hf.HYV4Config(
        **LATENT,
        **ROUTED,
        **INDEXER,
        n_group=1,
        topk_group=1,
        mlp_layer_types=["dense", *["sparse"] * 3],
        layer_types=["indexed_attention"] * 4,
        hc_mult=3,
    ),
    "deepseek_v4": lambda: hf.DeepseekV4Config(
        **{key: value for key, value in SHAPE.items() if key not in {"intermediate_size", "num_key_value_heads"}},
        **ROUTED,
        q_lora_rank=40,
        o_groups=4,
        o_lora_rank=12,
        index_n_heads=4,
        index_head_dim=8,
        index_topk=6,
        sliding_window=16,
        layer_types=[*COMPRESSED, "compressed_sparse_attention"],
        num_hash_layers=1,
        partial_rotary_factor=0.25,
        hc_mult=3,
    ),
    "qwen3_next": lambda: hf.Qwen3NextConfig(**DELTA_EXPERTS),
    "qwen3_5_text": lambda: hf.Qwen3_5TextConfig(**SHAPE, **DELTA),
    "qwen3_5_moe_text": lambda: hf.Qwen3_5MoeTextConfig(**DELTA_EXPERTS),
    "kimi_linear": lambda: hf.KimiLinearConfig(
        **LATENT,
        **EXPERTS,
        layer_types=LINEAR_AND_FULL,
        num_experts=8,
        first_k_dense_replace=1,
        linear_attn_config={
            "num_heads": 4,
            "head_dim": 12,
            "short_conv_kernel_size": 4,
            "kda_layers": [1, 3],
            "full_attn_layers": [2, 4],
        },
    ),
    "bailing_hybrid": lambda: hf.BailingHybridConfig(
        **{**LATENT, "q_lora_rank": None, "head_dim": 16, "v_head_dim": 16},
        **EXPERTS,
        n_shared_experts=1,
        num_local_experts=8,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        layer_group_size=2,
        num_mtp_layers=0,
    ),
    "minimax": lambda: hf.MiniMaxConfig(  # its cache knows its length by the first layer alone
        **SHAPE, layer_types=LINEAR_AND_FULL[::-1], num_local_experts=8, num_experts_per_tok=2, block_size=32
    ),
    "mamba2": lambda: hf.Mamba2Config(
        hidden_size=64,
        num_hidden_layers=2,
        vocab_size=200,
        num_heads=8,
        head_dim=16,
        state_size=20,
        n_groups=2,
        chunk_size=32,
        expand=2,
    ),
    "nemotron_h": lambda: hf.NemotronHConfig(
        **SHAPE,
        **ROUTED,
        hybrid_override_pattern="M*E-",
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=20,
        n_groups=2,
        chunk_size=32,
        moe_shared_expert_intermediate_size=40,
        moe_latent_size=24,
        n_group=1,
        topk_group=1,
    ),
    "falcon_h1": lambda: hf.FalconH1Config(**SHAPE, **SSD, mamba_d_ssm=128),
    "granitemoehybrid": lambda: hf.GraniteMoeHybridConfig(
        **SHAPE,
        **SSD,
        layer_types=["mamba", "attention"] * 2,
        num_local_experts=8,
        num_experts_per_tok=2,
        shared_intermediate_size=40,
        mamba_expand=2,
    ),
    "jamba": lambda: hf.JambaConfig(
        **SHAPE,
        num_experts=8,
        num_experts_per_tok=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        mamba_d_state=20,
        mamba_dt_rank=5,
    ),
    "lfm2_moe": lambda: hf.Lfm2MoeConfig(
        **SHAPE, **EXPERTS, layer_types=["conv", "full_attention"] * 2, num_experts=8, num_dense_layers=1
    ),
}

PARTS: Final[Mapping[str, str]] = {
    "lm_head": "head",
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "o_proj": "o",
    "out_proj": "o",
    "q_a_proj": "q_a",
    "q_b_proj": "q_b",
    "kv_a_proj_with_mqa": "kv_a",
    "kv_b_proj": "kv_b",
    "indexer.wq_b": "index_q",
    "indexer.wk": "index_k",
    "weights_proj": "index_weights",
    "self_attn.kv_proj": "kv",
    "compressor.kv_proj": "compress_kv",
    "compressor.gate_proj": "compress_gate",
    "compressor.indexer.q_b_proj": "index_q",
    "compressor.indexer.kv_proj": "index_kv",
    "compressor.indexer.gate_proj": "index_gate",
    "o_a_proj": "out_a",
    "o_b_proj": "out_b",
    "attn_hc": "residual",
    "ffn_hc": "residual",
    "hc_head": "final.residual",
    "linear_attn.in_proj_qkvz": "q",
    "linear_attn.in_proj_ba": "beta",
    "linear_attn.in_proj_qkv": "q",
    "linear_attn.in_proj_z": "q",
    "linear_attn.in_proj_b": "beta",
    "linear_attn.in_proj_a": "decay",
    "forget_gate.f_a_proj": "decay_a",
    "forget_gate.f_b_proj": "decay_b",
    "b_proj": "beta",
    "forget_gate.f_proj": "decay",
    "g_proj": "out-gate",
    "g_a_proj": "gate_a",
    "g_b_proj": "gate_b",
    "qkv_proj": "q",
    "output_gate": "out-gate",
    "mixer.in_proj": "z",
    "mamba.in_proj": "z",
    "mamba.x_proj": "select",
    "conv.in_proj": "in",
    "self_attn.gate_proj": "out-gate",
    "gate_proj": "up",
    "up_proj": "up",
    "down_proj": "down",
    "feed_forward.w1": "up",
    "feed_forward.w3": "up",
    "feed_forward.w2": "down",
    "shared_experts.gate_proj": "shared.up",
    "shared_experts.up_proj": "shared.up",
    "shared_experts.down_proj": "shared.down",
    "shared_expert.gate_proj": "shared.up",
    "shared_expert.up_proj": "shared.up",
    "shared_expert.down_proj": "shared.down",
    "shared_mlp.input_linear": "shared.up",
    "shared_mlp.output_linear": "shared.down",
    "shared_expert_gate": "shared_gate",
    "fc1_latent_proj": "latent_down",
    "fc2_latent_proj": "latent_up",
    "gate": "router",
    "router": "router",
    "experts": "experts",
    "per_layer_input_gate": "layer-inputs.gate",
    "per_layer_projection": "layer-inputs.add",
    "per_layer_model_projection": "layer-inputs.project",
}
"""End of a module's name -> a tensor of ours that it multiplies by, or our operation; the longest end counts."""
