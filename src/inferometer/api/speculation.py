"""Speculative decoding of one deployment: a draft model, or the model's own drafter."""

from dataclasses import dataclass
from typing import Unpack

import msgspec

from inferometer.api.load import load_model
from inferometer.api.memory import memory
from inferometer.api.questions import estimate
from inferometer.api.settings import Settings, of_deployment
from inferometer.api.sizes import Given, role_given
from inferometer.api.workload import MAX_DRAFT
from inferometer.blocks.kinds import is_moe
from inferometer.errors import InferometerError
from inferometer.report.answer import Answer
from inferometer.report.speculation import Round, Speculation, Together
from inferometer.serving.speculation import tokens_per_pass
from inferometer.specs.drafter import Drafter
from inferometer.specs.hardware import Machine
from inferometer.specs.model import Layer, ModelSpec

MAX_LOOKAHEAD = 64
TRIED = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Lookaheads among which the best is looked for, beside the one asked for."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Batches shown, as many times the ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How tokens are guessed."""

    model: ModelSpec | str | None = None
    """None: the model's own drafter."""
    quant: str | None = None
    """Format of the draft model's weights (its checkpoint's)."""
    lookahead: int = 4
    acceptance: float | None = None
    """Chance that a drafted token is taken once those before it were."""
    accepted: float | None = None
    """Instead, of a tree: mean of drafted tokens taken a pass."""
    tree_tokens: int | None = None
    """Drafted tokens of a tree, which are all checked (the lookahead)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drafter:
    """A drafter as a model that can be priced."""

    name: str
    model: ModelSpec
    settings: Settings
    own: bool
    tokens: int = 1
    """That it guesses a pass."""
    beside_bytes: float = 0.0
    """Of matrices beside its layers, read in each pass, over all chips of a TP group."""


def speculate(
    model: ModelSpec | str,
    machine: Machine | str,
    draft: Draft,
    sizes: Given = None,
    *,
    batch: int = 1,
    **settings: Unpack[Settings],
) -> Speculation:
    """Return tokens a pass, times, speed-up, the best lookahead, and where a larger batch ends the gain.

    Other parameters as in `estimate`. The draft model lies beside the target, its TP the same. Raises InferometerError
    for input that makes no sense; what does not fit together has `.reasons`.

    >>> found = speculate("llama-3.1-70b", "h100 4x1", Draft(model="llama-3.2-3b", acceptance=0.75), context=2048)
    >>> round(found.asked.tokens_per_pass, 4)
    3.0508
    """
    _check(draft)
    spec = load_model(model) if isinstance(model, str) else model
    target = estimate(spec, machine, sizes, batch=batch, **settings)
    where, filled = target.problem.machine, target.estimate.sizes
    if filled.pp > 1:
        raise InferometerError(f"speculation over PP={filled.pp} stages is not priced; shard by TP, DPA or R")
    assumed = dict(target.assumed)
    drafter = _drafter(spec, draft, settings, assumed)
    roles = _draft_roles(drafter.model, target)
    price = _Pricer(spec=spec, where=where, target=target, drafter=drafter, draft=draft, roles=roles, settings=settings)
    ranks = filled.r * filled.dpa
    given = draft.accepted is not None
    lookaheads = () if given else sorted({*TRIED, draft.lookahead})
    wanted = sorted({batch, *(ranks * n for n in BATCHES)})
    length = target.problem.max_length
    held = of_deployment(settings, context=length, batch=batch)
    together = Together(
        memory(spec, where, role_given(filled), **held),
        memory(drafter.model, where, roles, **of_deployment(drafter.settings, context=length, batch=batch)),
        drafter.own,
    )
    most = max(batch, together.most_sequences)
    return Speculation(
        target=target,
        draft_name=drafter.name,
        acceptance=draft.acceptance,
        asked=price.round(batch, draft.lookahead),
        lookaheads=tuple(price.round(batch, k) for k in lookaheads),
        batches=tuple(price.round(b, draft.lookahead) for b in wanted if b <= most),
        memory=together,
        assumed=assumed,
    )


def _check(draft: Draft) -> None:
    if not 1 <= draft.lookahead <= MAX_LOOKAHEAD:
        raise InferometerError(f"--lookahead {draft.lookahead}: must be from 1 to {MAX_LOOKAHEAD} tokens")
    if (draft.acceptance is None) == (draft.accepted is None):
        raise InferometerError(
            "give --acceptance (chance that a drafted token is taken) or --accepted (mean of a tree)"
        )
    if draft.acceptance is not None and not 0 <= draft.acceptance <= 1:
        raise InferometerError(f"--acceptance {draft.acceptance}: must be from 0 to 1")
    if draft.accepted is not None and not 0 <= draft.accepted <= draft.lookahead:
        raise InferometerError(f"--accepted {draft.accepted}: must be from 0 to --lookahead {draft.lookahead}")
    if draft.tree_tokens is None:
        return
    if draft.accepted is None:
        raise InferometerError("--tree-tokens is of a tree, whose gain is told by --accepted, not --acceptance")
    if not draft.lookahead <= draft.tree_tokens <= MAX_DRAFT:
        raise InferometerError(f"--tree-tokens {draft.tree_tokens}: must be from --lookahead to {MAX_DRAFT}")


def _drafter(spec: ModelSpec, draft: Draft, settings: Settings, assumed: dict[str, str]) -> _Drafter:
    """Return the draft model named, in its own formats, or the model's own drafter."""
    if draft.model is not None:
        named = load_model(draft.model) if isinstance(draft.model, str) else draft.model
        if named.vocab != spec.vocab:
            assumed["vocabularies"] = f"of {spec.vocab:,} and {named.vocab:,} tokens taken for one"
        changes = Settings(quant=draft.quant, cpu_offload_gb=None, lora_adapters=None, lora_rank=None)
        return _Drafter(name=named.name, model=named, settings=Settings(**{**settings, **changes}), own=False)
    if not spec.drafters:
        raise InferometerError(f"{spec.name} has no drafter of its own; give --draft MODEL")
    if draft.quant is not None:
        raise InferometerError("--draft-quant is of a --draft MODEL; the model's own drafter goes with --quant")
    own = spec.drafters[0]
    assumed["drafter"] = f"a pass of its own {own.kind} layers with the model's embedding and head"
    return _Drafter(
        name=f"{spec.name}'s own {own.kind}",
        model=own_model(spec, own),
        settings=settings,
        own=True,
        tokens=own.tokens,
        beside_bytes=_beside_bytes(own),
    )


def own_model(spec: ModelSpec, own: Drafter) -> ModelSpec:
    """Return one step of a model's own drafter as a model: its layers between the model's embedding and head."""
    steps = _steps(own)
    stack = tuple(Layer(mixer=one.mixer, ffn=one.ffn) for one in own.layers[: len(own.layers) // steps])
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name}-{own.kind}",
        mixers=own.mixers,
        ffns=own.ffns,
        layers=stack,
        units=(),
        drafters=(),
        towers=(),
    )


def _steps(own: Drafter) -> int:
    """Return how many modules a drafter has, each for a place further ahead."""
    times = own.shapes["eh_proj"][2] if "eh_proj" in own.shapes else 1
    return times if times and len(own.layers) % times == 0 else 1


def _beside_bytes(own: Drafter) -> float:
    """Return the bytes of one module's matrices beside its layers, 2 a number."""
    return sum(2.0 * rows * cols * times for rows, cols, times in own.shapes.values()) / _steps(own)


def _draft_roles(drafter: ModelSpec, target: Answer) -> dict[str, int]:
    """Return the drafter's sizes: the target's TP, and what a dense one writes as replicas for its other ranks."""
    sizes, both = target.estimate.sizes, is_moe(target.problem.model)
    if is_moe(drafter):
        same = {"r": sizes.r, "dpa": sizes.dpa, "tp": sizes.tp}
        return same | ({"ep": sizes.ep, "etp": sizes.etp} if both else {})
    return {"r": sizes.r * sizes.dpa, "tp": sizes.tp}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pricer:
    """Prices rounds of one target and drafter."""

    spec: ModelSpec
    where: Machine
    target: Answer
    drafter: _Drafter
    draft: Draft
    roles: dict[str, int]
    settings: Settings

    def round(self, batch: int, lookahead: int) -> Round:
        """Return one round at a batch and a lookahead."""
        draft = self.draft
        drafted = draft.tree_tokens or lookahead
        decode = self._decode(batch)
        given = draft.accepted is not None
        tokens = 1 + (draft.accepted or 0.0) if given else tokens_per_pass(draft.acceptance or 0.0, lookahead)
        return Round(
            batch=batch,
            lookahead=lookahead,
            drafted=drafted,
            tokens_per_pass=tokens,
            draft_passes=-(-lookahead // self.drafter.tokens),
            draft_s=self._draft_s(batch),
            verify_s=self._verify_s(batch, drafted),
            decode_s=decode.estimate.step_s,
        )

    def _decode(self, batch: int) -> Answer:
        if batch == self.target.estimate.batch:
            return self.target
        return estimate(self.spec, self.where, self.target.estimate.sizes, batch=batch, **self._plain(self.settings))

    def _draft_s(self, batch: int) -> float:
        priced = estimate(
            self.drafter.model, self.where, self.roles, batch=batch, **self._plain(self.drafter.settings)
        ).estimate
        chip = self.where.chip
        return priced.step_s + self.drafter.beside_bytes / priced.sizes.tp / chip.memory_bytes_per_s

    def _verify_s(self, batch: int, drafted: int) -> float:
        """Return the seconds of a verify of `drafted` tokens behind the context that the plain decode has."""
        context = self.settings.get("context")
        before = None if context is None else context - 1  # a decode's context counts its own token
        changes = Settings(phase="verify", draft_tokens=drafted, context=before)
        plain = Settings(**{**self._plain(self.settings), **changes})
        return estimate(self.spec, self.where, self.target.estimate.sizes, batch=batch, **plain).estimate.step_s

    def _plain(self, settings: Settings) -> Settings:
        """Return the settings for the machine as it is: what-ifs are in it already."""
        return Settings(**{**settings, "what_if": None})
