"""How each family spells its config: data only, a row a family in the `families_*` modules."""

from dataclasses import replace

from inferometer.ingest import families_gpt as gpt
from inferometer.ingest import families_hybrid as hybrid
from inferometer.ingest import families_llama as llama
from inferometer.ingest import families_mamba as mamba
from inferometer.ingest import families_more as more
from inferometer.ingest import families_next as late
from inferometer.ingest import families_sparse as sparse
from inferometer.ingest import families_wide as wide
from inferometer.ingest.dialect import Dialect

ALIASES: dict[str, tuple[str, ...]] = {
    "num_experts": ("n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_token",),
    "max_position_embeddings": ("context_window_size",),
    "sliding_window": ("sliding_window_size",),
    "torch_dtype": ("dtype",),
    "state_dtype": ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
    "rope_scaling": ("rope_parameters",),
}
"""Canonical field -> other spellings, for every family."""

DIALECTS: dict[str, Dialect] = {
    **llama.LLAMA,
    **llama.QWEN,
    **llama.DEEPSEEK,
    **gpt.OPENAI,
    **gpt.GPT,
    **gpt.PHI,
    **gpt.GLM,
    **more.GEMMA,
    **more.OLMO,
    **more.COHERE,
    **more.EXAONE,
    **more.MOES,
    **wide.LONGCAT,
    **wide.STEP,
    **wide.HUNYUAN,
    **wide.INKLING,
    "mimo_v2": replace(more.MOES["mimo_v2_flash"], from_code_alone=True),  # SGLang reads both with one class
    **hybrid.QWEN,
    **hybrid.DELTA,
    **hybrid.KIMI,
    **mamba.MAMBA,
    **hybrid.CONV,
    **sparse.SPARSE,
    **late.GLM,
    **late.QWEN4,
    **late.HUNYUAN,
    **late.DEEPSEEK_NEXT,
    **late.MISTRAL,
    **late.EXAONE_MOE,
    **late.INKLING2,
    "kimi_k2": llama.DEEPSEEK["deepseek_v3"],  # moonshotai names DeepseekV3ForCausalLM and its configuration class
    "minimax": replace(hybrid.DELTA["minimax_m1"], from_code_alone=True),
    "hunyuan_v1_moe": replace(
        more.MOES["hunyuan"],
        qk_norm=True,
        defaults={**more.MOES["hunyuan"].defaults, "num_shared_expert": 1},
        inert=(*more.MOES["hunyuan"].inert, "use_qk_norm"),
        from_code_alone=True,
    ),
}
"""`model_type` -> dialect."""
