"""How each family spells its config: data only. A new family is a row here, not a function.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers
(`src/transformers/models/<model_type>/`); of families without a class there, of the modelling code beside their
checkpoints on the hub.
"""

import dataclasses

from inferometer.ingest import dialect as d
from inferometer.ingest.dialect import ATTENTION_BIAS, MLP_BIAS, Dialect, Key, KvRule, MoeRule, NormRule, WindowRule

ALIASES: dict[str, tuple[str, ...]] = {
    "num_experts": ("n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_token",),
    "max_position_embeddings": ("context_window_size",),
    "sliding_window": ("sliding_window_size",),
    "torch_dtype": ("dtype",),
    "rope_scaling": ("rope_parameters",),
}
"""Canonical field -> other spellings, for every family."""

_GPT_NAMES = {
    "hidden_size": ("n_embd", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner",),
    "max_position_embeddings": ("n_positions", "seq_length", "n_ctx"),
}
_QWEN_WINDOW = WindowRule(switch=Key("use_sliding_window"), first_layer="max_window_layers", layer_types=True)
_MLA_INERT = ("num_key_value_heads", "head_dim", "qk_head_dim")
_LAYER_NORM = NormRule(bias=True)

_DEEPSEEK = {
    "deepseek": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        moe=MoeRule(layers="after_dense", width="moe_intermediate_size", shared_count="n_shared_experts"),
        defaults={"first_k_dense_replace": 0, "moe_layer_freq": 1},
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
_LLAMA = {
    "llama": Dialect(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, ffn_bias=MLP_BIAS),
    "llama4_text": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        window=WindowRule(
            key="attention_chunk_size",
            chunk=True,
            layer_types=True,
            every=4,
            every_key="no_rope_layer_interval",
            listed="no_rope_layers",
        ),
        moe=MoeRule(layers="interleaved", width="intermediate_size", shared_experts=1),
        dense_width="intermediate_size_mlp",
        defaults={"interleave_moe_layer_step": 1, "attention_chunk_size": 8192, "head_dim": 128},
        inert=(
            "use_qk_norm",  # an L2 norm, without weights
            *("for_llm_compressor", "attn_temperature_tuning", "attn_scale", "floor_scale", "cache_implementation"),
        ),
        ffn_modules=d.LLAMA4_FFN_MODULES,
        moe_modules=d.LLAMA4_MODULES,
    ),
    "mistral": Dialect(window=WindowRule(), defaults={"sliding_window": 4096}),
    "ministral3": Dialect(window=WindowRule(), defaults={"head_dim": 128}),
    "mixtral": Dialect(
        window=WindowRule(), moe=MoeRule(layers="every", width="intermediate_size"), moe_modules=d.MIXTRAL_MODULES
    ),
    "baichuan": Dialect(aliases={"max_position_embeddings": ("model_max_length",)}, inert=("model_max_length",)),
    "internlm": Dialect(qkv_bias=Key("bias", default=True), out_bias=Key("bias", default=True)),
    "internlm2": Dialect(qkv_bias=Key("bias"), out_bias=Key("bias")),
    "internlm3": Dialect(qkv_bias=Key("qkv_bias"), out_bias=Key("bias"), ffn_bias=Key("bias")),
    "orion": Dialect(norm=_LAYER_NORM, qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS),
    "seed_oss": Dialect(
        qkv_bias=Key("attention_bias", default=True),
        out_bias=Key("attention_out_bias"),
        ffn_bias=MLP_BIAS,
        defaults={"head_dim": 128},
        inert=("residual_dropout",),
    ),
    "smollm3": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        tied=True,
        window=WindowRule(switch=Key("use_sliding_window"), layer_types=True),
        inert=("no_rope_layers", "no_rope_layer_interval", "max_window_layers"),
    ),
    "granite": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        inert=("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"),
    ),
    "bitnet": Dialect(norm=NormRule(sub=True), qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS),
    "ernie4_5": Dialect(
        qkv_bias=Key("use_bias"),
        out_bias=Key("use_bias"),
        ffn_bias=Key("use_bias"),
        tied=True,
        defaults={"head_dim": 128},
    ),
}
_QWEN = {
    "qwen": Dialect(
        qkv_bias=True,
        width_divisor=2,
        aliases={"head_dim": ("kv_channels",), "max_position_embeddings": ("seq_length",)},
        only={"no_bias": True},
        inert=("use_flash_attn", "use_dynamic_ntk", "use_logn_attn", "padded_vocab_size", "onnx_safe", "seq_length"),
    ),
    "qwen2": Dialect(qkv_bias=True, window=_QWEN_WINDOW, defaults={"max_window_layers": 28}, inert=("attention_bias",)),
    "qwen2_moe": Dialect(
        qkv_bias=Key("qkv_bias", default=True),
        window=_QWEN_WINDOW,
        moe=MoeRule(
            layers="sparse_step",
            width="moe_intermediate_size",
            shared_width="shared_expert_intermediate_size",
            shared_gate=True,
        ),
        defaults={"max_window_layers": 28, "decoder_sparse_step": 1},
    ),
    "qwen3": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        window=_QWEN_WINDOW,
        defaults={"max_window_layers": 28, "head_dim": 128},
    ),
    "qwen3_moe": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        window=WindowRule(switch=Key("use_sliding_window"), first_layer="max_window_layers"),
        moe=MoeRule(layers="sparse_step", width="moe_intermediate_size"),
        defaults={"max_window_layers": 0, "decoder_sparse_step": 1},
    ),
    "mimo": Dialect(qkv_bias=True, window=_QWEN_WINDOW, defaults={"max_window_layers": 28}, inert=("attention_bias",)),
}
_GEMMA = {
    "gemma": Dialect(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, tied=True, defaults={"head_dim": 256}),
    "gemma2": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        norm=NormRule(post=True),
        window=WindowRule(layer_types=True, every=2),
        tied=True,
        defaults={"head_dim": 256, "sliding_window": 4096},
    ),
    "gemma3_text": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        norm=NormRule(post=True),
        window=WindowRule(layer_types=True, every=6, every_key="sliding_window_pattern"),
        tied=True,
        defaults={
            "head_dim": 256,
            "sliding_window": 4096,
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
        },
    ),
}
_OPENAI = {
    "gpt_oss": Dialect(
        qkv_bias=Key("attention_bias", default=True),
        out_bias=Key("attention_bias", default=True),
        sinks=True,
        window=WindowRule(layer_types=True, every=2),
        moe=MoeRule(layers="every", width="intermediate_size", bias=True, router_linear_bias=True),
        aliases={"num_experts_per_tok": ("experts_per_token",)},
        defaults={"head_dim": 64, "sliding_window": 128},
        inert=("initial_context_length", "swiglu_limit"),
        moe_modules=d.FUSED_MODULES,
    ),
    "gpt2": Dialect(
        norm=_LAYER_NORM,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        gated=False,
        width_factor=4,
        tied=True,
        positions="max_position_embeddings",
        aliases=_GPT_NAMES,
    ),
}
_GPT = {
    "gpt_bigcode": Dialect(
        norm=_LAYER_NORM,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        multi_query=Key("multi_query", default=True),
        gated=False,
        width_factor=4,
        tied=True,
        positions="max_position_embeddings",
        aliases=_GPT_NAMES,
    ),
    "gptj": Dialect(
        norm=NormRule(bias=True, parallel=True, second=False),
        ffn_bias=True,
        head_bias=True,
        gated=False,
        width_factor=4,
        aliases=_GPT_NAMES,
    ),
    "gpt_neox": Dialect(
        norm=NormRule(bias=True, parallel=Key("use_parallel_residual", default=True)),
        qkv_bias=Key("attention_bias", default=True),
        out_bias=Key("attention_bias", default=True),
        ffn_bias=True,
        gated=False,
    ),
    "bloom": Dialect(
        norm=NormRule(bias=True, embedding=True),
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        gated=False,
        width_factor=4,
        tied=True,
        aliases=_GPT_NAMES,
        defaults={"max_position_embeddings": 2048},
    ),
    "starcoder2": Dialect(
        norm=_LAYER_NORM,
        qkv_bias=Key("use_bias", default=True),
        out_bias=Key("use_bias", default=True),
        ffn_bias=Key("use_bias", default=True),
        window=WindowRule(),
        gated=False,
        tied=True,
        only={"mlp_type": "default", "norm_type": "layer_norm"},
    ),
    "falcon": Dialect(
        norm=NormRule(bias=True, parallel=Key("parallel_attn", default=True), second=Key("new_decoder_architecture")),
        qkv_bias=Key("bias"),
        out_bias=Key("bias"),
        ffn_bias=Key("bias"),
        multi_query=Key("multi_query", default=True),
        multi_query_unless=Key("new_decoder_architecture"),
        gated=False,
        width_factor=4,
        aliases=_GPT_NAMES
        | {"num_key_value_heads": ("num_kv_heads", "n_head_kv"), "intermediate_size": ("ffn_hidden_size",)},
        defaults={"max_position_embeddings": 2048},
        inert=("alibi",),
        says=("Falcon's checkpoints store a head although the class ties it to the embedding: it is counted",),
    ),
    "phi": Dialect(
        norm=NormRule(bias=True, parallel=True, second=False),
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        head_bias=True,
        qk_norm=Key("qk_layernorm"),
        gated=False,
        width_factor=4,
    ),
    "phi-msft": Dialect(
        norm=NormRule(bias=True, parallel=True, second=False),
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        head_bias=True,
        gated=False,
        width_factor=4,
        aliases=_GPT_NAMES | {"num_key_value_heads": ("n_head_kv",)},
        inert=("flash_attn", "flash_rotary", "fused_dense", "img_processor", "rotary_dim"),
    ),
    "stablelm": Dialect(
        norm=NormRule(bias=True, parallel=Key("use_parallel_residual"), second=False),
        qkv_bias=Key("use_qkv_bias"),
        qk_norm=Key("qk_layernorm"),
        qk_norm_over="heads",
    ),
}
_PHI3 = Dialect(window=WindowRule(), inert=("attention_bias", "mlp_bias", "lm_head_bias", "full_attn_mod"))
_PHI = {
    "phi3": _PHI3,
    "phi3_v": dataclasses.replace(_PHI3, says=("phi3_v is counted without its image tower",)),
    "phimoe": Dialect(
        norm=_LAYER_NORM,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        head_bias=Key("lm_head_bias"),
        window=WindowRule(),
        moe=MoeRule(layers="every", width="intermediate_size"),
        moe_modules=d.MIXTRAL_MODULES,
    ),
}
_GLM = {
    "chatglm": Dialect(
        qkv_bias=Key("add_qkv_bias"),
        out_bias=Key("add_bias_linear"),
        ffn_bias=Key("add_bias_linear"),
        aliases={
            "num_hidden_layers": ("num_layers",),
            "intermediate_size": ("ffn_hidden_size",),
            "num_key_value_heads": ("multi_query_group_num",),
            "head_dim": ("kv_channels",),
            "vocab_size": ("padded_vocab_size",),
            "max_position_embeddings": ("seq_length",),
        },
        only={"rmsnorm": True, "post_layer_norm": True, "multi_query_attention": True},
        inert=(
            "apply_query_key_layer_scaling",
            *("apply_residual_connection_post_layernorm", "attention_softmax_in_fp32", "bias_dropout_fusion"),
            *("fp32_residual_connection", "layernorm_epsilon", "original_rope", "pre_seq_len", "prefix_projection"),
            *("quantization_bit", "classifier_dropout"),
        ),
    ),
    "glm": Dialect(qkv_bias=ATTENTION_BIAS, defaults={"head_dim": 128}),
    "glm4": Dialect(qkv_bias=ATTENTION_BIAS, norm=NormRule(post=True), defaults={"head_dim": 128}),
    "glm4_moe": Dialect(
        qkv_bias=ATTENTION_BIAS,
        qk_norm=Key("use_qk_norm"),
        moe=MoeRule(
            layers="after_dense",
            width="moe_intermediate_size",
            shared_count="n_shared_experts",
            router_bias=True,
            grouped=True,
        ),
        defaults={"first_k_dense_replace": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1},
    ),
}
_POST_NORM = NormRule(pre=False, post=True)
_OLMO = {
    "olmo": Dialect(norm=NormRule(weight=False), qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, inert=("clip_qkv",)),
    "olmo2": Dialect(
        norm=_POST_NORM, qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True, qk_norm_over="all"
    ),
    "olmo3": Dialect(
        norm=_POST_NORM,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        qk_norm_over="all",
        window=WindowRule(layer_types=True, every=4),
        defaults={"sliding_window": 4096},
    ),
    "olmoe": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        qk_norm_over="all",
        moe=MoeRule(layers="every", width="intermediate_size"),
        inert=("clip_qkv",),
    ),
}
_COHERE = {
    "cohere": Dialect(
        norm=NormRule(parallel=True, second=False),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=Key("use_qk_norm"),
        qk_norm_over="heads",
        tied=True,
        inert=("logit_scale",),
    ),
    "cohere2": Dialect(
        norm=NormRule(parallel=True, second=False),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        window=WindowRule(layer_types=True, every=4, every_key="sliding_window_pattern"),
        tied=True,
        defaults={"sliding_window": 4096},
        inert=(
            "logit_scale",
            "layer_switch",
            "order_of_interleaved_layers",
            "position_embedding_type",
            "use_qk_norm",
            "rotary_pct",
            "use_embedding_sharing",
            "use_gated_activation",
            "use_parallel_block",
            "use_parallel_embedding",
            "cache_implementation",
        ),
    ),
}
_EXAONE = {
    "exaone": Dialect(
        aliases={"num_hidden_layers": ("num_layers",)},
        width_factor=4,
    ),
    "exaone4": Dialect(
        norm=_POST_NORM,
        qk_norm=True,
        window=WindowRule(layer_types=True, every=4, every_key="sliding_window_pattern"),
        defaults={"sliding_window": None},
    ),
}
_MOES = {
    "dbrx": Dialect(
        moe=MoeRule(layers="every", width="intermediate_size"),
        nested=("attn_config", "ffn_config"),
        aliases={
            "hidden_size": ("d_model",),
            "num_hidden_layers": ("n_layers",),
            "num_attention_heads": ("n_heads",),
            "num_key_value_heads": ("kv_n_heads",),
            "intermediate_size": ("ffn_hidden_size",),
            "num_experts": ("moe_num_experts",),
            "num_experts_per_tok": ("moe_top_k",),
            "max_position_embeddings": ("max_seq_len",),
        },
        inert=(
            "clip_qkv",
            "ffn_act_fn",
            "moe_jitter_eps",
            "moe_loss_weight",
            "moe_normalize_expert_weights",
            "uniform_expert_assignment",
            "attn_pdrop",
            "resid_pdrop",
            "emb_pdrop",
        ),
    ),
    "dots1": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        window=WindowRule(first_layer="max_window_layers", layer_types=True),
        moe=MoeRule(
            layers="after_dense",
            width="moe_intermediate_size",
            shared_count="n_shared_experts",
            router_bias=True,
            grouped=True,
        ),
        defaults={"first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "max_window_layers": 62},
        inert=("topk_method",),
    ),
    "granitemoe": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        moe=MoeRule(layers="every", width="intermediate_size"),
        inert=("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"),
    ),
    "bailing_moe": Dialect(
        qkv_bias=Key("use_qkv_bias"),
        out_bias=Key("use_bias"),
        ffn_bias=Key("use_bias"),
        moe=MoeRule(layers="after_dense", width="moe_intermediate_size", shared_count="num_shared_experts"),
        defaults={"first_k_dense_replace": 0},
        inert=("norm_head", "norm_softmax"),
    ),
    "hunyuan": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        qk_norm=Key("use_qk_norm"),
        kv_shared=KvRule(switch=Key("use_cla"), factor="cla_share_factor"),
        moe=MoeRule(
            layers="after_dense", width=("moe_intermediate_size", "intermediate_size"), shared_count="num_shared_expert"
        ),
        aliases={
            "head_dim": ("attention_head_dim",),
            "num_experts_per_tok": ("moe_topk",),
            "first_k_dense_replace": ("moe_layer_num_skipped",),
        },
        defaults={"first_k_dense_replace": 0},
        only={"use_mla": False, "use_mixed_mlp_moe": True, "norm_type": "rms", "group_limited_greedy": False},
        inert=(
            "capacity_factor",
            "moe_drop_tokens",
            "moe_random_routing_dropped_token",
            "n_group",
            "topk_group",
            "kv_lora_rank",
            "q_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "position_embedding_xdrope",
            "xdrope_section",
            "use_rotary_pos_emb",
            "dense_list",
            "class_num",
            "add_classification_head",
            "pool_type",
            "org_vocab_size",
            "pad_id",
        ),
        moe_modules=d.HUNYUAN_MODULES,
    ),
    "ernie4_5_moe": Dialect(
        qkv_bias=Key("use_bias"),
        out_bias=Key("use_bias"),
        ffn_bias=Key("use_bias"),
        moe=MoeRule(
            layers="span", width="moe_intermediate_size", shared_count="moe_num_shared_experts", router_bias=True
        ),
        tied=True,
        aliases={"num_experts": ("moe_num_experts",), "num_experts_per_tok": ("moe_k",)},
        defaults={"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
    ),
    "minimax_m2": Dialect(
        qk_norm=Key("use_qk_norm", default=True),
        qk_norm_over="all",
        moe=MoeRule(
            layers="every",
            width="intermediate_size",
            shared_width="shared_intermediate_size",
            router_bias=Key("use_routing_bias", default=True),
        ),
        aliases={"num_nextn_predict_layers": ("num_mtp_modules",)},
        defaults={"shared_intermediate_size": 0},
        only={"qk_norm_type": "per_layer", "mtp_transformer_layers": 1},
        inert=("use_mtp", "rotary_dim", "attn_type_list", "sliding_window"),
        moe_modules=d.MIXTRAL_MODULES,
    ),
    "mimo_v2_flash": Dialect(
        qkv_bias=ATTENTION_BIAS,
        sinks=Key("add_swa_attention_sink_bias"),
        window=WindowRule(listed="hybrid_layer_pattern"),
        windowed={
            "num_attention_heads": "swa_num_attention_heads",
            "num_key_value_heads": "swa_num_key_value_heads",
            "head_dim": "swa_head_dim",
            "v_head_dim": "swa_v_head_dim",
        },
        moe=MoeRule(
            layers="after_dense",
            width="moe_intermediate_size",
            shared_count="n_shared_experts",
            topk_method="noaux_tc",
            router_bias=True,
        ),
        defaults={"first_k_dense_replace": 0},
        only={"add_full_attention_sink_bias": False},
        inert=("attention_chunk_size", "attention_value_scale", "swa_rope_theta"),
    ),
}
DIALECTS: dict[str, Dialect] = {
    **_LLAMA,
    **_QWEN,
    **_DEEPSEEK,
    **_GEMMA,
    **_OPENAI,
    **_GPT,
    **_PHI,
    **_GLM,
    **_OLMO,
    **_COHERE,
    **_EXAONE,
    **_MOES,
}
DIALECTS |= {
    "kimi_k2": DIALECTS["deepseek_v3"],  # moonshotai's kimi_k2 names DeepseekV3ForCausalLM and its configuration class
    "hunyuan_v1_moe": DIALECTS["hunyuan"],
}
