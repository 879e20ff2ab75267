"""Which options each verb takes, by the fields of `cli.options.Options`."""

REQUIRED = ("model", "chip", "pins", "files")

ENGINE_SPELLING = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "expert_parallel_size",
    "decode_context_parallel_size",
)

LENGTHS = ("isl", "osl", "context", "images", "image_size")
ROUTING = ("expert_skew", "distinct_prompts")
CACHED = ("kv_cache_dtype", "state_dtype")
FORMATS = ("quant", *CACHED, "cut_latents")
STATES = ("no_conv_state", "state_slots")
WORK = (*FORMATS, "batch_size", *LENGTHS, *ROUTING, "phase", "draft_tokens", "all_token_logits")
SHARDING = ("sizes", *ENGINE_SPELLING, "enable_expert_parallel")
MEMORY = ("gpu_memory_utilization", "reserve_bytes")
COST = ("engine", "choice", "backend", "calibration", "scheduler", "overlap")
OWNED = ("capex", "years", "kwh", "pue")
PRICE = ("usd_per_chip_hour", "provider", "region", "tier")
OUTPUT = ("json", "table")
SUBJECT = ("model", "chip", "machine")
DEPLOYMENT = (*SUBJECT, *WORK, "redundant_experts", *STATES, *SHARDING, *MEMORY, *COST, *PRICE, "what_if", "slo")
REPEATED = ("what_if", "files")
PHASE = ("phase", "draft_tokens", "all_token_logits")
PRICED = tuple(field for field in DEPLOYMENT if field not in (*PHASE, "slo"))
"""A deployment in both phases."""
ANY = ("model", "any_chip", *PRICED[2:])
"""The same, whose CHIP may be left out."""
HELD = ("cpu_offload_gb", "lora_adapters", "lora_rank")
PLACED = ("n_gpu_layers", *HELD)
STARTED = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "enable_prefix_caching")
STORED = (*FORMATS, *STATES)
SIZED = (*SHARDING, *MEMORY, *STARTED, *PLACED, "engine", "what_if", *OUTPUT)

VERBS: dict[str, tuple[str, ...]] = {
    "search": (*DEPLOYMENT, *STARTED, *HELD, "by", "per_dollar", "top", "progress", *OUTPUT),
    "top": (*DEPLOYMENT, *STARTED, *HELD, "by", "per_dollar", "top", "progress", *OUTPUT),
    "explain": (*DEPLOYMENT, *STARTED, *HELD, "placement", "placements", "against", *OUTPUT),
    "memory": (*SUBJECT, *STORED, "batch_size", "context", "kv_cpu_gb", "kv_disk_gb", *SIZED),
    "fit": ("model", *STORED, "batch_size", "context", *STARTED, *PLACED, *MEMORY, "engine", *OUTPUT),
    "max-batch": (*SUBJECT, *STORED, "context", *SIZED),
    "max-context": (*SUBJECT, *STORED, "batch_size", *SIZED),
    "ops": ("model", "for_chip", "machine", *WORK, *SHARDING, "choice", *OUTPUT),
    "params": ("model", "quant", "grouped", *OUTPUT),
    "kv": ("model", "context", *CACHED, "no_conv_state", "images", "image_size", *SHARDING, *OUTPUT),
    "cost": (
        *(*ANY, "utilization", "break_even", *OWNED),
        *("compare_clouds", "compare_all", *OUTPUT),
    ),
    "compare": (*ANY, "utilization", *OUTPUT),
    "prices": ("price_chip", "provider", "region", "tier", "live", *OUTPUT),
    "spec": (
        *(field for field in PRICED if field not in PRICE),
        *("draft", "draft_quant", "lookahead", "acceptance", "accepted", "tree_tokens", *OUTPUT),
    ),
    "report": (*ANY, "utilization", "break_even", *OWNED, "output", "form", *OUTPUT),
    "models": OUTPUT,
    "chips": ("one_chip", "vendor", "min_memory", "sort", "for_model", "quant", *MEMORY, *PRICE, *OUTPUT),
    "check": ("pins", *OUTPUT),
    "backends": OUTPUT,
    "calibrate": ("files", "for_model", "on_chip", *SHARDING, "quant", "kv_cache_dtype", "engine", "output", *OUTPUT),
    "validate": ("backend", "calibration", "points", "measured_class", "plot", *OUTPUT),
}
"""Verb -> the fields it takes."""
