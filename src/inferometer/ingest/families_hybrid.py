"""How families with recurrent layers spell their configs: data only, a family a row.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers 5.24.0
(`src/transformers/models/<model_type>/`); of Ling 2.5, of the modelling code in inclusionAI/Ring-V2.5 and
vllm-project/vllm (`bailing_moe_linear.py`).
"""

from dataclasses import replace
from typing import Final

from inferometer.ingest import dialect as d
from inferometer.ingest import modules as m
from inferometer.ingest.dialect import (
    Dialect,
    Key,
    Kinds,
    LayerRule,
    MoeRule,
    RecurrentRule,
    WidthRule,
)
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Attention
from inferometer.specs.recurrent import LinearAttention

_GDN = Dialect(
    layers=LayerRule(
        key="layer_types",
        words={"linear_attention": Kinds("gdn"), "full_attention": Kinds("attention")},
        period="full_attention_interval",
        at_period=Kinds("attention"),
        between=Kinds("gdn"),
    ),
    gate="wide",
    qk_norm=True,
    aliases={"num_nextn_predict_layers": ("mtp_num_hidden_layers",)},
    defaults={
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "decoder_sparse_step": 1,
    },
    only={"attn_output_gate": True, "attention_bias": False, "mtp_use_dedicated_embeddings": False},
    inert=("sliding_window", "use_sliding_window", "max_window_layers", "output_gate_type"),
)
_GDN_MOE = MoeRule(
    layers="sparse_step",
    width="moe_intermediate_size",
    shared_width="shared_expert_intermediate_size",
    shared_gate=True,
)

QWEN: Final[dict[str, Dialect]] = {
    "qwen3_next": replace(_GDN, moe=_GDN_MOE),
    "qwen3_5_text": replace(_GDN, inert=(*_GDN.inert, "mlp_only_layers", "decoder_sparse_step")),
    "qwen3_5_moe_text": replace(_GDN, moe=_GDN_MOE),
}

_LINEAR_OR_MLA = {"linear_attention": Kinds("kda"), "full_attention": Kinds("mla")}

_BAILING = Dialect(
    from_code_alone=True,
    layers=LayerRule(
        key="layer_types",
        words=_LINEAR_OR_MLA,
        period="layer_group_size",
        at_period=Kinds("mla"),
        between=Kinds("kda"),
    ),
    moe=MoeRule(
        layers="after_dense",
        width="moe_intermediate_size",
        shared_count="num_shared_experts",
        grouped=True,
        router_bias=Key("moe_router_enable_expert_bias", default=True),
    ),
    gate="head",
    aliases={
        "linear_num_heads": ("num_attention_heads",),
        "linear_head_dim": ("head_dim",),
        "linear_conv_kernel_dim": ("short_conv_kernel_size",),
        "num_shared_experts": ("n_shared_experts",),
        "n_group": ("num_expert_group",),
        "max_position_embeddings": ("model_max_length",),
    },
    defaults={"q_lora_rank": None, "first_k_dense_replace": 1, "num_shared_experts": 1, "v_head_dim": 128},
    only={
        "gated_attention_proj_granularity_type": "head_wise",
        "no_kda_lora": True,
        "use_kda_lora": False,
        "mtp_use_kda": False,
        "up_proj_norm": False,
        "value_norm": False,
        "use_nGPT": False,
        "topk_method": "noaux_tc",
        "use_bias": False,
        "use_qkv_bias": False,
        "scale_router_input": False,
    },
    inert=(
        *("num_key_value_heads", "qk_head_dim", "moe_shared_expert_intermediate_size", "mlp_layer_types"),
        *("kda_safe_gate", "kda_lower_bound", "mtp_loss_scaling_factor", "use_mla_nope", "use_qk_norm"),
        *("linear_silu", "group_norm_size", "score_function", "router_dtype", "max_window_layers"),
        *("expert_swiglu_limit_list", "share_expert_swiglu_limit_list", "output_dropout"),
    ),
)

DELTA: Final[dict[str, Dialect]] = {
    "kimi_linear": Dialect(
        mixer="mla",
        layers=LayerRule(
            key="layer_types",
            words=_LINEAR_OR_MLA,
            lists={
                "linear_attn_config.full_attn_layers": Kinds("mla"),
                "linear_attn_config.kda_layers": Kinds("kda"),
            },
            first=1,
            between=None,
        ),
        recurrent=RecurrentRule(low_rank=("decay", "gate")),
        moe=replace(d.GROUPED_MOE, shared_count="num_shared_experts"),
        aliases={
            "linear_num_heads": ("linear_attn_config.num_heads",),
            "linear_head_dim": ("linear_attn_config.head_dim",),
            "linear_conv_kernel_dim": ("linear_attn_config.short_conv_kernel_size",),
            "n_group": ("num_expert_group",),
            "num_shared_experts": ("n_shared_experts",),
            "max_position_embeddings": ("model_max_length",),
        },
        defaults={"q_lora_rank": None, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_shared_experts": 1},
        only={"use_grouped_topk": True},
        inert=(
            *("num_key_value_heads", "head_dim", "qk_head_dim", "mla_use_nope", "moe_renormalize"),
            *("moe_router_activation_func", "mlp_layer_types"),
        ),
        dotted=("linear_attn_config",),
    ),
    "bailing_hybrid": replace(_BAILING, without=("short_conv_kernel_size", "bailing_moe_v2_5")),
    "bailing_moe_v2_5": replace(
        _BAILING,
        layers=LayerRule(
            key="layer_types",
            words={"linear_attention": Kinds("lightning"), "full_attention": Kinds("mla")},
            period="layer_group_size",
            at_period=Kinds("mla"),
            between=Kinds("lightning"),
        ),
        recurrent=RecurrentRule(qk_norm=Key("use_qk_norm", default=True)),
        gate="none",
        defaults={**_BAILING.defaults, "block_size": 64, "group_norm_size": 4, "topk_group": 4},
        inert=tuple(name for name in _BAILING.inert if name not in ("group_norm_size", "use_qk_norm")),
        modules={LinearAttention: m.BAILING_MODULES},
    ),
    "minimax_m1": Dialect(
        layers=LayerRule(
            key="attn_type_list",
            words={
                **dict.fromkeys(("0", "linear_attention"), Kinds("lightning")),
                **dict.fromkeys(("1", "full_attention"), Kinds("attention")),
            },
        ),
        moe=MoeRule(layers="every", width="intermediate_size", shared_width="shared_intermediate_size"),
        aliases={"attn_type_list": ("layer_types",)},
        defaults={"block_size": 256, "group_norm_size": 1, "shared_intermediate_size": 0},
        inert=(
            *(
                f"layernorm_{part}_{factor}"
                for part in ("full_attention", "linear_attention", "mlp")
                for factor in ("alpha", "beta")
            ),
            *("postnorm", "shared_moe_mode", "sliding_window"),
        ),
        modules={Moe: m.MIXTRAL_MODULES, LinearAttention: m.LIGHTNING_MODULES},
    ),
}

_W123 = {"gate": "w1", "up": "w3", "down": "w2"}

_LFM2 = Dialect(
    layers=LayerRule(
        key="layer_types",
        words={"conv": Kinds("short-conv"), "full_attention": Kinds("attention")},
        lists={"full_attn_idxs": Kinds("attention")},
        between=Kinds("short-conv"),
    ),
    qk_norm=True,
    tied=True,
    aliases={"tie_word_embeddings": ("tie_embedding",)},
    defaults={"conv_L_cache": 3},
    inert=(
        *("block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu"),
        *("block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc"),
        *("theta",),
    ),
    modules={
        Attention: {**m.ATTENTION_MODULES, "o": ("self_attn.out_proj",)},
        Ffn: {name: (f"feed_forward.{w}",) for name, w in _W123.items()},
        Moe: {
            "router": ("feed_forward.gate",),
            **{name: (f"feed_forward.experts.{{e}}.{w}",) for name, w in _W123.items()},
        },
    },
)

CONV: Final[dict[str, Dialect]] = {
    "lfm2": replace(
        _LFM2,
        width=WidthRule(
            switch=Key("block_auto_adjust_ff_dim", default=True),
            factor="block_ffn_dim_multiplier",
            multiple_of="block_multiple_of",
        ),
        aliases={**_LFM2.aliases, "intermediate_size": ("block_ff_dim",)},
        defaults={**_LFM2.defaults, "block_multiple_of": 256},
    ),
    "lfm2_moe": replace(
        _LFM2,
        from_code_alone=True,
        moe=MoeRule(
            layers="after_dense",
            width="moe_intermediate_size",
            router_bias=Key("use_expert_bias", default=True),
        ),
        aliases={**_LFM2.aliases, "first_k_dense_replace": ("num_dense_layers",)},
        defaults={**_LFM2.defaults, "first_k_dense_replace": 2},
    ),
}

KIMI: Final[dict[str, Dialect]] = {
    "kimi_k3_text": replace(
        DELTA["kimi_linear"],
        gate="wide",
        recurrent=RecurrentRule(low_rank=("decay",)),
        residual="attention",
        plain=("latent_down", "latent_up"),  # SGLang 0.5.23 loads them unquantised (`models/kimi_k3.py`)
        moe=replace(
            d.GROUPED_MOE,
            shared_count="num_shared_experts",
            latent="routed_expert_hidden_size",
            latent_norm=Key("latent_moe_use_norm"),
        ),
        only={
            "use_grouped_topk": True,
            "mla_use_output_gate": True,
            "linear_attn_config.use_full_rank_gate": True,
        },
        inert=(
            *DELTA["kimi_linear"].inert,
            *("activation_situ_beta", "activation_situ_linear_beta", "linear_attn_config.gate_lower_bound"),
            *("topk_method", "routed_scaling_factor", "hidden_act"),
        ),
    ),
}
