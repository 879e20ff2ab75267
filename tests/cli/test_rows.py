"""What --json prints: frozen keys, valid against the shipped schema, the same from search and from explain."""

import json

import pytest
from cli.command import inferometer

from inferometer import __version__
from inferometer.report.schema import FOLDER, OBJECTS, PRINTED, schema_text

DEPLOYMENT = (
    "version id model chip machine n_chips engine backend calibration scheduler phase workload feasible reasons sizes"
    " placement choices batch step_s tpot_s ttft_s tok_per_s tok_per_s_per_chip tok_per_s_per_user bound busy_s mfu mbu"
    " weights_bytes_per_chip kv_bytes_per_sequence_per_chip state_bytes_per_sequence_per_chip resident_sequences"
    " usd_per_hour usd_per_mtok_output decode_only_usd_per_mtok_output price_source low high basis tied diagnostics"
)
KEYS = {
    "deployment": DEPLOYMENT,
    "explain": f"{DEPLOYMENT} ops basis_shares flags",
    "chip": "chip name vendor memory_bytes memory_bytes_per_s peak_flops_per_s tdp_w default_machine usd_per_chip_hour"
    " price_source assumed least_chips",
    "chip_in_full": "chip name vendor memory_bytes memory_bytes_per_s peak_flops_per_s tdp_w default_machine"
    " usd_per_chip_hour price_source assumed least_chips aliases sources links prices",
    "link": "level geometry max_size bytes_per_s latency_s multicast reduces assumed sources",
    "price": "usd_per_chip_hour provider tier region instance date source",
    "pin": "pin ok model chip machine feasible reasons bounds",
    "bound": "key value min max ok",
    "model": "model architecture total_params active_params layers attention ffn checkpoint_bytes kv_bytes_per_token"
    " max_context source",
    "memory": "version model chip machine n_chips engine sizes context max_model_len batch weights_bytes_per_chip"
    " kv_bytes_per_token_per_chip kv_pool_bytes block_size blocks_per_request kv_tokens max_concurrency fits reasons"
    " deficit_bytes nearest lines tiers log assumed diagnostics",
    "most": "value memory",
    "fit": "device vendor source total_bytes free_bytes fits fits_now max_batch max_context memory",
    "cost": "version model chip machine n_chips engine backend scheduler workload feasible reasons sizes batch"
    " tpot_s tok_per_s tok_per_s_per_user bound low high basis read_bytes_per_step"
    " read_by_kind_bytes_per_step tok_per_hour utilization prefill_s prefill_batch prefill_tokens"
    " prefill_share requests_per_s output_tok_per_s input_tok_per_s provider instance instance_chips"
    " region tier price_date price_source price_rule price_note usd_per_chip_hour chips_billed"
    " usd_per_hour usd_per_month owned decode_only_usd_per_mtok_output usd_per_mtok_output"
    " usd_per_mtok_input usd_per_mtok_blended power_w joules_per_mtok_output"
    " decode_only_joules_per_mtok_output kwh_per_mtok_output decode_only_kwh_per_mtok_output energy_basis"
    " break_even definitions diagnostics assumed",
    "owned": "capex_usd lifetime_years usd_per_kwh pue_ratio",
    "break_even": "api_usd_per_mtok of usd_per_mtok usd_per_mtok_when_full utilization requests_per_s tok_per_hour",
    "lost": "chip feasible reasons",
    "matrix": "version model batch context rows right_sized fastest nearest assumed",
    "entry": "chip machine n_chips room_bytes required_bytes utilization headroom_bytes memory_bytes_per_s"
    " max_batch tpot_s tok_per_s output_tok_per_s tok_per_s_per_user usd_per_hour"
    " decode_only_usd_per_mtok_output usd_per_mtok_output price_source basis status verdict reasons",
    "pick": "chip why",
    "offer": "chip usd_per_chip_hour usd_per_instance_hour provider instance instance_chips region tier date"
    " marketplace source",
    "speculation": "version model chip machine n_chips engine backend scheduler workload sizes batch draft acceptance"
    " lookahead drafted tokens_per_pass draft_passes draft_s verify_s decode_s speedup tpot_s tok_per_s"
    " tok_per_s_per_user best_lookahead best_speedup lookaheads batches gain_ends_at_batch feasible"
    " reasons weights_bytes_per_chip cache_bytes_per_chip draft_weights_bytes_per_chip"
    " draft_cache_bytes_per_chip free_bytes_per_chip basis assumed",
    "round": "batch lookahead drafted tokens_per_pass draft_passes draft_s verify_s decode_s speedup",
    "report": "version kind model chip machine context cost memory matrix clouds sources commands",
    "line": "name bytes basis note",
    "tier": "where through flag bytes_per_chip rank_bytes block_tokens latent_copies kv_tokens prefix_tokens"
    " prefix_bytes prefixes restore_bytes_per_chip recompute_s break_even_bytes_per_s",
    "params": "model total_params active_params active_params_one_table mtp_params by_kind by_dtype checkpoint_bytes"
    " bytes_by_kind layers files unknown_keys assumed",
    "layers": "first last kind mixer_params ffn_params other_params stored_bytes",
    "files": "files tensors stored_bytes mtp_bytes derived_bytes bytes_by_kind difference_by_kind",
    "ops": "version model chip n_chips sizes phase batch new_tokens kv_length all_token_logits kv_cache_dtype choices"
    " total_flops gemm_attention_flops total_bytes bytes parts flops_per_chip bytes_per_chip active_params ops assumed",
    "counted_op": "name kind segment part layers share shapes dtype flops bytes flops_per_chip bytes_per_chip plan",
    "part": "part flops flops_share bytes bytes_share",
    "kv": "version model context image_tokens kv_cache_dtype kv_bytes_per_token kv_bytes_per_sequence"
    " window_bytes_per_sequence state_bytes_per_sequence n_chips sizes kv_bytes_per_token_per_chip"
    " kv_bytes_per_sequence_per_chip state_bytes_per_sequence_per_chip caches assumed diagnostics",
    "cache": "name kind layers heads width dtype tokens_per_entry most_entries bytes_per_token bytes_per_sequence",
    "sizes": "r pp dpa tp ep etp dcp",
    "workload": "isl osl context images image_size image_tokens draft_tokens all_token_logits expert_skew"
    " distinct_prompts redundant_experts kv_cache_dtype"
    " reserve_bytes overlap assumed what_if",
    "change": "field before after",
    "comparison": "version a b ratio terms memory choices",
    "term": "term a_s b_s difference_s",
    "memory_line": "line a_bytes b_bytes",
    "ratio": "step_s tok_per_s tok_per_s_per_chip usd_per_mtok",
    "taken": "a b",
    "placement": "placement step_s tok_per_s_per_chip taken",
    "busy": "compute memory network overhead",
    "op": "name kind segment layers share shapes dtype flops bytes seconds bound plan plans_beaten basis",
    "flags": "engine command servers notes",
    "diagnostic": "name text",
    "backend": "backend origin basis scheduler low high apart data commands figures covered error",
    "covered": "generation chips dtypes basis n low high source figures",
    "figure": "what n median p90 bias",
    "calibration": "output model chip generation engine error_shipped error_left_out low high factors runs",
    "run": "data sizes isl osl batch metric measured shipped fitted left_out",
}
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def check(value, schema, where="row"):
    """Check `value` against the part of JSON Schema that ours uses."""
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    fits = any(isinstance(value, TYPES[name]) for name in names)
    assert fits, (where, value, names)
    if value is None:
        return
    assert not isinstance(value, bool) or "boolean" in names, (where, value)
    if isinstance(value, list):
        for item in value:
            check(item, schema["items"], f"{where}[]")
    elif isinstance(value, dict):
        known = schema.get("properties")
        assert known is None or list(value) == schema["required"], (where, list(value))
        for key, inner in value.items():
            check(inner, known[key] if known else schema["additionalProperties"], f"{where}.{key}")


def schema(name):
    return json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))


def test_keys_are_frozen():
    assert {name: " ".join(field.name for field in fields) for name, fields in OBJECTS.items()} == KEYS


@pytest.mark.parametrize("name", PRINTED)
def test_shipped_schemas_are_what_the_declaration_says(name):
    text = (FOLDER / f"{name}.schema.json").read_text(encoding="utf-8")
    assert text == schema_text(name), "python -m inferometer.report.schema"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deployment", "search deepseek-v3 h200 8x2 --slo 20"),
        ("deployment", "search deepseek-v3 h200,b200 8x2 --per-dollar --top 3"),
        ("deployment", "search deepseek-v3 tpu-v7 4x4x4 --isl 1000 --osl 100 --top 3 --backend roofline"),
        ("deployment", "top llama-3.1-70b b200 8x1 --phase prefill --top 3"),
        ("deployment", "search llama-3.1-8b h100 --by ttft"),
        ("deployment", "search mixtral-8x7b h100 2x1 --phase extend --isl 100 --context 1000 --slo ttft=1s --top 2"),
        ("explain", "explain deepseek-v3 h200 8x2 --phase verify --draft-tokens 2 --sizes TP=4,DPA=4,DCP=4 --slo 2"),
        ("explain", "explain deepseek-v3 gb200-nvl72 32x1 --sizes DPA=16,TP=2,EP=32 --batch 512"),
        ("explain", "explain mixtral-8x7b h100 8x1 --engine vllm -tp 8 --scheduler serial"),
        ("explain", "explain llama-3.1-8b m2-ultra --quant int4-g128 --context 1"),
        ("explain", "explain qwen3-vl-8b-instruct h100 --phase prefill --images 2 --image-size 640x480"),
        ("comparison", "explain deepseek-v3 h200 8x2 --sizes DPA=8 --against=b200"),
        ("placement", "explain deepseek-v3 h200 8x2 --sizes DPA=8,TP=2 --placements"),
        ("chip", "chips"),
        ("chip", "chips --model deepseek-v3"),
        ("chip", "chips --vendor nvidia --min-memory 80GB --sort price"),
        ("chip_in_full", "chips h200"),
        ("chip_in_full", "chips tpu-v5p --model deepseek-v3"),
        ("offer", "prices --chip h100"),
        ("offer", "prices --provider aws --tier spot"),
        ("speculation", "spec qwen3-32b a100-80gb --draft qwen3-0.6b --quant int4 --acceptance 0.75"),
        ("speculation", "spec deepseek-v3 h200 8x1 --sizes DPA=8 --acceptance 0.8 --lookahead 1 --batch 64"),
        ("report", "report qwen2.5-7b rtx4090 --batch-size 8"),
        ("model", "models"),
        ("params", "params deepseek-v3"),
        ("params", "params gpt-oss-20b --by layer"),
        ("ops", "ops deepseek-v3 --batch 32 --context 4096 -tp 8 -ep 8"),
        ("ops", "ops mixtral-8x7b h100 4x1 --phase verify --draft-tokens 2 --sizes PP=2,TP=2,EP=2"),
        ("ops", "ops gpt-oss-20b a100-80gb --phase extend --isl 30 --context 1000 --all-token-logits"),
        ("kv", "kv gemma-3-27b --context 131072"),
        ("kv", "kv deepseek-v3 --context 1000 --kv-cache-dtype fp8 --sizes TP=8,DCP=4"),
        ("backend", "backends"),
    ],
)
def test_rows_are_valid(name, words):
    done = inferometer(*words.split(), "--json")
    assert done.status == 0, done.err
    assert done.rows
    assert not done.err
    for row in done.rows:
        check(row, schema(name))


def test_an_infeasible_deployment_is_a_valid_row_too():
    done = inferometer("search", "llama-3.1-405b", "h100", "2x1", "--json")
    assert done.status == 1
    (row,) = done.rows
    check(row, schema("deployment"))
    assert not row["feasible"]
    assert row["reasons"]
    assert "nearest" in done.err


@pytest.mark.parametrize(
    "question",
    [
        "deepseek-v3 h200 8x2 --slo 20",
        "deepseek-v3 h100 8x8 --engine vllm --isl 2000",
        "mixtral-8x7b tpu-v5p 2x2x2 --scheduler serial",
        "llama-3.1-70b h100 8x2 --kv-cache-dtype fp8 --usd-per-chip-hour 2",
        "qwen3-30b-a3b h100 8x1 --phase prefill",
        "qwen3-30b-a3b h100 8x1 --phase extend --isl 300 --context 5000 --all-token-logits",
        "gpt-oss-20b h100 2x1 --phase verify --draft-tokens 3 --isl 100 --osl 100",
    ],
)
def test_explain_of_a_winner_is_its_row(question):
    words = question.split()
    for row in inferometer("search", *words, "--top", "3", "--json").rows:
        sizes = ",".join(f"{role.upper()}={size}" for role, size in row["sizes"].items())
        again = inferometer("explain", *words, "--sizes", sizes, "--batch", str(row["batch"]), "--json")
        assert again.status == 0, again.err
        (explained,) = again.rows
        del explained["ops"], explained["flags"], explained["basis_shares"]
        assert explained == row | {"tied": None}


def test_a_row_s_own_placement_gives_the_row():
    base = ("explain", "deepseek-v3", "h200", "8x2", "--sizes", "DPA=8,EP=16", "--batch", "256", "--json")
    (row,) = inferometer(*base).rows
    places = (
        f"{role}=" + "+".join(f"{axis}:{factor}" for axis, factor in spans.items())
        for role, spans in row["placement"].items()
        if spans
    )
    assert inferometer(*base, "--placement", ",".join(places)).rows == [row]


def test_saying_a_default_aloud_is_the_same_question():
    base = ("explain", "llama-3.1-8b", "h100", "--json")
    (silent,), (said,) = inferometer(*base).rows, inferometer(*base, "--isl", "8192", "--engine", "ideal").rows
    assert set(silent["workload"]["assumed"]) - set(said["workload"]["assumed"]) == {"isl", "engine"}
    del silent["workload"], said["workload"]
    assert silent == said


def test_rows_say_the_version():
    assert inferometer("explain", "llama-3.1-8b", "h100", "--json").rows[0]["version"] == __version__
    assert inferometer("--version").out == f"inferometer {__version__}\n"
