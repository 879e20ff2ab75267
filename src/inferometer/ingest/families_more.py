"""How Gemma, OLMo, Cohere, EXAONE and several families of experts spell their configs: data only, a family a row.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers
(`src/transformers/models/<model_type>/`); of families without a class there, of the modelling code beside their
checkpoints on the hub.
"""

from typing import Final

from inferometer.ingest import dialect as d
from inferometer.ingest import modules as m
from inferometer.ingest.dialect import (
    ATTENTION_BIAS,
    MLP_BIAS,
    Dialect,
    GateRule,
    InputsRule,
    Key,
    Kinds,
    KvRule,
    LayerRule,
    MoeRule,
    NormRule,
    WindowRule,
)
from inferometer.ingest.small_rules import DrafterRule
from inferometer.specs.feedforward import Moe

_POST_NORM = NormRule(pre=False, post=True)

GEMMA: Final[dict[str, Dialect]] = {
    "gemma": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        tied=True,
        defaults={"num_key_value_heads": 16, "head_dim": 256},
    ),
    "gemma2": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        norm=NormRule(post=True),
        window=WindowRule(layer_types=True, every=2),
        tied=True,
        defaults={"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
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
    "gemma4_text": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        norm=NormRule(post=True),
        window=WindowRule(layer_types=True, every=6, last_full=True),
        unwindowed={"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"},
        v_from_k=Key("attention_k_eq_v"),
        moe=MoeRule(
            layers="every",
            width=("moe_intermediate_size", "expert_intermediate_size"),
            shared_width="intermediate_size",
            router_scales=True,
            branch_norms=3,
            switch=Key("enable_moe_block"),
        ),
        tied=True,
        aliases={"num_experts_per_tok": ("top_k_experts",)},
        kv_shared=KvRule(last="num_kv_shared_layers", k_norm=False, doubled=Key("use_double_wide_mlp")),
        layer_inputs=InputsRule(width="hidden_size_per_layer_input", rows="vocab_size_per_layer_input"),
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 256,
            "global_head_dim": 512,
            "sliding_window": 512,
            "vocab_size": 262144,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262144,
        },
        inert=("use_bidirectional_attention",),
        modules={Moe: m.GEMMA4_MODULES},
    ),
}

OLMO: Final[dict[str, Dialect]] = {
    "molmo": Dialect(
        qkv_bias=Key("qkv_bias"),
        width_divisor=2,
        instead={"vocab_size": "embedding_size"},
        more_rows=128,
        only={
            "attention_layer_norm": False,
            "norm_after": False,
            "layer_norm_type": "rms",
            "clip_qkv": None,
            "weight_tying": False,
        },
        inert=("use_position_ids",),
        says=("molmo is counted without its image tower and projector, of which the config says nothing",),
    ),
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

COHERE: Final[dict[str, Dialect]] = {
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

EXAONE: Final[dict[str, Dialect]] = {
    "exaone": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        aliases={"num_hidden_layers": ("num_layers",)},
        defaults={"num_key_value_heads": 8, "intermediate_size": 14336},
    ),
    "exaone4": Dialect(
        norm=_POST_NORM,
        qk_norm=True,
        window=WindowRule(layer_types=True, every=4, every_key="sliding_window_pattern"),
        defaults={"num_key_value_heads": 32, "sliding_window": 4096},
    ),
}

MOES: Final[dict[str, Dialect]] = {
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
        defaults={"num_key_value_heads": 1},
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
        moe=d.GROUPED_MOE,
        defaults={
            "num_key_value_heads": 32,
            "first_k_dense_replace": 0,
            "n_group": 1,
            "topk_group": 1,
            "max_window_layers": 62,
        },
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
        only={"use_bias": False},
        moe=MoeRule(layers="after_dense", width="moe_intermediate_size", shared_count="num_shared_experts"),
        defaults={"first_k_dense_replace": 0},
        inert=("norm_head", "norm_softmax"),
    ),
    "hunyuan": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
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
        only={
            "vit_type": None,
            "mlp_bias": False,
            "use_mla": False,
            "use_mixed_mlp_moe": True,
            "norm_type": "rms",
            "group_limited_greedy": False,
        },
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
            *("anyres_pooling_size", "anyres_vit_max_image_size", "anyres_vit_two_views", "skip_cls_token"),
            *("im_start_id", "im_end_id", "im_newline_id", "text_start_id", "text_end_id", "mask_init_id"),
            *("video_start_id", "video_end_id", "num_media_embeds", "vit_add_patchemb_bias", "vit_input_resolution"),
            *("vit_mapping_type", "vit_norm_type", "vit_patch", "vit_remove_prenorm", "vit_token"),
            *("vit_used_rms_norm", "vit_path", "vit_type"),
        ),
        modules={Moe: m.HUNYUAN_MODULES},
    ),
    "ernie4_5_moe": Dialect(
        moe=MoeRule(
            layers="span", width="moe_intermediate_size", shared_count="moe_num_shared_experts", router_bias=True
        ),
        tied=True,
        only={"use_bias": False},
        aliases={"num_experts": ("moe_num_experts",), "num_experts_per_tok": ("moe_k",)},
        defaults={
            "num_key_value_heads": 4,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": -1,
            "moe_layer_interval": 1,
        },
    ),
    "laguna": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        instead={"num_attention_heads": "num_attention_heads_per_layer"},
        gate=GateRule(key="gating", kinds={True: "head", "per-head": "head", "per-element": "wide"}),
        window=WindowRule(layer_types=True, every=1),
        layers=LayerRule(
            key="mlp_layer_types", words={"dense": Kinds(ffn="dense"), "sparse": Kinds(ffn="moe")}, optional=True
        ),
        moe=MoeRule(
            layers="after_dense",
            width="moe_intermediate_size",
            shared_width="shared_expert_intermediate_size",
            router_bias=True,
        ),
        defaults={"head_dim": 128, "sliding_window": 512, "gating": True, "first_k_dense_replace": 1},
        only={"moe_apply_router_weight_on_input": False},
        inert=(
            *("moe_routed_scaling_factor", "moe_router_logit_softcapping", "mlp_only_layers", "decoder_sparse_step"),
            *("swa_rope_parameters", "num_key_value_heads_per_layer"),
        ),
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
        defaults={"num_key_value_heads": 8, "shared_intermediate_size": 0, "head_dim": 128},
        only={"qk_norm_type": "per_layer", "mtp_transformer_layers": 1},
        inert=("use_mtp", "rotary_dim", "attn_type_list", "sliding_window"),
        modules={Moe: m.MIXTRAL_MODULES},
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
        moe=d.NOAUX_MOE,
        defaults={"num_key_value_heads": 4, "first_k_dense_replace": 0},
        drafter=DrafterRule(windowed=True, dense=True),
        only={"add_full_attention_sink_bias": False},
        inert=("attention_chunk_size", "attention_value_scale", "swa_rope_theta"),
    ),
}
