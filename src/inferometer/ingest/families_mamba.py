"""How families with Mamba layers spell their configs: data only, a family a row.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers 5.24.0
(`src/transformers/models/<model_type>/`).
"""

from typing import Final

from inferometer.ingest import dialect as d
from inferometer.ingest.dialect import ATTENTION_BIAS, MLP_BIAS, Dialect, Key, Kinds, LayerRule, MoeRule, RecurrentRule
from inferometer.ingest.small_rules import DrafterRule
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Attention

_MAMBA_INERT = (
    *("time_step_floor", "time_step_limit", "time_step_max", "time_step_min", "time_step_scale", "time_step_rank"),
    *("time_step_init_scheme", "rescale_prenorm_residual", "residual_in_fp32", "norm_before_gate", "expand"),
    *("use_mamba_kernels", "num_logits_to_keep", "mamba_hidden_act", "hidden_dropout"),
)
_MULTIPLIERS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")

_MIXER_ATTENTION = {name: (f"mixer.{name}_proj",) for name in "qkvo"}
_MIXER_FFN = {"up": ("mixer.up_proj",), "down": ("mixer.down_proj",)}
_MIXER_MOE = {
    "router": ("mixer.gate",),
    "up": ("mixer.experts.{e}.up_proj",),
    "down": ("mixer.experts.{e}.down_proj",),
    "latent_down": ("mixer.fc1_latent_proj",),
    "latent_up": ("mixer.fc2_latent_proj",),
    "shared_up": ("mixer.shared_experts.up_proj",),
    "shared_down": ("mixer.shared_experts.down_proj",),
}
_FEED_FORWARD = {name: (f"feed_forward.{name}_proj",) for name in ("gate", "up", "down")}

MAMBA: Final[dict[str, Dialect]] = {
    "mamba2": Dialect(
        mixer="mamba2",
        ffn="none",
        recurrent=RecurrentRule(in_bias=Key("use_bias"), out_bias=Key("use_bias")),
        aliases={
            "mamba_n_heads": ("num_heads",),
            "mamba_d_head": ("head_dim",),
            "mamba_d_state": ("state_size",),
            "mamba_n_groups": ("n_groups",),
            "mamba_d_conv": ("conv_kernel",),
            "mamba_conv_bias": ("use_conv_bias",),
            "mamba_chunk_size": ("chunk_size",),
        },
        defaults={"mamba_n_groups": 8, "mamba_d_conv": 4, "mamba_chunk_size": 256},
        inert=(*_MAMBA_INERT, "intermediate_size"),
        unbounded=True,
    ),
    "nemotron_h": Dialect(
        layers=LayerRule(
            key="hybrid_override_pattern",
            words={
                **dict.fromkeys(("M", "mamba", "linear_attention"), Kinds("mamba2", "none")),
                **dict.fromkeys(("*", "attention", "full_attention"), Kinds("attention", "none")),
                **dict.fromkeys(("E", "moe"), Kinds(d.NO_BLOCK, "moe")),
                **dict.fromkeys(("-", "mlp"), Kinds(d.NO_BLOCK, "dense")),
            },
        ),
        recurrent=RecurrentRule(in_bias=Key("use_bias"), out_bias=Key("use_bias")),
        ffn_bias=MLP_BIAS,
        gated=False,
        moe=MoeRule(
            layers="every",
            width="moe_intermediate_size",
            shared_width="moe_shared_expert_intermediate_size",
            grouped=True,
            router_bias=True,
            gated=False,
            latent="moe_latent_size",
        ),
        drafter=DrafterRule(pattern="mtp_layers_block_type"),
        aliases={
            "hybrid_override_pattern": ("layers_block_type", "layer_types"),
            "mtp_layers_block_type": ("mtp_hybrid_override_pattern",),
            "mamba_n_heads": ("mamba_num_heads",),
            "mamba_d_head": ("mamba_head_dim",),
            "mamba_d_state": ("ssm_state_size", "mamba_state_dim"),
            "mamba_n_groups": ("n_groups",),
            "mamba_d_conv": ("conv_kernel",),
            "mamba_conv_bias": ("use_conv_bias",),
            "mamba_chunk_size": ("chunk_size",),
            "head_dim": ("attention_head_dim",),
        },
        defaults={"head_dim": 128, "mamba_n_groups": 8, "mamba_d_conv": 4, "mamba_chunk_size": 128},
        only={
            "tie_word_embeddings": False,
            "n_shared_experts": 1,
            "attention_bias": False,
            "mlp_hidden_act": "relu2",
        },
        inert=(
            *(*_MAMBA_INERT, "mamba_proj_bias", "sliding_window", "moe_shared_expert_overlap", "mtp_layers_block_type"),
            *("norm_eps", "mamba_expand"),
        ),
        modules={Attention: _MIXER_ATTENTION, Ffn: _MIXER_FFN, Moe: _MIXER_MOE},
        mtp=False,
    ),
    "granitemoehybrid": Dialect(
        from_code_alone=True,
        layers=LayerRule(
            key="layer_types",
            words={
                **dict.fromkeys(("mamba", "linear_attention"), Kinds("mamba2")),
                **dict.fromkeys(("attention", "full_attention"), Kinds("attention")),
            },
        ),
        recurrent=RecurrentRule(in_bias=Key("mamba_proj_bias"), out_bias=Key("mamba_proj_bias")),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        dense_width="shared_intermediate_size",
        moe=MoeRule(layers="every", width="intermediate_size", shared_width="shared_intermediate_size", least=1),
        aliases={"layer_types": ("layers_block_type",)},
        defaults={
            "mamba_d_head": "auto",
            "mamba_n_groups": 1,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_chunk_size": 256,
        },
        inert=(
            *(*_MULTIPLIERS, "position_embedding_type", "time_step_limit", "time_step_min", "time_step_max"),
            *("normalization_function", "init_method"),
        ),
        modules={
            Ffn: {
                "gate": ("shared_mlp.input_linear",),
                "up": ("shared_mlp.input_linear",),
                "down": ("shared_mlp.output_linear",),
            },
            Moe: {
                "router": ("block_sparse_moe.router.layer",),
                "gate": ("block_sparse_moe.input_linear",),
                "up": ("block_sparse_moe.input_linear",),
                "down": ("block_sparse_moe.output_linear",),
                "shared_gate_proj": ("shared_mlp.input_linear",),
                "shared_up": ("shared_mlp.input_linear",),
                "shared_down": ("shared_mlp.output_linear",),
            },
        },
    ),
    "falcon_h1": Dialect(
        from_code_alone=True,
        mixer="attention+mamba2",
        recurrent=RecurrentRule(
            norm=Key("mamba_rms_norm"), in_bias=Key("mamba_proj_bias"), out_bias=Key("projectors_bias")
        ),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        defaults={
            "mamba_d_head": "auto",
            "mamba_n_groups": 1,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_chunk_size": 256,
        },
        inert=(
            *("time_step_limit", "time_step_min", "time_step_max", "time_step_rank", "time_step_floor"),
            *("lm_head_multiplier", "embedding_multiplier", "mlp_multipliers", "key_multiplier", "ssm_multipliers"),
            *("attention_out_multiplier", "attention_in_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"),
            *("mamba_norm_before_gate", "num_logits_to_keep", "mamba_use_mlp", "mlp_expansion_factor"),
            *("attn_layer_indices",),
        ),
        modules={Ffn: _FEED_FORWARD},
    ),
    "jamba": Dialect(
        from_code_alone=True,
        layers=LayerRule(
            key="layers_block_type",
            words={"mamba": Kinds("mamba1"), "attention": Kinds("attention")},
            period="attn_layer_period",
            offset="attn_layer_offset",
            at_period=Kinds("attention"),
            between=Kinds("mamba1"),
        ),
        recurrent=RecurrentRule(in_bias=Key("mamba_proj_bias"), inner_norms=True),
        moe=MoeRule(layers="period", width="intermediate_size", least=2),
        defaults={
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": "auto",
        },
        only={"mamba_inner_layernorms": True},
        inert=("use_mamba_kernels", "num_logits_to_keep", "sliding_window", "use_mambapy", "use_associative_scan"),
        modules={
            Ffn: _FEED_FORWARD,
            Moe: {
                "router": ("feed_forward.router",),
                **{name: (f"feed_forward.experts.{{e}}.{name}_proj",) for name in ("gate", "up", "down")},
            },
        },
    ),
}
