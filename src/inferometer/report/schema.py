"""The keys of every JSON object we print: one declaration gives the schema, the docs and the frozen list.

Types: a name of JSON Schema, `?` after it for null, `[]` for a list of it, `{}` for an object of it.
"""

import json
from pathlib import Path
from typing import Any

from inferometer.report.field import Field
from inferometer.report.schema_backends import BACKEND, CALIBRATION, COVERED, FIGURE, RUN
from inferometer.report.schema_catalog import CHIP, CHIP_IN_FULL, LINK, MODEL, PRICE
from inferometer.report.schema_counts import CACHE, COUNTED_OP, FILES, KV, LAYERS, OPS, PARAMS, PART
from inferometer.report.schema_memory import FIT, LINE, MEMORY, MOST, TIER
from inferometer.report.schema_money import (
    BREAK_EVEN,
    COST,
    ENTRY,
    LOST,
    MATRIX,
    OFFER,
    OWNED,
    PICK,
    REPORT,
    ROUND,
    SPECULATION,
)

SIZES = (
    Field("r", "integer", "", "replicas, which share nothing"),
    Field("pp", "integer", "", "pipeline stages"),
    Field("dpa", "integer", "", "data-parallel attention ranks"),
    Field("tp", "integer", "", "tensor parallel, attention and dense weights"),
    Field("ep", "integer", "", "expert parallel"),
    Field("etp", "integer", "", "tensor parallel inside an expert"),
    Field("dcp", "integer", "", "decode context parallel, divides tp"),
)

WORKLOAD = (
    Field("isl", "integer", "tok", "prompt of a request"),
    Field("osl", "integer", "tok", "answer of a request"),
    Field("context", "integer?", "tok", "one KV length, not the mean over isl..isl+osl; in extend, verify the prefix"),
    Field("images", "integer", "", "images of a request, in front of its text"),
    Field("image_size", "integer[]", "px", "width and height of each; empty without images"),
    Field("image_tokens", "integer", "tok", "that they add to the prompt of a request"),
    Field("draft_tokens", "integer", "tok", "drafted tokens of a sequence that a verify checks"),
    Field("all_token_logits", "boolean", "", "logits of every prompt token, not of the last alone"),
    Field("expert_skew", "number", "", "exponent of the power law that experts are popular by; 0: all alike"),
    Field("distinct_prompts", "integer?", "", "different prompts in flight at a replica; null: all differ"),
    Field("redundant_experts", "integer", "", "copies of experts in every layer, over the ranks of EP"),
    Field("kv_cache_dtype", "string", "", "format of the KV cache"),
    Field("reserve_bytes", "number", "B", "memory of a chip kept from weights and KV"),
    Field("overlap", "number[]", "", "shares of memory and network time that can hide"),
    Field("assumed", "string[]", "", "settings that nobody chose"),
    Field("what_if", "change[]", "", "how the machine differs from the catalogue's"),
)

CHANGE = (
    Field(
        "field",
        "string",
        "",
        "memory_bytes, memory_bytes_per_s, tdp_w, peak.DTYPE; of an axis link, latency, multicast, reduces",
    ),
    Field("before", "number", "SI", "as catalogued; yes is 1"),
    Field("after", "number", "SI", "as priced"),
)

BUSY = (
    Field("compute", "number?", "s", "busy with arithmetic"),
    Field("memory", "number?", "s", "busy with the chip's own memory"),
    Field("network", "number?", "s", "busy with messages"),
    Field("overhead", "number?", "s", "busy with nothing of these"),
)

DEPLOYMENT = (
    Field("version", "string", "", "of inferometer"),
    Field("id", "string", "", "short hash of what was asked and of the deployment"),
    Field("model", "string", "", "preset, or name of the config"),
    Field("chip", "string", "", "catalogue id"),
    Field("machine", "string", "", "as written: 8x2, 4x4x4; before it an instance, or what is not the usual machine"),
    Field("n_chips", "integer", "", "chips of the deployment"),
    Field("engine", "string", "", "name@version whose rules were kept; ideal keeps none"),
    Field("backend", "string", "", "what priced the operations"),
    Field("calibration", "string?", "", "file of one's own factors; null without"),
    Field("scheduler", "string", "", "how busy times became a step"),
    Field("phase", "string", "", "prefill, extend, decode or verify"),
    Field("workload", "workload", "", "what each request asks for"),
    Field("feasible", "boolean", "", "legal, and fits"),
    Field("reasons", "string[]", "", "why it is not feasible"),
    Field("sizes", "sizes", "", "role sizes"),
    Field("placement", "integer{}{}", "", "role -> axis -> factor; what is left out is 1"),
    Field("choices", "string{}", "", "Choice -> plan taken; Choice@layers where layer kinds differ"),
    Field("batch", "integer", "sequences", "in flight over the whole deployment"),
    Field("step_s", "number?", "s", "one pass: a decode step or verify, or a prefill or extend of the whole batch"),
    Field("tpot_s", "number?", "s", "time per output token; in verify if every draft is refused"),
    Field("ttft_s", "number?", "s", "time to first token of an idle deployment"),
    Field(
        "tok_per_s",
        "number?",
        "tok/s",
        "output tokens in decode, certain ones in verify; prompt tokens in prefill, new ones in extend",
    ),
    Field("tok_per_s_per_chip", "number?", "tok/s", "the same, of one chip"),
    Field("tok_per_s_per_user", "number?", "tok/s", "1 / TPOT"),
    Field("bound", "string", "", "fullest resource of the slowest stage"),
    Field("busy_s", "busy", "s", "what the slowest stage is busy with"),
    Field("mfu", "number?", "", "useful flops over peak flops"),
    Field("mbu", "number?", "", "weight and KV bytes over memory bandwidth"),
    Field("weights_bytes_per_chip", "number", "B", "a chip of the fullest stage"),
    Field("kv_bytes_per_sequence_per_chip", "number", "B", "same"),
    Field("state_bytes_per_sequence_per_chip", "number", "B", "same, recurrent state"),
    Field("resident_sequences", "integer?", "sequences", "that fit, over the whole deployment"),
    Field("usd_per_hour", "number?", "$/h", "all chips"),
    Field("usd_per_mtok_output", "number?", "$", "a million output tokens of a closed loop; null until there is one"),
    Field("decode_only_usd_per_mtok_output", "number?", "$", "a million output tokens, prefill not counted"),
    Field("price_source", "string", "", "provider, instance, tier, region, date; given; none"),
    Field("low", "number?", "s", "lower end of the band of step_s"),
    Field("high", "number?", "s", "upper end"),
    Field("basis", "string", "", "measured, calibrated, analytic or assumed: the weakest part's"),
    Field("tied", "boolean?", "", "of a ranking: the band cannot tell it from the best; null elsewhere"),
    Field("diagnostics", "diagnostic[]", "", "what to know, by name"),
)

OP = (
    Field("name", "string", "", "operation"),
    Field("kind", "string", "", "gemm, attention, ..., or the kind of a collective"),
    Field("segment", "string", "", "kind of layer, embedding or head"),
    Field("layers", "integer", "", "times it runs over the whole model"),
    Field("share", "number", "", "share of the passes with these counts"),
    Field("shapes", "string", "", "operands"),
    Field("dtype", "string", "", "arithmetic type"),
    Field("flops", "number?", "flop", "of the busiest chip, one layer, one microbatch"),
    Field("bytes", "number{}", "B", "by what they are: weights, kv, state, activations, message"),
    Field("seconds", "number?", "s", "alone, one layer"),
    Field("bound", "string", "", "compute, memory or network"),
    Field("plan", "string", "", "Choice it was taken under, or algorithm"),
    Field("plans_beaten", "number?{}", "s", "plan -> seconds of those that lost"),
    Field("basis", "string", "", "measured, calibrated, analytic or assumed"),
)

FLAGS = (
    Field("engine", "string", "", "vllm or sglang"),
    Field("command", "string?", "", "one server; null where the engine cannot run this sharding"),
    Field("servers", "integer", "", "such servers to start (R)"),
    Field("notes", "string[]", "", "why not, or what to add"),
)

EXPLAIN = (
    *DEPLOYMENT,
    Field("ops", "op[]", "", "every operation of a pass"),
    Field("basis_shares", "number{}", "", "basis -> share of the time of all operations one after another"),
    Field("flags", "flags[]", "", "how engines are started"),
)

TERM = (
    Field("term", "string", "", "kind of operation; overlap hidden is below 0"),
    Field("a_s", "number", "s", "of A's step"),
    Field("b_s", "number", "s", "of B's step"),
    Field("difference_s", "number", "s", "B less A; they sum to the difference of the steps"),
)

MEMORY_LINE = (
    Field("line", "string", "", "weights, kv, reserve, free or visible"),
    Field("a_bytes", "number", "B", "a chip of A's fullest stage"),
    Field("b_bytes", "number", "B", "of B's"),
)

RATIO = (
    Field("step_s", "number?", "", "B over A"),
    Field("tok_per_s", "number?", "", "same"),
    Field("tok_per_s_per_chip", "number?", "", "same"),
    Field("usd_per_mtok", "number?", "", "same, decode or prefill alone; null without two prices"),
)

TAKEN = (Field("a", "string?", "", "plan of A"), Field("b", "string?", "", "plan of B"))

COMPARISON = (
    Field("version", "string", "", "of inferometer"),
    Field("a", "deployment", "", "what was typed"),
    Field("b", "deployment", "", "what --against changes of it"),
    Field("ratio", "ratio", "", "B over A"),
    Field("terms", "term[]", "", "both steps by kind of operation"),
    Field("memory", "memory_line[]", "", "of a chip"),
    Field("choices", "taken{}", "", "Choice -> plans, where they differ"),
)

PLACEMENT = (
    Field("placement", "integer{}{}", "", "role -> axis -> factor; what is left out is 1"),
    Field("step_s", "number?", "s", "one pass"),
    Field("tok_per_s_per_chip", "number?", "tok/s", "as in a deployment"),
    Field("taken", "boolean", "", "the one that explain takes"),
)

BOUND = (
    Field("key", "string", "", "what is bound, of a deployment row"),
    Field("value", "number?", "", "what it is now, in the unit of the key"),
    Field("min", "number?", "", "least allowed"),
    Field("max", "number?", "", "most allowed"),
    Field("ok", "boolean", "", "known, and within"),
)

PIN = (
    Field("pin", "string", "", "its name in the file"),
    Field("ok", "boolean", "", "nothing moved"),
    Field("model", "string", "", "preset, or name of the config"),
    Field("chip", "string", "", "catalogue id"),
    Field("machine", "string", "", "as in a deployment"),
    Field("feasible", "boolean", "", "legal, and fits"),
    Field("reasons", "string[]", "", "why it is not feasible"),
    Field("bounds", "bound[]", "", "in the file's order"),
)

DIAGNOSTIC = (Field("name", "string", "", "stable name"), Field("text", "string", "", "what to change"))

OBJECTS = {
    "deployment": DEPLOYMENT,
    "explain": EXPLAIN,
    "comparison": COMPARISON,
    "placement": PLACEMENT,
    "chip": CHIP,
    "chip_in_full": CHIP_IN_FULL,
    "link": LINK,
    "price": PRICE,
    "pin": PIN,
    "bound": BOUND,
    "model": MODEL,
    "params": PARAMS,
    "memory": MEMORY,
    "most": MOST,
    "fit": FIT,
    "line": LINE,
    "tier": TIER,
    "layers": LAYERS,
    "files": FILES,
    "ops": OPS,
    "counted_op": COUNTED_OP,
    "part": PART,
    "kv": KV,
    "cache": CACHE,
    "backend": BACKEND,
    "covered": COVERED,
    "figure": FIGURE,
    "calibration": CALIBRATION,
    "run": RUN,
    "cost": COST,
    "owned": OWNED,
    "break_even": BREAK_EVEN,
    "lost": LOST,
    "matrix": MATRIX,
    "entry": ENTRY,
    "pick": PICK,
    "offer": OFFER,
    "speculation": SPECULATION,
    "round": ROUND,
    "report": REPORT,
    "sizes": SIZES,
    "workload": WORKLOAD,
    "change": CHANGE,
    "term": TERM,
    "memory_line": MEMORY_LINE,
    "ratio": RATIO,
    "taken": TAKEN,
    "busy": BUSY,
    "op": OP,
    "flags": FLAGS,
    "diagnostic": DIAGNOSTIC,
}
"""Object -> its keys, in order."""


PRINTED = (
    "deployment",
    "explain",
    "comparison",
    "placement",
    "memory",
    "most",
    "fit",
    "cost",
    "lost",
    "matrix",
    "offer",
    "speculation",
    "report",
    "chip",
    "chip_in_full",
    "pin",
    "model",
    "params",
    "ops",
    "kv",
    "backend",
    "calibration",
)
"""Objects that are printed, one a line; their schemas are shipped in `report/schemas`."""

FOLDER = Path(__file__).with_name("schemas")


def schema_text(name: str) -> str:
    """Return the shipped text of a schema."""
    return json.dumps(json_schema(name), indent=1) + "\n"


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one object of OBJECTS.

    >>> json_schema("sizes")["required"]
    ['r', 'pp', 'dpa', 'tp', 'ep', 'etp', 'dcp']
    """
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **_object(name)}


def _object(name: str) -> dict[str, Any]:
    fields = OBJECTS[name]
    return {
        "type": "object",
        "properties": {f.name: _type(f.type) | _described(f) for f in fields},
        "required": [f.name for f in fields],
        "additionalProperties": False,
    }


def _described(field: Field) -> dict[str, Any]:
    text = " ".join(part for part in (field.text, f"[{field.unit}]" if field.unit else "") if part)
    return {"description": text} if text else {}


def _type(spelled: str) -> dict[str, Any]:
    if spelled.endswith("[]"):
        return {"type": "array", "items": _type(spelled[:-2])}
    if spelled.endswith("{}"):
        return {"type": "object", "additionalProperties": _type(spelled[:-2])}
    if spelled.endswith("?"):
        inner = _type(spelled[:-1])
        return inner | {"type": [inner["type"], "null"]}
    return _object(spelled) if spelled in OBJECTS else {"type": spelled}


if __name__ == "__main__":
    # python -m inferometer.report.schema writes the shipped files again.
    for printed in PRINTED:
        (FOLDER / f"{printed}.schema.json").write_text(schema_text(printed), encoding="utf-8")
