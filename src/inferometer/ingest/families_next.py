"""How the families of late 2026 spell their configs: data only, a family a row.

Class defaults and rules are of huggingface/transformers 5.24.0 (`src/transformers/models/<model_type>/`); of
DeepSeek-V4.1, which has no class there, of SGLang 0.5.23 (`python/sglang/srt/models/deepseek_v4.py`).
"""

from dataclasses import replace
from typing import Final

from inferometer.ingest import dialect as d
from inferometer.ingest.dialect import (
    Dialect,
    IndexRule,
    Kinds,
    LayerRule,
    MoeRule,
    NormRule,
    RecurrentRule,
    WindowRule,
)
from inferometer.ingest.families_hybrid import QWEN
from inferometer.ingest.families_llama import DEEPSEEK
from inferometer.ingest.families_more import EXAONE
from inferometer.ingest.families_sparse import SPARSE
from inferometer.ingest.families_wide import INKLING as WIDE_INKLING
from inferometer.ingest.small_rules import CompressRule, DrafterRule, LatentRule, TokenRule

REBUILT = "The config was rebuilt from values that public code and pages quote of the release"

_TYPED: Final = replace(d.GROUPED_MOE, layers="typed")

GLM: Final[dict[str, Dialect]] = {
    "glm5_next_text": Dialect(
        mixer="mla",
        layers=LayerRule(
            key="layer_types",
            words={
                "linear_attention": Kinds("kda"),
                "indexed_attention": Kinds("mla"),
                "full_attention": Kinds("mla"),
            },
        ),
        recurrent=RecurrentRule(low_rank=("decay", "gate")),
        index=IndexRule(shares=True, pool="index_kpool", pool_gate=True),
        latent=LatentRule(unrotated=True),
        moe=_TYPED,
        residual="headless",
        drafter=DrafterRule(latent=True),
        defaults={
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 3,
            "q_lora_rank": 1536,
            "linear_num_heads": 64,
            "linear_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "index_kpool": 16,
        },
        only={"index_kpool_always_select_tail": True},
        inert=(
            *("num_key_value_heads", "head_dim", "qk_head_dim", "swiglu_limit", "linear_lower_bound", "hc_eps"),
            *("hc_sinkhorn_iters", "topk_method", "rope_interleave", "indexer_rope_interleave"),
        ),
        says=(REBUILT,),
    ),
}
"""GLM-5.3-Flash: KDA with low-rank gates, unrotated latent attention that chooses among pools of keys."""

QWEN4: Final[dict[str, Dialect]] = {
    "qwen4_exp_text": replace(
        QWEN["qwen3_5_moe_text"],
        layers=LayerRule(
            key="layer_types",
            words={
                "linear_attention": Kinds("gdn"),
                "full_attention": Kinds("attention"),
                "indexed_attention": Kinds("attention"),
            },
        ),
        index=IndexRule(
            heads="indexer_n_heads",
            dim="indexer_head_dim",
            top_k="indexer_budget",
            pool="indexer_compress_ratio",
            weighted=False,
            q_norm=True,
            k_norm="rms",
            key_format=None,
        ),
        moe=replace(QWEN["qwen3_5_moe_text"].moe or MoeRule("every", ""), layers="every"),
        norm=NormRule(weight=False),
        residual="gated",
        lookups="ple",
        only={**QWEN["qwen3_5_moe_text"].only, "indexer_kv_heads": 1},
        says=(REBUILT,),
    ),
}
"""Qwen3.8-Flash-Next: gated delta net, attention that chooses among pools of four keys, gated streams whose norms stand
for a layer's own, and a table of n-grams."""

HUNYUAN: Final[dict[str, Dialect]] = {
    "hy_v4": replace(
        SPARSE["glm_moe_dsa"],
        gate="wide",
        sinks=True,
        residual="independent",
        defaults={**SPARSE["glm_moe_dsa"].defaults, "q_lora_rank": 1536, "first_k_dense_replace": 1},
        only={"attention_bias": False},
        inert=(*SPARSE["glm_moe_dsa"].inert, "hc_magnitude", "hc_eps", "learnable_sink_init", "swiglu_limit"),
        says=(REBUILT,),
    ),
}
"""Hy4: gated latent attention with sinks and shared choices, streams that do not mix."""

_V41_SAYS = (
    REBUILT,
    (
        "the KV cache is four bits an element with a scale for 16, 288 bytes an entry, and index keys 68; "
        "--kv-cache-dtype fp8 is the layout of 584 bytes that engines also have"
    ),
    (
        "of a prompt the last window (128 tokens) alone goes through the layers from the last source of entries on, "
        "whose entries and index keys are made of all of it, as the report and open engines' code have it; an engine "
        "that runs every layer for all tokens takes about twice as long"
    ),
)

DEEPSEEK_NEXT: Final[dict[str, Dialect]] = {
    "deepseek_v41_text": replace(
        SPARSE["deepseek_v4"],
        compress=CompressRule(
            ratios=(0, 1, 2),
            chosen=(1, 2),
            overlap=(),
            bias=False,
            sources="kv_source_layer_ids",
            choosers="index_source_layer_ids",
            candidates=("candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"),
            key_format="mxfp4",
            tail="sliding_window",
        ),
        residual="headless",
        lookups="engram",
        moe=replace(SPARSE["deepseek_v4"].moe or MoeRule("every", ""), hashed=None),
        defaults={},
        plain=("index_k",),
        formats={},
        kv_format="nvfp4",
        says=_V41_SAYS,
        from_code_alone=False,
    ),
}
"""DeepSeek-V4.1-Flash: entries and choices of a few layers serve those after them, and n-grams from the host. Its
prefill is that of its report, section 3.2.2, as jundot/omlx issue 3605 quotes it, lightseekorg/tokenspeed pull 1594 and
vllm-project/vllm pull 58132 have it; the latter run the last source whole, one layer of twenty more."""

MISTRAL: Final[dict[str, Dialect]] = {
    "mistral4": replace(
        DEEPSEEK["deepseek_v3"],
        moe=replace(d.GROUPED_MOE, router_bias=False),
        defaults={
            **DEEPSEEK["deepseek_v3"].defaults,
            "first_k_dense_replace": 0,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
        },
        inert=(*DEEPSEEK["deepseek_v3"].inert, "topk_method"),
        from_code_alone=True,
    ),
}
"""Mistral Small 4: DeepSeek-V3's shape without the routers' correction bias."""

EXAONE_MOE: Final[dict[str, Dialect]] = {
    "exaone_moe": replace(
        EXAONE["exaone4"],
        norm=NormRule(),
        moe=replace(_TYPED, shared_count="num_shared_experts"),
        aliases={**EXAONE["exaone4"].aliases, "num_shared_experts": ("n_shared_experts",)},
        defaults={"sliding_window": None, "num_shared_experts": 1, "n_group": 1, "topk_group": 1},
        tied=False,
        from_code_alone=True,
    ),
}
"""K-EXAONE: EXAONE 4's windows, norms before blocks, and experts."""

_INKLING2: Final = replace(
    WIDE_INKLING["inkling_text"],
    norm=NormRule(embedding=True),
    qk_norm_over="heads",
    gate="wide",
    window=WindowRule(key="sliding_window_size", layer_types=True, every=6),
    token=TokenRule(sinks=True, taps=True, inputs=3, q_norm_alone=True, relative_norm=True),
    out_scale=False,
    residual="sourced",
    more_rows="unpadded_vocab_size",
    moe=MoeRule(layers="every", width=("moe_intermediate_size", "intermediate_size"), router_bias=True),
    drafter=DrafterRule(count="num_mtp_layers"),
    aliases={
        "sconv_kernel_size": ("conv_kernel_size",),
        "max_position_embeddings": ("model_max_length",),
        "sliding_window_size": ("sliding_window",),
        "num_experts": ("n_routed_experts", "num_local_experts"),
    },
    defaults={
        "max_position_embeddings": 1048576,
        "sconv_kernel_size": 4,
        "d_rel": 16,
        "rel_extent": 1024,
        "sliding_window_size": 1024,
        "n_layers_per_attn_res_block": 6,
    },
    only={},
    inert=(
        *("route_scale", "log_scaling_n_floor", "log_scaling_alpha", "qk_l2_clip_threshold", "rel_l2_clip_threshold"),
        *("mlp_gate_softcap", "mlp_up_softcap", "final_logit_softcapping", "scoring_func", "hidden_act"),
        "dense_intermediate_size",
    ),
    says=("The query of the first layer's attention residual, which it lacks, is counted",),
    from_code_alone=True,
)

INKLING2: Final[dict[str, Dialect]] = {
    "inkling2_text": _INKLING2,
    "inkling2_loop_text": replace(
        _INKLING2,
        token=replace(
            _INKLING2.token,
            loop=("loop_layer_index_start", "loop_layer_index_end", "loop_num_passes"),
            message_rank="loop_gate_rank",
        ),
        nested=("loop_config",),
        aliases={
            **_INKLING2.aliases,
            "loop_layer_index_start": ("core_start",),
            "loop_layer_index_end": ("core_end",),
            "loop_num_passes": ("num_passes",),
            "loop_gate_rank": ("gate_rank",),
        },
        defaults={
            **_INKLING2.defaults,
            "loop_layer_index_start": 6,
            "loop_layer_index_end": 18,
            "loop_num_passes": 3,
            "loop_gate_rank": 64,
        },
        says=(*_INKLING2.says, "The first visit of a looped layer has no messages; it is charged for them"),
    ),
}
"""Inkling 2: gates, sinks of the token, attention residuals; Mini visits twelve of its layers three times."""
