"""Every option and argument of the command line: one spelling, aliases beside it, shared by all verbs.

A verb names the fields it takes; `command` gives it a signature that typer reads, and calls it with one `Options`.
"""

import dataclasses
import inspect
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from inferometer.cli.verb_options import OUTPUT, REPEATED, REQUIRED, VERBS
from inferometer.errors import InferometerError


def _option(*flags: str, text: str, metavar: str | None = None, panel: str | None = None) -> Any:
    return typer.Option(*flags, help=text, metavar=metavar, rich_help_panel=panel, show_default=False)


def _argument(name: str, text: str) -> Any:
    return typer.Argument(help=text, metavar=name, show_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was typed. None is not given: defaults are the Python face's."""

    model: Annotated[
        str, _argument("MODEL", "Preset, alias, config.json, its directory, .gguf, or org/name[@revision].")
    ] = ""
    chip: Annotated[str, _argument("CHIP", "Chip, machine, cloud instance or a file; several with commas.")] = ""
    machine: Annotated[
        str | None, _argument("MACHINE", "Chips x nodes (8x2), a torus slice (4x4x4), or a machine's name.")
    ] = None
    for_chip: Annotated[
        str | None, _argument("[CHIP]", "Whose arithmetic types to take; without one, those that are stored.")
    ] = None
    any_chip: Annotated[
        str | None, _argument("[CHIP]", "Chip, machine, cloud instance or a file; where several are compared, all.")
    ] = None
    pins: Annotated[str, _argument("FILE", "Pinned deployments with their bounds, TOML (docs/files.md).")] = ""
    files: Annotated[
        list[str], _argument("FILE...", "Results of vllm bench serve, or points in CSV: 1 to 50 runs.")
    ] = dataclasses.field(default_factory=list)
    one_chip: Annotated[str | None, _argument("[CHIP]", "One chip in full, of the catalogue or a file.")] = None
    vendor: Annotated[str | None, _option("--vendor", metavar="NAME", text="Chips of one maker.")] = None
    min_memory: Annotated[
        str | None,
        _option("--min-memory", metavar="SIZE", text="Chips of at least as much visible memory, as in 80GiB."),
    ] = None
    sort: Annotated[
        str | None,
        _option("--sort", metavar="FIELD", text="memory, bandwidth, peak.fp8, price, tdp, ...: the best first."),
    ] = None
    for_model: Annotated[
        str | None, _option("--model", metavar="MODEL", text="Add the least number of chips that holds its weights.")
    ] = None
    quant: Annotated[str | None, _option("--quant", metavar="NAME", text="Weights as fp8, nvfp4, int4-g128, ...")] = (
        None
    )
    kv_cache_dtype: Annotated[
        str | None, _option("--kv-cache-dtype", metavar="NAME", text="KV cache as fp8, ... (the checkpoint's).")
    ] = None
    state_dtype: Annotated[
        str | None,
        _option("--state-dtype", metavar="NAME", text="Recurrent states as bf16, ... (the config's, or fp32)."),
    ] = None
    state_slots: Annotated[
        int | None, _option("--state-slots", metavar="N", text="Copies of its recurrent states a sequence holds (1).")
    ] = None
    no_conv_state: Annotated[
        bool, _option("--no-conv-state", text="No memory for what convolutions keep: recurrent states alone.")
    ] = False
    cut_latents: Annotated[
        bool, _option("--cut-latents", text="TP splits projections to latents and gathers them; no engine does.")
    ] = False
    batch_size: Annotated[
        int | None,
        _option("--batch-size", "--batch", metavar="N", text="Sequences in flight over all chips (the best, or most)."),
    ] = None
    isl: Annotated[int | None, _option("--isl", "--prefill-len", metavar="TOKENS", text="Prompt length (8192).")] = None
    osl: Annotated[int | None, _option("--osl", "--gen-len", metavar="TOKENS", text="Answer length (1024).")] = None
    context: Annotated[
        int | None,
        _option(
            "--context",
            "--context-len",
            metavar="TOKENS",
            text="Decode: one KV length at its end, not the mean over the answer; extend, verify: the cached prefix.",
        ),
    ] = None
    images: Annotated[
        int | None, _option("--images", metavar="N", text="Images of a request, in front of its text (none).")
    ] = None
    image_size: Annotated[
        str | None, _option("--image-size", metavar="WxH", text="Pixels of each image (1024x1024).")
    ] = None
    expert_skew: Annotated[
        float | None, _option("--expert-skew", metavar="S", text="Experts are popular like 1/rank^S (0: all alike).")
    ] = None
    distinct_prompts: Annotated[
        int | None, _option("--distinct-prompts", metavar="N", text="Different prompts in flight: same experts (all).")
    ] = None
    redundant_experts: Annotated[
        int | None, _option("--redundant-experts", metavar="N", text="Copies of experts a layer, over EP's ranks (0).")
    ] = None
    phase: Annotated[
        str | None, _option("--phase", metavar="PHASE", text="decode (default), prefill, extend or verify.")
    ] = None
    draft_tokens: Annotated[
        int | None, _option("--draft-tokens", metavar="K", text="Drafted tokens of a sequence that a verify checks.")
    ] = None
    all_token_logits: Annotated[
        bool, _option("--all-token-logits", text="Logits of every prompt token, not of the last alone.")
    ] = False
    sizes: Annotated[
        str | None,
        _option("--sizes", metavar="ROLE=N,...", text="Role sizes of R PP DPA TP EP ETP DCP; rest is filled."),
    ] = None
    placement: Annotated[
        str | None,
        _option("--placement", metavar="ROLE=AXIS:N+AXIS:N,...", text="Where roles lie (the cheapest)."),
    ] = None
    tensor_parallel_size: Annotated[
        int | None,
        _option("--tensor-parallel-size", "-tp", metavar="N", text="TP, as vLLM spells it, instead of --sizes."),
    ] = None
    pipeline_parallel_size: Annotated[
        int | None, _option("--pipeline-parallel-size", "-pp", metavar="N", text="Pipeline stages.")
    ] = None
    data_parallel_size: Annotated[
        int | None, _option("--data-parallel-size", "-dp", metavar="N", text="DPA; of a dense model, replicas.")
    ] = None
    enable_expert_parallel: Annotated[
        bool, _option("--enable-expert-parallel", text="Experts over all chips of a stage, not cut.")
    ] = False
    expert_parallel_size: Annotated[
        int | None, _option("--expert-parallel-size", "-ep", metavar="N", text="EP, with its size.")
    ] = None
    decode_context_parallel_size: Annotated[
        int | None, _option("--decode-context-parallel-size", "-dcp", metavar="N", text="DCP.")
    ] = None
    gpu_memory_utilization: Annotated[
        float | None,
        _option("--gpu-memory-utilization", "--mem-fraction", metavar="SHARE", text="For weights and KV (0.9)."),
    ] = None
    reserve_bytes: Annotated[
        float | None, _option("--reserve-bytes", metavar="BYTES", text="Kept from weights and KV, instead.")
    ] = None
    max_model_len: Annotated[
        int | None, _option("--max-model-len", metavar="TOKENS", text="Longest sequence the engine takes (--context).")
    ] = None
    max_num_seqs: Annotated[
        int | None, _option("--max-num-seqs", metavar="N", text="Sequences at once a rank (the engine's).")
    ] = None
    max_num_batched_tokens: Annotated[
        int | None, _option("--max-num-batched-tokens", metavar="N", text="Tokens of the largest pass (the engine's).")
    ] = None
    enforce_eager: Annotated[bool, _option("--enforce-eager", text="No captured graphs.")] = False
    enable_prefix_caching: Annotated[
        bool, _option("--enable-prefix-caching", text="Prefixes are kept: more states a sequence.")
    ] = False
    n_gpu_layers: Annotated[
        int | None, _option("--n-gpu-layers", "-ngl", metavar="N", text="llama.cpp: layers on the chip (all).")
    ] = None
    cpu_offload_gb: Annotated[
        float | None, _option("--cpu-offload-gb", metavar="GIB", text="Weights the host keeps for each chip.")
    ] = None
    kv_cpu_gb: Annotated[
        float | None,
        _option("--kv-cpu-gb", metavar="GIB", text="Host memory for each chip's prefixes, beside its pool."),
    ] = None
    kv_disk_gb: Annotated[float | None, _option("--kv-disk-gb", metavar="GIB", text="The same, of a disk.")] = None
    lora_adapters: Annotated[
        int | None, _option("--lora-adapters", metavar="N", text="LoRA adapters held at once.")
    ] = None
    lora_rank: Annotated[int | None, _option("--lora-rank", metavar="R", text="Their rank.")] = None
    engine: Annotated[
        str | None, _option("--engine", metavar="NAME", text="Whose rules to keep: ideal (default), vllm, vllm@0.24.")
    ] = None
    choice: Annotated[
        str | None, _option("--choice", metavar="NAME=PLAN,...", text="Pin choices, as in mla=absorbed,unpack=apart.")
    ] = None
    backend: Annotated[
        str | None, _option("--backend", metavar="NAME", text="Cost backend: calibrated (default), roofline, measured.")
    ] = None
    calibration: Annotated[
        str | None, _option("--calibration", metavar="FILE|ERA", text="Your own factors; or an era: vllm-2024.")
    ] = None
    scheduler: Annotated[
        str | None, _option("--scheduler", metavar="NAME", text="streams, serial, overlap or dag (the backend's).")
    ] = None
    overlap: Annotated[
        str | None, _option("--overlap", metavar="A,B", text="Shares of memory, network that hide (0.9,0.65).")
    ] = None
    usd_per_chip_hour: Annotated[
        float | None, _option("--usd-per-chip-hour", metavar="USD", text="Price (the catalogue's).")
    ] = None
    provider: Annotated[str | None, _option("--provider", metavar="NAME", text="Whose price.")] = None
    region: Annotated[str | None, _option("--region", metavar="NAME", text="Price of which region.")] = None
    tier: Annotated[
        str | None, _option("--tier", metavar="NAME", text="on-demand, spot, lowest-listed or marketplace.")
    ] = None
    draft: Annotated[str | None, _option("--draft", metavar="MODEL", text="Draft model (the model's own drafter).")] = (
        None
    )
    draft_quant: Annotated[str | None, _option("--draft-quant", metavar="NAME", text="Its weights as fp8, ...")] = None
    lookahead: Annotated[int | None, _option("--lookahead", metavar="K", text="Places guessed ahead (4).")] = None
    acceptance: Annotated[
        float | None, _option("--acceptance", metavar="A", text="Chance that a guess is taken once those before were.")
    ] = None
    accepted: Annotated[
        float | None, _option("--accepted", metavar="TOKENS", text="Of a tree: mean of guesses taken a pass, instead.")
    ] = None
    tree_tokens: Annotated[
        int | None, _option("--tree-tokens", metavar="N", text="Guesses of a tree, all checked (the lookahead).")
    ] = None
    output: Annotated[str | None, _option("--output", "-o", metavar="FILE", text="Report (stdout) or calibration.")] = (
        None
    )
    form: Annotated[str | None, _option("--format", metavar="FORM", text="md (default), html or json.")] = None
    price_chip: Annotated[str | None, _option("--chip", metavar="CHIP", text="Prices of one chip (all).")] = None
    live: Annotated[
        bool, _option("--live", text="Of the day, through gpuhunt (pip install 'inferometer[prices]').")
    ] = False
    utilization: Annotated[
        float | None, _option("--utilization", metavar="SHARE", text="Of the hour that it is busy (1).")
    ] = None
    compare_clouds: Annotated[bool, _option("--compare-clouds", text="Every provider and tier with a price.")] = False
    compare_all: Annotated[bool, _option("--compare-all", text="Every chip of the catalogue.")] = False
    break_even: Annotated[
        float | None, _option("--break-even", metavar="USD", text="A closed API's price of a million tokens, to beat.")
    ] = None
    capex: Annotated[
        float | None, _option("--capex", metavar="USD", text="Owned hardware: all chips with their hosts.")
    ] = None
    years: Annotated[float | None, _option("--years", metavar="N", text="Life of owned hardware (4).")] = None
    kwh: Annotated[float | None, _option("--kwh", metavar="USD", text="Price of a kWh (0.12).")] = None
    pue: Annotated[
        float | None, _option("--pue", metavar="RATIO", text="Power of the site over that of the chips (1.3).")
    ] = None
    what_if: Annotated[
        list[str] | None,
        _option("--what-if", metavar="FIELD=VALUE,...", text="Change the machine: hbm_bandwidth=+20%, link.nvlink=2x."),
    ] = None
    grouped: Annotated[str | None, _option("--by", metavar="WHAT", text="kind (default) or layer.")] = None
    against: Annotated[
        str | None,
        _option(
            "--against", metavar="'CHIP MACHINE OPTIONS'", text="Hold another deployment against it, the rest alike."
        ),
    ] = None
    placements: Annotated[bool, _option("--placements", text="List every placement with its step, fastest first.")] = (
        False
    )
    slo: Annotated[
        str | None, _option("--slo", metavar="LIMIT", text="20 (tok/s a user), tpot=50ms, or ttft=2s in prefill.")
    ] = None
    by: Annotated[
        str | None, _option("--by", metavar="WHAT", text="tok_per_s_per_chip, tok_per_s, tok_per_s_per_user or ttft.")
    ] = None
    per_dollar: Annotated[bool, _option("--per-dollar", text="Order by tokens a dollar.")] = False
    top: Annotated[int | None, _option("--top", metavar="N", text="Rows (10; the verb top 5).")] = None
    points: Annotated[str | None, _option("--points", metavar="FILE", text="Your own measured points (CSV).")] = None
    measured_class: Annotated[
        str | None, _option("--class", metavar="NAME", text="Points of one class of measurement only.")
    ] = None
    plot: Annotated[
        str | None, _option("--plot", metavar="FILE", text="Predicted against measured, a picture: .png or .svg.")
    ] = None
    on_chip: Annotated[
        str | None, _option("--chip", metavar="NAME", text="Chip or machine that the runs of result files ran on.")
    ] = None
    progress: Annotated[bool, _option("--progress", text="Say on stderr how far it is, terminal or not.")] = False
    json: Annotated[bool, _option("--json", text="One JSON object a line.")] = False
    table: Annotated[bool, _option("--table", text="A table (default).")] = False


class ClosedPipeError(Exception):
    """Whoever read stdout has gone. No OSError: click would end the process with 1 for that."""


def flags(field: str) -> tuple[str, ...]:
    """Return the spellings of a field, the first one first; empty for an argument."""
    info = get_type_hints(Options, include_extras=True)[field].__metadata__[0]
    if not isinstance(info, OptionInfo):
        return ()
    return tuple(flag for flag in (info.default, *(info.param_decls or ())) if isinstance(flag, str))


def check_once(arguments: Sequence[str]) -> None:
    """Raise InferometerError where an option that takes a value is given twice: only the last would count."""
    verb = next((word for word in arguments if word in VERBS), None)
    if verb is None:
        return
    spellings = {flag: field for field in VERBS[verb] for flag in flags(field)}
    switches = {field.name for field in fields(Options) if field.default is False}
    seen: set[str] = set()
    words = iter(arguments)
    for word in words:
        if word == "--":
            return
        name, equals, _ = word.partition("=")
        field = spellings.get(name)
        if field is None or field in switches:
            continue
        if field in seen and field not in REPEATED:
            raise InferometerError(f"{flags(field)[0]} is given twice")
        seen.add(field)
        if not equals:
            next(words, None)


def spelled(verb: str, options: Options) -> str:
    """Return the command line of `verb` that says `options`; fields that the verb does not take are left out."""
    words = ["inferometer", verb]
    for field in VERBS[verb]:
        value = getattr(options, field)
        if value is None or value is False or field in OUTPUT:
            continue
        name = flags(field)[:1]
        for one in value if field in REPEATED else (value,):
            words += [*name, *([] if one is True else [shlex.quote(str(one))])]
    return " ".join(words)


def command(app: typer.Typer, name: str, verb: Callable[[Options], None]) -> None:
    """Register `verb` under `name` with its fields as arguments and options; its docstring is the help."""
    hints = get_type_hints(Options, include_extras=True)
    defaults = {field.name: field.default for field in fields(Options)}
    parameters = [
        inspect.Parameter(
            field,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field],
            default=inspect.Parameter.empty if field in REQUIRED else defaults[field],
        )
        for field in VERBS[name]
    ]

    def call(**typed: Any) -> None:
        try:
            verb(Options(**typed))
        except BrokenPipeError as error:
            raise ClosedPipeError from error

    vars(call)["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(name, help=inspect.getdoc(verb))(call)
