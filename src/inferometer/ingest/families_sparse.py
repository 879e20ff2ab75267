"""How families of sparse attention spell their configs: data only, a family a row.

Class defaults and rules are of the configuration and modelling classes in huggingface/transformers
(`src/transformers/models/<model_type>/`), release 5.24.0. Layouts of caches are of sgl-project/sglang.
"""

from dataclasses import replace
from typing import Final

from inferometer.ingest import dialect as d
from inferometer.ingest import modules as m
from inferometer.ingest.dialect import Dialect, IndexRule, Key, Kinds, LayerRule, MoeRule, WindowRule
from inferometer.ingest.families_llama import DEEPSEEK
from inferometer.ingest.reader import Default
from inferometer.ingest.small_rules import LatentRule
from inferometer.specs.feedforward import Moe
from inferometer.specs.mixers import Compressed

_MLA_INERT = ("num_key_value_heads", "head_dim", "qk_head_dim", "rope_interleave", "indexer_rope_interleave")

_BY_MLP = LayerRule(
    key="mlp_layer_types", words={"dense": Kinds(ffn="dense"), "sparse": Kinds(ffn="moe")}, optional=True
)

_COMPRESSED: Final[m.Modules] = {
    "q_a": ("attn.wq_a", "self_attn.q_a_proj"),
    "q_b": ("attn.wq_b", "self_attn.q_b_proj"),
    "kv": ("attn.wkv", "self_attn.kv_proj"),
    "out_a": ("attn.wo_a", "self_attn.o_a_proj"),
    "out_b": ("attn.wo_b", "self_attn.o_b_proj"),
    "compress_kv": ("attn.compressor.wkv", "self_attn.compressor.kv_proj"),
    "compress_gate": ("attn.compressor.wgate", "self_attn.compressor.gate_proj"),
    "index_q": ("attn.indexer.wq_b", "self_attn.compressor.indexer.q_b_proj"),
    "index_k": ("attn.indexer.wk",),
    "index_weights": ("attn.indexer.weights_proj", "self_attn.compressor.indexer.scorer.weights_proj"),
    "index_kv": ("attn.indexer.compressor.wkv", "self_attn.compressor.indexer.kv_proj"),
    "index_gate": ("attn.indexer.compressor.wgate", "self_attn.compressor.indexer.gate_proj"),
}

_NATIVE_MOE: Final[m.Modules] = {
    "router": ("ffn.gate", *m.MOE_MODULES["router"]),
    **{n: (f"ffn.experts.{{e}}.{w}", *m.MOE_MODULES[n]) for n, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))},
    "shared_gate_proj": ("ffn.shared_experts.w1", *m.MOE_MODULES["shared_gate_proj"]),
    "shared_up": ("ffn.shared_experts.w3", *m.MOE_MODULES["shared_up"]),
    "shared_down": ("ffn.shared_experts.w2", *m.MOE_MODULES["shared_down"]),
}
"""DeepSeek-V4 as its maker and NVIDIA name modules, then as transformers does."""

_PLAIN_GROUPS: Final[dict[str, Default]] = {"n_shared_experts": 1, "n_group": 1, "topk_group": 1}

_V4 = Dialect(
    mixer="compressed",
    moe=MoeRule(
        layers="every",
        width="moe_intermediate_size",
        shared_count="n_shared_experts",
        topk_method="noaux_tc",
        router_bias=True,
        hashed="num_hash_layers",
    ),
    residual="hyper",
    only={"attention_bias": False, "mlp_bias": False, "num_key_value_heads": 1},
    defaults={"num_hash_layers": 0},
    inert=("compress_rope_theta", "hc_eps", "hc_sinkhorn_iters", "swiglu_limit"),
    modules={Compressed: _COMPRESSED, Moe: _NATIVE_MOE},
    quant_keys=("expert_dtype",),
    formats={"fp8-block": "fp8-block-ue8m0"},
    kv_format="fp8",
    says=(
        "the KV cache is fp8 as engines keep it, 584 bytes an entry; --kv-cache-dtype bf16 is the other layout",
        "block scales are stored in a byte, compressors and the weights of indexers in the model's dtype",
    ),
)
"""DeepSeek-V4: compressed attention, hyper-connections, experts by token id in the first layers."""

SPARSE: Final[dict[str, Dialect]] = {
    "deepseek_v32": replace(DEEPSEEK["deepseek_v3"], index=IndexRule()),
    "deepseek_v4": _V4,
    "deepseek_ref": _V4,  # sgl-project's copies with experts in fp8
    "glm_moe_dsa": Dialect(
        mixer="mla",
        layers=_BY_MLP,
        index=IndexRule(shares=True),
        moe=d.GROUPED_MOE,
        defaults=_PLAIN_GROUPS | {"q_lora_rank": 2048, "first_k_dense_replace": 3},
        inert=(
            *_MLA_INERT,
            *("topk_method", "layer_types", "mlp_bias", "moe_router_dtype", "index_share_for_mtp_iteration"),
        ),
    ),
    "dots3_note_text": Dialect(
        mixer="mla",
        layers=_BY_MLP,
        index=IndexRule(),
        gate="head",
        latent=LatentRule(rope_norm=True),
        window=WindowRule(layer_types=True, listed_only=True),
        windowed={
            "num_attention_heads": "swa_num_attention_heads",
            "q_lora_rank": "swa_q_lora_rank",
            "kv_lora_rank": "swa_kv_lora_rank",
            "qk_nope_head_dim": "swa_qk_nope_head_dim",
            "qk_rope_head_dim": "swa_qk_rope_head_dim",
            "v_head_dim": "swa_v_head_dim",
        },
        moe=replace(d.GROUPED_MOE, shared_count=None, shared_width="shared_experts_intermediate_size"),
        aliases={"shared_experts_intermediate_size": ("moe_shared_expert_intermediate_size",)},
        defaults=_PLAIN_GROUPS
        | {
            "first_k_dense_replace": 1,
            "sliding_window": 512,
            "shared_experts_intermediate_size": 1536,
            "swa_num_attention_heads": 64,
            "swa_q_lora_rank": 1024,
            "swa_kv_lora_rank": 1024,
            "swa_qk_nope_head_dim": 192,
            "swa_qk_rope_head_dim": 64,
            "swa_v_head_dim": 128,
        },
        only={"n_shared_experts": 1, "use_dsa": True, "use_sliding_window": True},
        inert=(*_MLA_INERT, "swa_num_key_value_heads", "swa_head_dim", "swa_rope_theta", "mlp_bias", "topk_method"),
        from_code_alone=True,
    ),
    "mistral_large4_text": Dialect(
        mixer="mla",
        layers=_BY_MLP,
        index=IndexRule(shares=True, input_norm=True, head_scales=True),
        latent=LatentRule(
            head_scales=True,
            no_rope="no_rope_layers",
            no_rope_every="no_rope_layer_interval",
            source="kv_source_layers",
        ),
        moe=replace(d.GROUPED_MOE, router_bias=False),
        defaults=_PLAIN_GROUPS | {"first_k_dense_replace": 1, "no_rope_layer_interval": 4, "q_lora_rank": None},
        inert=(*_MLA_INERT, "layer_types", "final_logit_softcapping"),
        says=("the learned factors of the rotation, 32, are not counted",),
        from_code_alone=True,
    ),
    "minimax_m3": Dialect(
        qk_norm=Key("use_qk_norm", default=True),
        nested=("sparse_attention_config",),
        index=IndexRule(
            heads="sparse_num_index_heads",
            dim="sparse_index_dim",
            top_k="sparse_topk_blocks",
            block="sparse_block_size",
            lists=True,
            weighted=False,
            q_norm=True,
            k_norm="rms",
            key_format=None,
            switch=Key("use_sparse_attention", default=True),
            listed="sparse_attention_freq",
        ),
        moe=MoeRule(
            layers="after_dense",
            width=("moe_intermediate_size", "intermediate_size"),
            shared_width="shared_intermediate_size",
            router_bias=Key("use_routing_bias", default=True),
        ),
        dense_width="dense_intermediate_size",
        aliases={"num_nextn_predict_layers": ("num_mtp_modules",)},
        defaults={"shared_intermediate_size": 3072, "first_k_dense_replace": 0},
        only={
            "qk_norm_type": "per_head",
            "attention_output_gate": False,
            "n_shared_experts": 1,
            "sparse_score_type": "max",
        },
        inert=(
            *("intermediate_size", "rotary_dim", "swiglu_alpha", "swiglu_limit", "use_gemma_norm"),
            *("sparse_disable_index_value", "sparse_init_block", "sparse_local_block"),
        ),
        modules={Moe: {**m.MIXTRAL_MODULES} | {n: own for n, own in m.MOE_MODULES.items() if n.startswith("shared")}},
    ),
}
