"""What a published row asks of the estimator, or why it cannot be asked.

Class A: B requests start together, and the engine runs one prefill of all of them, then decode steps. Letters: I and
O tokens in and out of a request, B requests, n decode steps, c context a query sees.

The prefill of I tokens emits the first token, so n = O - 1; step j feeds token j back and sees c = I + j. Without a
prompt (I = 0, llama-bench `tg`) nothing is prefilled and n = O.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from zlib import crc32

from inferometer.blocks.kinds import is_moe
from inferometer.measurement.frameworks import engine_loop
from inferometer.measurement.models import KV_FORMATS, QUANTISED_HEAD, WEIGHT_FORMATS, chip_of, find_model
from inferometer.measurement.points import Point
from inferometer.measurement.summary import ARGONNE
from inferometer.specs.deployment import Sizes
from inferometer.specs.model import ModelSpec

SCORED_CLASSES = ("A", "B", "B2", "C")
"""Classes there is a rule for. D needs pools, O are single operations."""

FLOOD = "C"
"""Class whose rows state no batch: memory sets it."""

FOLDS = 5
"""Folds of published points, by pair of model and chip: what is fitted to the others is held against one."""


def fold_of(model: str, chip: str) -> int:
    """Return the fold of a pair, as published: by its name, so that it never changes.

    >>> fold_of("deepseek-ai/DeepSeek-R1-0528", "B200") == fold_of("deepseek-ai/DeepSeek-R1-0528", "B200") < FOLDS
    True
    """
    return crc32(f"{model}|{chip}".encode()) % FOLDS


ERAS = {
    "vllm-2024": "vLLM of the first half of 2024, argonne-lcf/LLM-Inference-Bench (arXiv:2411.00136)",
    "trtllm-2024": "TensorRT-LLM of the first half of 2024, argonne-lcf/LLM-Inference-Bench (arXiv:2411.00136)",
    "trtllm-0.14": "TensorRT-LLM 0.14 of November 2024, NVIDIA's performance overview",
}
"""Software of another time that scalars are fitted to (`fit_eras`)."""

ENGINE_OF_ERA = {"vLLM": "vllm-2024", "TensorRT-LLM": "trtllm-2024"}


def era_of(point: Point) -> str:
    """Return the era of a row's software; nothing where it is of today."""
    if point.source.url.startswith(ARGONNE):
        return ENGINE_OF_ERA.get(point.framework, "")
    name = f"{point.framework} {point.framework_version}"
    return "trtllm-0.14" if name.startswith("TensorRT-LLM 0.14") else ""


NARROW = ("fp8", "fp8-block", "nvfp4", "mxfp4")

SCORED_METRICS = (
    "ttft",
    "tpot",
    "e2e_latency",
    "output_tok_per_s",
    "output_tok_per_s_per_chip",
    "total_tok_per_s_per_chip",
    "input_tok_per_s_per_chip",
)


class Unsaid(NamedTuple):
    """What rows of one kind leave out, and what is assumed for it."""

    values: Mapping[str, int]
    why: str


_SHORT = Unsaid({"isl_tok": 8}, "isl 8: a 'short prompt' of unstated length")

UNSAID: Mapping[tuple[str, str], Unsaid] = MappingProxyType(
    {
        ("gpt-fast", "decode"): Unsaid({"osl_tok": 200}, "osl 200: gpt-fast generate.py --max_new_tokens default"),
        ("MLC LLM", "decode"): _SHORT,
        ("ExllamaV2", "decode"): _SHORT,
        ("llama.cpp", "decode"): _SHORT,
        ("DeepSeek in-house", "prefill"): Unsaid(
            {"batch": 128}, "batch 128: 16K tokens a chip on 32 chips in prompts of 4K, as its notes say"
        ),
    }
)
"""(framework, phase) -> what its rows do not state in columns; only empty cells are filled."""


class Setup(NamedTuple):
    """A model as stored, on a machine, sharded one way."""

    model: str
    weights: str
    kv: str
    head: bool
    """Whether the weight scheme takes the head."""
    chip: str
    """As published; `models.chip_of` knows it."""
    n_chips: int
    sizes: Sizes
    engine: str = "ideal"
    """Engine of the catalogue whose kernels ran, and whose rules admitted."""


class Question(NamedTuple):
    """One setup under one load."""

    setup: Setup
    phase: str
    isl_tok: int
    osl_tok: int | None
    """None: one decode step at a context of `isl_tok`."""
    batch: int | None
    """Requests that start together, or in flight; None: as many as memory holds."""
    assumed: tuple[str, ...]
    klass: str = "A"
    framework: str = ""
    era: str = ""
    """Of the software, where it is not of today."""
    median: bool = False
    """Times are medians over requests, not means."""

    @property
    def loops(self) -> bool:
        """Whether requests come and go (classes B and C), not all at once."""
        return self.klass != "A"

    @property
    def decode_steps(self) -> int:
        """n: decode steps a request takes."""
        if self.osl_tok is None:
            return 1
        return self.osl_tok - (1 if self.isl_tok else 0)


def prefill_only(metric: str) -> bool:
    """Return whether a metric is about the prefill alone."""
    return metric in ("ttft", "input_tok_per_s_per_chip")


def decode_only(metric: str, phase: str) -> bool:
    """Return whether a metric of a row of this phase is about decode steps alone."""
    return metric == "tpot" or (phase == "decode" and metric.startswith("output_tok"))


def ask(point: Point) -> Question | str:
    """Return the question of a row, or the reason it has none: `what: as published`."""
    reason = _unfit(point)
    if reason:
        return reason
    unsaid = UNSAID.get((point.framework, point.phase))
    said = {"isl_tok": point.isl_tok, "osl_tok": point.osl_tok, "batch": point.batch}
    filled = {k: v for k, v in unsaid.values.items() if said[k] is None} if unsaid else {}
    load = said | filled
    isl_tok, osl_tok, batch = load["isl_tok"], load["osl_tok"], load["batch"]
    missing = _missing(point, isl_tok, osl_tok, batch)
    if missing or isl_tok is None:
        return f"not stated: {missing}"
    model = find_model(point.model)
    n_chips = point.n_chips
    sizes = sizes_of(point, model) if model else None
    if sizes is None or n_chips is None:
        return "sizes: do not multiply to the chips"
    assumed = [unsaid.why] if unsaid and filled else []
    return Question(
        setup=Setup(
            model=point.model,
            weights=WEIGHT_FORMATS[point.weight_format.lower()],
            kv=_kv_format(point, assumed),
            head=point.framework in QUANTISED_HEAD,
            chip=point.hardware,
            n_chips=n_chips,
            sizes=sizes,
            engine=engine_loop(point.framework).kernels,
        ),
        phase=point.phase,
        isl_tok=isl_tok,
        osl_tok=osl_tok,
        batch=batch,
        assumed=tuple(assumed),
        klass=point.klass,
        framework=point.framework,
        era=era_of(point),
        median="median" in point.source.notes.lower(),
    )


def _kv_format(point: Point, assumed: list[str]) -> str:
    """Return the format of a row's KV; where it is not stated, fp8 beside narrow weights of 2025 engines."""
    stated = KV_FORMATS.get(point.kv_format.lower(), "")
    if stated or point.klass == "A" or WEIGHT_FORMATS[point.weight_format.lower()] not in NARROW:
        return stated
    assumed.append("KV fp8: not stated, weights are narrow")
    return "fp8"


def _unfit(point: Point) -> str:
    """Return why no rule covers a row; empty where one does."""
    kv = point.kv_format.lower()
    checks = (
        (point.klass in SCORED_CLASSES, f"class: {point.klass or 'none'}"),
        (point.metric in SCORED_METRICS, f"metric: {point.metric}"),
        (point.speculation.split(" ")[0] in ("none", ""), f"speculation: {point.speculation}"),
        (point.disaggregated in ("n", ""), "disaggregated"),
        (find_model(point.model) is not None, f"model: {point.model or 'none'}"),
        (chip_of(point.hardware) is not None, f"chip: {point.hardware or 'none'}"),
        (point.weight_format.lower() in WEIGHT_FORMATS, f"weight format: {point.weight_format or 'none'}"),
        (kv in KV_FORMATS or kv in ("", "auto"), f"kv format: {point.kv_format}"),
        (point.n_chips is not None, "not stated: n_chips"),
    )
    return next((reason for ok, reason in checks if not ok), "")


def _missing(point: Point, isl_tok: int | None, osl_tok: int | None, batch: int | None) -> str:
    """Return which of the load's numbers is needed and absent, or too small to mean anything."""
    steps_only = decode_only(point.metric, point.phase)
    if isl_tok is None or (isl_tok == 0 and not steps_only):
        return "isl"
    if batch is None and point.klass != FLOOD:
        return "batch"
    if prefill_only(point.metric):
        return ""
    if osl_tok is None:
        return "" if steps_only and isl_tok else "osl"
    return "osl" if osl_tok < (2 if steps_only and isl_tok else 1) else ""


def sizes_of(point: Point, model: ModelSpec) -> Sizes | None:
    """Return a row's role sizes; None where they do not multiply to its chips.

    `tp` (else chips / pp) spans a stage; with experts over more ranks than that, EP does. DP attention makes every
    chip of the stage its own attention rank: DPA = stage, TP = 1. MoE: EP = ep, ETP = stage / EP. What is left of
    the chips are replicas.
    """
    n_chips, pp = point.n_chips or 1, point.pp or 1
    tp = point.tp or max(n_chips // pp, 1)
    moe = is_moe(model)
    ep = (point.ep or 1) if moe else 1
    stage = max(tp, ep)
    dpa = stage if point.dp_attention else stage // tp
    if n_chips % (pp * stage) or stage % tp or stage % ep or (dpa > 1 and not moe):
        return None
    return Sizes(r=n_chips // (pp * stage), pp=pp, dpa=dpa, tp=stage // dpa, ep=ep, etp=stage // ep if moe else 1)
