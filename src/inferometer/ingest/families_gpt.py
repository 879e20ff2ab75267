"""How GPT and its kin, Phi and GLM spell their configs: data only. A new family is a row here, not a function.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers
(`src/transformers/models/<model_type>/`); of families without a class there, of the modelling code beside their
checkpoints on the hub.
"""

import dataclasses
from typing import Final

from inferometer.ingest import dialect as d
from inferometer.ingest import modules as m
from inferometer.ingest.dialect import ATTENTION_BIAS, Dialect, Key, MoeRule, NormRule, WindowRule
from inferometer.specs.feedforward import Moe

_GPT_NAMES = {
    "hidden_size": ("n_embd", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner",),
    "max_position_embeddings": ("n_positions", "seq_length", "n_ctx"),
}

_LAYER_NORM = NormRule(bias=True)

_PHI3 = Dialect(window=WindowRule(), inert=("attention_bias", "mlp_bias", "lm_head_bias", "full_attn_mod"))

OPENAI: Final[dict[str, Dialect]] = {
    "gpt_oss": Dialect(
        qkv_bias=Key("attention_bias", default=True),
        out_bias=Key("attention_bias", default=True),
        sinks=True,
        window=WindowRule(layer_types=True, every=2),
        moe=MoeRule(layers="every", width="intermediate_size", bias=True, router_linear_bias=True),
        aliases={"num_experts_per_tok": ("experts_per_token",)},
        defaults={"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128},
        inert=("initial_context_length", "swiglu_limit"),
        modules={Moe: m.FUSED_MODULES},
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

GPT: Final[dict[str, Dialect]] = {
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
        defaults={"num_key_value_heads": 2},
    ),
    "falcon": Dialect(
        norm=NormRule(
            bias=True,
            parallel=Key("parallel_attn", default=True),
            second=Key("new_decoder_architecture"),
            count="num_ln_in_parallel_attn",
        ),
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
        qk_norm_bias=True,
        gated=False,
        defaults={"intermediate_size": 8192},
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
        defaults={"num_key_value_heads": 32},
    ),
}

PHI: Final[dict[str, Dialect]] = {
    "phi3": _PHI3,
    "phi3_v": dataclasses.replace(_PHI3, inert=(*_PHI3.inert, "embd_layer")),
    "phimoe": Dialect(
        norm=_LAYER_NORM,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        head_bias=Key("lm_head_bias"),
        window=WindowRule(),
        moe=MoeRule(layers="every", width="intermediate_size"),
        modules={Moe: m.MIXTRAL_MODULES},
        defaults={"num_key_value_heads": 8},
    ),
}

GLM: Final[dict[str, Dialect]] = {
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
    "glm": Dialect(qkv_bias=Key("attention_bias", default=True), defaults={"num_key_value_heads": 2, "head_dim": 128}),
    "glm4": Dialect(
        qkv_bias=Key("attention_bias", default=True),
        norm=NormRule(post=True),
        defaults={"num_key_value_heads": 2, "head_dim": 128},
    ),
    "glm4_moe": Dialect(
        qkv_bias=ATTENTION_BIAS,
        qk_norm=Key("use_qk_norm"),
        moe=d.GROUPED_MOE,
        defaults={
            "num_key_value_heads": 8,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
}
