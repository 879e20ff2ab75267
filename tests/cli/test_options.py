"""The option table is a contract: a spelling changes here first."""

import pytest
from cli.command import inferometer

from inferometer.cli.options import Options, flags, spelled
from inferometer.cli.verb_options import VERBS

TABLE = {
    "vendor": "--vendor",
    "min_memory": "--min-memory",
    "sort": "--sort",
    "for_model": "--model",
    "quant": "--quant",
    "kv_cache_dtype": "--kv-cache-dtype",
    "state_dtype": "--state-dtype",
    "no_conv_state": "--no-conv-state",
    "cut_latents": "--cut-latents",
    "state_slots": "--state-slots",
    "batch_size": "--batch-size --batch",
    "isl": "--isl --prefill-len",
    "osl": "--osl --gen-len",
    "context": "--context --context-len",
    "images": "--images",
    "image_size": "--image-size",
    "expert_skew": "--expert-skew",
    "redundant_experts": "--redundant-experts",
    "distinct_prompts": "--distinct-prompts",
    "phase": "--phase",
    "draft_tokens": "--draft-tokens",
    "all_token_logits": "--all-token-logits",
    "sizes": "--sizes",
    "placement": "--placement",
    "tensor_parallel_size": "--tensor-parallel-size -tp",
    "pipeline_parallel_size": "--pipeline-parallel-size -pp",
    "data_parallel_size": "--data-parallel-size -dp",
    "enable_expert_parallel": "--enable-expert-parallel",
    "expert_parallel_size": "--expert-parallel-size -ep",
    "decode_context_parallel_size": "--decode-context-parallel-size -dcp",
    "gpu_memory_utilization": "--gpu-memory-utilization --mem-fraction",
    "reserve_bytes": "--reserve-bytes",
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "enforce_eager": "--enforce-eager",
    "enable_prefix_caching": "--enable-prefix-caching",
    "n_gpu_layers": "--n-gpu-layers -ngl",
    "cpu_offload_gb": "--cpu-offload-gb",
    "kv_cpu_gb": "--kv-cpu-gb",
    "kv_disk_gb": "--kv-disk-gb",
    "lora_adapters": "--lora-adapters",
    "lora_rank": "--lora-rank",
    "engine": "--engine",
    "choice": "--choice",
    "backend": "--backend",
    "calibration": "--calibration",
    "scheduler": "--scheduler",
    "overlap": "--overlap",
    "usd_per_chip_hour": "--usd-per-chip-hour",
    "provider": "--provider",
    "region": "--region",
    "tier": "--tier",
    "draft": "--draft",
    "draft_quant": "--draft-quant",
    "lookahead": "--lookahead",
    "acceptance": "--acceptance",
    "accepted": "--accepted",
    "tree_tokens": "--tree-tokens",
    "output": "--output -o",
    "form": "--format",
    "price_chip": "--chip",
    "live": "--live",
    "utilization": "--utilization",
    "compare_clouds": "--compare-clouds",
    "compare_all": "--compare-all",
    "break_even": "--break-even",
    "capex": "--capex",
    "years": "--years",
    "kwh": "--kwh",
    "pue": "--pue",
    "what_if": "--what-if",
    "grouped": "--by",
    "against": "--against",
    "placements": "--placements",
    "slo": "--slo",
    "by": "--by",
    "per_dollar": "--per-dollar",
    "top": "--top",
    "points": "--points",
    "plot": "--plot",
    "measured_class": "--class",
    "on_chip": "--chip",
    "progress": "--progress",
    "json": "--json",
    "table": "--table",
}
WORK = (
    "quant kv_cache_dtype state_dtype cut_latents batch_size isl osl context images image_size expert_skew"
    " distinct_prompts phase draft_tokens all_token_logits"
)
SHARDING = (
    "sizes tensor_parallel_size pipeline_parallel_size data_parallel_size expert_parallel_size"
    " decode_context_parallel_size enable_expert_parallel"
)
MEMORY = "gpu_memory_utilization reserve_bytes"
PRICE = "usd_per_chip_hour provider region tier"
DEPLOYMENT = (
    f"model chip machine {WORK} redundant_experts no_conv_state state_slots {SHARDING} {MEMORY} engine choice backend"
    " calibration scheduler overlap"
    f" {PRICE} what_if slo"
)
WITHOUT_PHASE = (
    f"{WORK.removesuffix(' phase draft_tokens all_token_logits')} redundant_experts no_conv_state state_slots"
)
PRICED = f"{WITHOUT_PHASE} {SHARDING} {MEMORY} engine choice backend calibration scheduler overlap {PRICE} what_if"
UNPRICED = f"{WITHOUT_PHASE} {SHARDING} {MEMORY} engine choice backend calibration scheduler overlap what_if"
STARTED = "max_model_len max_num_seqs max_num_batched_tokens enforce_eager enable_prefix_caching"
FORMATS = "quant kv_cache_dtype state_dtype cut_latents no_conv_state state_slots"
SUBJECT = f"model chip machine {FORMATS}"
HELD = "cpu_offload_gb lora_adapters lora_rank"
PLACED = f"n_gpu_layers {HELD}"
SIZED = f"{SHARDING} {MEMORY} {STARTED} {PLACED} engine what_if json table"
TAKEN = {
    "search": f"{DEPLOYMENT} {STARTED} {HELD} by per_dollar top progress json table",
    "top": f"{DEPLOYMENT} {STARTED} {HELD} by per_dollar top progress json table",
    "explain": f"{DEPLOYMENT} {STARTED} {HELD} placement placements against json table",
    "memory": f"{SUBJECT} batch_size context kv_cpu_gb kv_disk_gb {SIZED}",
    "fit": f"model {FORMATS} batch_size context {STARTED} {PLACED} {MEMORY} engine json table",
    "max-batch": f"{SUBJECT} context {SIZED}",
    "max-context": f"{SUBJECT} batch_size {SIZED}",
    "ops": f"model for_chip machine {WORK} {SHARDING} choice json table",
    "params": "model quant grouped json table",
    "kv": f"model context kv_cache_dtype state_dtype no_conv_state images image_size {SHARDING} json table",
    "cost": f"model any_chip machine {PRICED} utilization break_even capex years kwh pue compare_clouds"
    " compare_all json table",
    "compare": f"model any_chip machine {PRICED} utilization json table",
    "prices": "price_chip provider region tier live json table",
    "spec": f"model chip machine {UNPRICED} draft draft_quant lookahead acceptance accepted tree_tokens json table",
    "report": f"model any_chip machine {PRICED} utilization break_even capex years kwh pue output form json table",
    "models": "json table",
    "chips": f"one_chip vendor min_memory sort for_model quant {MEMORY} {PRICE} json table",
    "check": "pins json table",
    "backends": "json table",
    "calibrate": f"files for_model on_chip {SHARDING} quant kv_cache_dtype engine output json table",
    "validate": "backend calibration points measured_class plot json table",
}


def test_spellings_are_frozen():
    words = ("model", "chip", "machine", "pins", "one_chip", "files", "for_chip", "any_chip")
    fields = [field for field in Options.__dataclass_fields__ if field not in words]
    assert {field: " ".join(flags(field)) for field in fields} == TABLE


def test_what_verbs_take_is_frozen():
    assert {verb: " ".join(fields) for verb, fields in VERBS.items()} == TAKEN


@pytest.mark.parametrize("verb", VERBS)
def test_help_lists_every_spelling(verb):
    done = inferometer(verb, "--help")
    assert done.status == 0
    for field in VERBS[verb]:
        assert all(flag in done.out for flag in flags(field)), field


def test_a_command_is_spelled_as_it_is_read():
    options = Options(model="a b", chip="h200", machine="8x2", batch_size=4, enable_expert_parallel=True)
    assert spelled("explain", options) == "inferometer explain 'a b' h200 8x2 --batch-size 4 --enable-expert-parallel"


@pytest.mark.parametrize(
    ("alias", "plain"),
    [
        (("--batch", "4"), ("--batch-size", "4")),
        (("--prefill-len", "100", "--gen-len", "10"), ("--isl", "100", "--osl", "10")),
        (("--context-len", "100"), ("--context", "100")),
        (("--mem-fraction", "0.8"), ("--gpu-memory-utilization", "0.8")),
        (("-tp", "2"), ("--tensor-parallel-size", "2")),
        (("-tp", "1", "-pp", "2"), ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "2")),
        (("-tp", "2", "-dcp", "2"), ("--tensor-parallel-size=2", "--decode-context-parallel-size=2")),
        (("-tp", "1", "-dp", "2"), ("--sizes", "TP=1,R=2")),
    ],
)
def test_aliases_ask_the_same(alias, plain):
    base = ("explain", "llama-3.1-8b", "h100", "2x1", "--json")
    assert inferometer(*base, *alias).rows == inferometer(*base, *plain).rows
