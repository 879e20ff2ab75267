"""How families of wide experts and odd residual streams spell their configs: data only, a family a row.

Class defaults and rules are of huggingface/transformers 5.24.0 (`src/transformers/models/<model_type>/`); where a
family has no class there, of SGLang 0.5.23 (`python/sglang/srt/models/`).
"""

from dataclasses import replace
from typing import Final

from inferometer.ingest import dialect as d
from inferometer.ingest import modules as m
from inferometer.ingest.dialect import ATTENTION_BIAS, Dialect, Kinds, LayerRule, MoeRule, NormRule, WindowRule
from inferometer.ingest.small_rules import DrafterRule
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Mla

_MLA_AND_DENSE = Kinds(mixer="mla", ffn="dense")

_LONGCAT = Dialect(
    unit=(_MLA_AND_DENSE, Kinds(mixer=d.NO_BLOCK, ffn="moe"), _MLA_AND_DENSE),
    lookups="ngram",
    drafter=DrafterRule(dense=True),
    dense_width="ffn_hidden_size",
    moe=MoeRule(
        layers="every",
        width="expert_ffn_hidden_size",
        zero="zero_expert_num",
        router_bias=True,
        beside=True,
    ),
    aliases={"num_hidden_layers": ("num_layers",), "num_experts_per_tok": ("moe_topk",)},
    only={"zero_expert_type": "identity", "router_bias": False},
    inert=(
        *("num_key_value_heads", "head_dim", "qk_head_dim", "routed_scaling_factor", "norm_topk_prob", "topk_method"),
        *("mla_scale_q_lora", "mla_scale_kv_lora", "attention_method", "nextn_use_scmoe", "output_router_logits"),
        *("rounter_params_dtype", "params_dtype", "n_group", "topk_group"),
    ),
    modules={
        Mla: {
            name: tuple(f"self_attn.{i}.{module.partition('.')[2]}" for module in modules for i in (0, 1))
            for name, modules in m.MLA_MODULES.items()
        },
        Ffn: {name: (f"mlps.0.{name}_proj", f"mlps.1.{name}_proj") for name in ("gate", "up", "down")},
        Moe: {**m.MOE_MODULES, "router": ("mlp.router.classifier",)},
    },
)
"""Two attentions and feed-forwards a layer, and experts that take what the first feed-forward takes, added last."""

LONGCAT: Final[dict[str, Dialect]] = {
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": replace(_LONGCAT),
}

_STEP = Dialect(
    qk_norm=True,
    gate="head",
    window=WindowRule(layer_types=True, drafted=True),
    windowed={
        "num_attention_heads": "attention_other_setting.num_attention_heads",
        "num_key_value_heads": "attention_other_setting.num_attention_groups",
        "head_dim": "attention_other_setting.head_dim",
    },
    moe=MoeRule(layers="listed", width="moe_intermediate_size", shared_width="share_expert_dim", router_bias=True),
    drafter=DrafterRule(windowed=True, dense=True),
    aliases={
        "num_key_value_heads": ("num_attention_groups",),
        "num_experts": ("moe_num_experts",),
        "num_experts_per_tok": ("moe_top_k",),
        "share_expert_dim": ("share_expert_dims",),
    },
    only={"use_head_wise_attn_gate": True, "use_qk_norm": True, "att_impl_type": "GQA", "use_moe": True},
    dotted=("attention_other_setting",),
    inert=(
        *(
            "attention_other_setting.attention_type",
            "attention_other_setting.true_head_dim",
            "moe_router_scaling_factor",
        ),
        *("swiglu_limits", "swiglu_limits_shared", "use_moe_router_bias", "need_fp32_gate", "moe_router_activation"),
        *("use_rope_layers", "yarn_only_types", "partial_rotary_factors", "rope_theta", "norm_expert_weight"),
        *("moe_every_n_layer", "moe_layer_offset", "zero_centered", "max_seq_len", "use_mfa"),
    ),
    modules={
        Moe: {
            **m.MOE_MODULES,
            "router": ("moe.gate", "mlp.gate"),
            **{n: (f"moe.{n}_proj", f"mlp.experts.{{e}}.{n}_proj") for n in ("gate", "up", "down")},
            "shared_gate_proj": ("share_expert.gate_proj", "mlp.shared_experts.gate_proj"),
            "shared_up": ("share_expert.up_proj", "mlp.shared_experts.up_proj"),
            "shared_down": ("share_expert.down_proj", "mlp.shared_experts.down_proj"),
        }
    },
    says=(
        "The released config was at hand in part only",
        "The drafter's layers are windowed and dense, as in SGLang's and transformers' classes",
    ),
)

STEP: Final[dict[str, Dialect]] = {"step3p5": _STEP}

HUNYUAN: Final[dict[str, Dialect]] = {
    "hy_v3": Dialect(
        qk_norm=True,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        layers=LayerRule(
            key="mlp_layer_types", words={"dense": Kinds(ffn="dense"), "sparse": Kinds(ffn="moe")}, optional=True
        ),
        moe=MoeRule(
            layers="after_dense", width="moe_intermediate_size", shared_count="num_shared_experts", router_bias=True
        ),
        defaults={"first_k_dense_replace": 1, "head_dim": 128},
        only={"mlp_bias": False},
        inert=("router_scaling_factor", "enable_moe_fp32_combine", "enable_lm_head_fp32", "qk_norm", "route_norm"),
        from_code_alone=True,
    ),
}

INKLING: Final[dict[str, Dialect]] = {
    "inkling_text": Dialect(
        qk_norm=True,
        norm=NormRule(embedding=True),
        window=WindowRule(key="sliding_window_size", numbered="local_layer_ids", every=6),
        windowed={
            "num_attention_heads": "swa_num_attention_heads",
            "num_key_value_heads": "swa_num_key_value_heads",
            "head_dim": "swa_head_dim",
        },
        conv="sconv_kernel_size",
        relative=("d_rel", "rel_extent"),
        out_scale=True,
        dense_width="dense_intermediate_size",
        moe=MoeRule(
            layers="after_dense",
            width=("moe_intermediate_size", "intermediate_size"),
            shared_count="n_shared_experts",
            routed_shared=True,
            router_bias=True,
        ),
        drafter=DrafterRule(count="num_mtp_layers"),
        aliases={
            "first_k_dense_replace": ("dense_mlp_idx",),
            "sconv_kernel_size": ("conv_kernel_size",),
            "max_position_embeddings": ("model_max_length",),
            "sliding_window_size": ("sliding_window",),
        },
        defaults={
            "first_k_dense_replace": 0,
            "max_position_embeddings": 131072,
            "sconv_kernel_size": 4,
            "d_rel": 16,
            "rel_extent": 1024,
            "n_shared_experts": 2,
        },
        only={"shared_expert_sink": True},
        inert=(
            *("unpadded_vocab_size", "route_scale", "log_scaling_n_floor", "log_scaling_alpha", "hidden_act"),
            *("logits_mup_width_multiplier", "rms_norm_eps_moe_gate", "chain_hidden_post_norm"),
            *("mtp_hidden_states_first", "mtp_local_layer_ids"),
        ),
        says=("The released config was at hand in part only",),
    ),
}
"""No rotations: logits by distance, and short convolutions. Heads of the released checkpoint are not padded."""
