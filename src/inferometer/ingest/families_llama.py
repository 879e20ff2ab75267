"""How Llama and its kin, Qwen and DeepSeek spell their configs: data only. A new family is a row here, not a function.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers
(`src/transformers/models/<model_type>/`); of families without a class there, of the modelling code beside their
checkpoints on the hub.
"""

from typing import Final, Literal

from inferometer.ingest import dialect as d
from inferometer.ingest import modules as m
from inferometer.ingest.dialect import (
    ATTENTION_BIAS,
    MLP_BIAS,
    NO_BLOCK,
    Dialect,
    Key,
    Kinds,
    LayerRule,
    MoeRule,
    NormRule,
    WindowRule,
)
from inferometer.specs.feedforward import Ffn, Moe

_QWEN_WINDOW = WindowRule(switch=Key("use_sliding_window"), first_layer="max_window_layers", layer_types=True)

_MLA_INERT = ("num_key_value_heads", "head_dim", "qk_head_dim")

_LAYER_NORM = NormRule(bias=True)

_FFNS: Final[tuple[Literal["dense", "matrix", "none"], ...]] = ("dense", "matrix", "none")

LLAMA: Final[dict[str, Dialect]] = {
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
        defaults={
            "num_key_value_heads": 8,
            "interleave_moe_layer_step": 1,
            "attention_chunk_size": 8192,
            "head_dim": 128,
        },
        inert=(
            "use_qk_norm",  # an L2 norm, without weights
            *("for_llm_compressor", "attn_temperature_tuning", "attn_scale", "floor_scale", "cache_implementation"),
        ),
        modules={Ffn: m.LLAMA4_FFN_MODULES, Moe: m.LLAMA4_MODULES},
    ),
    "nemotron-nas": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        blocks=d.BlockRule(
            key="block_configs",
            mixer="attention",
            ffn="ffn",
            none="no_op",
            matrix="replace_with_linear",
            group="n_heads_in_group",
            multiple="ffn_mult",
            round_to=256,
            never=("sparsify", "num_sink_tokens", "window_length"),
            inert=("unshifted_sink", "use_prefill_window_in_sink_attention"),
        ),
        layers=LayerRule(
            key="block_configs",
            words={
                f"{mixer}/{ffn}": Kinds(mixer=mixer, ffn=ffn)
                for mixer in ("attention", "matrix", NO_BLOCK)
                for ffn in _FFNS
            },
        ),
        only={"parallel_blocks": None},
    ),
    "deci": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        instead={"num_key_value_heads": "num_key_value_heads_per_layer"},
        from_code_alone=True,
        inert=("naive_attention_prefill", "naive_attention_decode_batched", "naive_attention_decode_single"),
    ),
    "arcee": Dialect(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, ffn_bias=MLP_BIAS, gated=False),
    "mllama_text_model": Dialect(
        layers=LayerRule(lists={"cross_attention_layers": Kinds(mixer="cross")}),
        cross_gates=2,
        more_rows=8,
        only={"tie_word_embeddings": False},
        says=("without image tokens the layers of cross-attention are skipped: their weights are held and not read",),
    ),
    "mistral": Dialect(window=WindowRule(), defaults={"num_key_value_heads": 8, "sliding_window": 4096}),
    "ministral3": Dialect(window=WindowRule(), defaults={"num_key_value_heads": 8, "head_dim": 128}),
    "mixtral": Dialect(
        window=WindowRule(),
        moe=MoeRule(layers="every", width="intermediate_size"),
        modules={Moe: m.MIXTRAL_MODULES},
        defaults={"num_key_value_heads": 8},
    ),
    "baichuan": Dialect(aliases={"max_position_embeddings": ("model_max_length",)}, inert=("model_max_length",)),
    "internlm": Dialect(qkv_bias=Key("bias", default=True), out_bias=Key("bias", default=True)),
    "internlm2": Dialect(qkv_bias=Key("bias"), out_bias=Key("bias")),
    "internlm3": Dialect(
        qkv_bias=Key("qkv_bias"),
        out_bias=Key("bias"),
        ffn_bias=Key("bias"),
        defaults={"head_dim": 128, "num_key_value_heads": 2},
    ),
    "orion": Dialect(norm=_LAYER_NORM, qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS),
    "seed_oss": Dialect(
        qkv_bias=Key("attention_bias", default=True),
        out_bias=Key("attention_out_bias"),
        ffn_bias=MLP_BIAS,
        defaults={"num_key_value_heads": 8, "head_dim": 128},
        inert=("residual_dropout",),
    ),
    "smollm3": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        tied=True,
        only={"use_sliding_window": False},
        inert=("no_rope_layers", "no_rope_layer_interval", "max_window_layers", "sliding_window", "layer_types"),
        defaults={"num_key_value_heads": 4},
    ),
    "granite": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        ffn_bias=MLP_BIAS,
        inert=("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"),
    ),
    "bitnet": Dialect(
        norm=NormRule(sub=True), qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, defaults={"num_key_value_heads": 5}
    ),
    "ernie4_5": Dialect(
        qkv_bias=Key("use_bias"),
        out_bias=Key("use_bias"),
        ffn_bias=Key("use_bias"),
        tied=True,
        defaults={"num_key_value_heads": 2, "head_dim": 128},
    ),
}

QWEN: Final[dict[str, Dialect]] = {
    "qwen": Dialect(
        qkv_bias=True,
        width_divisor=2,
        aliases={"head_dim": ("kv_channels",), "max_position_embeddings": ("seq_length",)},
        only={"no_bias": True},
        inert=("use_flash_attn", "use_dynamic_ntk", "use_logn_attn", "padded_vocab_size", "onnx_safe", "seq_length"),
    ),
    "qwen2": Dialect(
        qkv_bias=True,
        window=_QWEN_WINDOW,
        defaults={"num_key_value_heads": 32, "max_window_layers": 28},
        inert=("attention_bias",),
    ),
    "qwen2_moe": Dialect(
        qkv_bias=Key("qkv_bias", default=True),
        window=_QWEN_WINDOW,
        moe=MoeRule(
            layers="sparse_step",
            width="moe_intermediate_size",
            shared_width="shared_expert_intermediate_size",
            shared_gate=True,
        ),
        defaults={
            "num_key_value_heads": 16,
            "max_window_layers": 28,
            "decoder_sparse_step": 1,
            "shared_expert_intermediate_size": 5632,
        },
    ),
    "qwen3": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        window=_QWEN_WINDOW,
        defaults={"num_key_value_heads": 32, "max_window_layers": 28, "head_dim": 128},
    ),
    "qwen3_moe": Dialect(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        window=WindowRule(switch=Key("use_sliding_window"), first_layer="max_window_layers"),
        moe=MoeRule(layers="sparse_step", width="moe_intermediate_size"),
        defaults={"num_key_value_heads": 4, "max_window_layers": 0, "decoder_sparse_step": 1},
    ),
    "mimo": Dialect(qkv_bias=True, window=_QWEN_WINDOW, defaults={"max_window_layers": 28}, inert=("attention_bias",)),
}

DEEPSEEK: Final[dict[str, Dialect]] = {
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
        moe=d.NOAUX_MOE,
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
