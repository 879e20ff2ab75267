"""What each request asks for, from settings: lengths, images, phase; and what of it was assumed."""

import re
from typing import get_args

import msgspec

from inferometer.errors import InferometerError, unknown_name
from inferometer.estimate.step import Problem
from inferometer.specs.deployment import PLAIN, Phase, Workload

MAX_TOKENS = 1_000_000_000
"""Longest prompt, answer or context taken; a larger number is a slip."""

MAX_DRAFT = 128
"""Most drafted tokens taken: speculation uses a few, trees some dozens."""

MAX_IMAGES = 100_000
"""Most images of a request, same."""

MAX_PIXELS = 100_000
"""Longest side of an image, same."""

MAX_SKEW = 5.0
"""Steepest popularity of experts taken: nearly all tokens go to the same k."""

MAX_REDUNDANT = 4096
"""Most copies of experts a layer."""

MAX_PROMPTS = 100_000_000
"""Most prompts, as of sequences."""

DEFAULT_PHASE: Phase = "decode"
_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})", re.ASCII)
_SHOWN = 40


def lengths(
    phase: Phase,
    assumed: dict[str, str],
    *,
    isl: int | None,
    osl: int | None,
    context: int | None,
    draft_tokens: int | None,
    all_token_logits: bool,
    phase_given: bool,
) -> Workload:
    """Return a workload of text; what was left out is noted in `assumed`.

    Raises InferometerError for a length that is out of range, and for one that the phase has not, or lacks.
    """
    plain = Workload()
    check_tokens("--isl", isl)
    check_tokens("--osl", osl)
    check_tokens("--context", context, least=0 if phase in ("extend", "verify") else 1)
    if context is not None and phase == "prefill":
        raise InferometerError("--context is the KV length of a decode step; prefill takes --isl")
    if context is None and phase == "extend":
        raise InferometerError("--phase extend needs --context, the tokens cached before the --isl new ones")
    generates = PLAIN[phase] == "decode"
    if isl is None and (context is None or not generates):
        assumed["isl"] = str(plain.isl)
    if osl is None and context is None and generates:
        assumed["osl"] = str(plain.osl)
    work = Workload(
        isl=isl or plain.isl,
        osl=osl or plain.osl,
        phase=phase,
        context=context,
        draft_tokens=_draft(draft_tokens, phase),
        all_token_logits=all_token_logits,
    )
    if not phase_given:
        assumed["phase"] = phase_text(work)
    elif phase == "verify" and context is None:
        assumed["context"] = mean_text(work)
    return work


def check_tokens(flag: str, value: int | None, least: int = 1) -> None:
    """Raise InferometerError for a number of tokens that is out of range."""
    if value is not None and not least <= value <= MAX_TOKENS:
        raise InferometerError(f"{flag} {value}: must be from {least} to {MAX_TOKENS} tokens")


def _draft(given: int | None, phase: Phase) -> int:
    """Return the drafted tokens of a verify; there is no usual number."""
    if phase != "verify":
        if given is not None:
            raise InferometerError(f"--draft-tokens is for --phase verify, not {phase}")
        return 0
    if given is None:
        raise InferometerError("--phase verify needs --draft-tokens, as in --draft-tokens 3")
    if not 0 <= given <= MAX_DRAFT:
        raise InferometerError(f"--draft-tokens {given}: must be from 0 to {MAX_DRAFT} tokens")
    return given


def phase_text(work: Workload) -> str:
    """Return a phase that was assumed, with the contexts it is the mean over."""
    if work.phase != "decode" or work.context is not None:
        return work.phase
    return f"{work.phase} ({mean_text(work)})"


def mean_text(work: Workload) -> str:
    """Return the KV lengths at the end of a pass that it is the mean over."""
    low, high = work.ends
    return f"mean over contexts {low}..{high}"


def with_images(work: Workload, images: int | None, size: str | None, assumed: dict[str, str]) -> Workload:
    """Return the workload with `images` a request, of `size` WIDTHxHEIGHT pixels.

    Raises InferometerError for a number or a size that is out of range, a size without images, images beside the
    whole KV length of generated tokens; those of an extend come with its new tokens.
    """
    if images is None:
        if size is not None:
            raise InferometerError(f"--image-size {size[:_SHOWN]}: of no images; add --images N")
        return work
    if not 1 <= images <= MAX_IMAGES:
        raise InferometerError(f"--images {images}: must be from 1 to {MAX_IMAGES} a request")
    if work.context is not None and work.generates:
        raise InferometerError("--images add to --isl; --context is the whole KV length: leave one of them out")
    if size is None:
        assumed["image_size"] = f"{work.image_width}x{work.image_height}"
        return msgspec.structs.replace(work, images=images)
    width, height = parse_image_size(size)
    return msgspec.structs.replace(work, images=images, image_width=width, image_height=height)


def with_routing(work: Workload, skew: float | None, prompts: int | None) -> Workload:
    """Return the workload with experts popular by a power law, and so many different prompts in flight.

    Raises InferometerError for an exponent or a number that is out of range.
    """
    if skew is not None and not 0 <= skew <= MAX_SKEW:
        raise InferometerError(f"--expert-skew {skew}: must be from 0 (all alike) to {MAX_SKEW:g}")
    if prompts is not None and not 1 <= prompts <= MAX_PROMPTS:
        raise InferometerError(f"--distinct-prompts {prompts}: must be from 1 to {MAX_PROMPTS}")
    return msgspec.structs.replace(work, expert_skew=skew or 0.0, distinct_prompts=prompts)


def parse_image_size(text: str) -> tuple[int, int]:
    """Return (width, height) in pixels of `WIDTHxHEIGHT`.

    >>> parse_image_size("1280x720")
    (1280, 720)
    """
    found = _SIZE.fullmatch(text)
    sides = [int(side) for side in found.groups()] if found else []
    if not sides or not all(1 <= side <= MAX_PIXELS for side in sides):
        raise InferometerError(
            f"--image-size {text[:_SHOWN]!r}: give WIDTHxHEIGHT, each from 1 to {MAX_PIXELS} pixels, as in 1280x720"
        )
    return sides[0], sides[1]


def parse_phase(given: str | None, by: str | None) -> Phase:
    """Return the phase; ordering `by` ttft asks for prefill unless one was given.

    Raises UnknownNameError for another, and InferometerError for a decode ordered by ttft.
    """
    if given is None:
        return "prefill" if by == "ttft" else DEFAULT_PHASE
    phases: tuple[Phase, ...] = get_args(Phase)
    phase = next((known for known in phases if known == given), None)
    if phase is None:
        raise unknown_name("phase", given[:_SHOWN], phases)
    if by == "ttft" and PLAIN[phase] == "decode":
        raise InferometerError(f"--by ttft orders prefill passes; leave --phase {phase} out")
    return phase


def say_images(problem: Problem, assumed: dict[str, str]) -> None:
    """Note what was assumed of the images of a problem, now that the model is known."""
    if problem.image is None:
        return
    source = next(tower.image_source for tower in problem.model.towers if tower.image is not None)
    if source:
        assumed["image_limits"] = source
    if "phase" in assumed:
        assumed["phase"] = phase_text(problem.workload)
    if "context" in assumed:
        assumed["context"] = mean_text(problem.workload)


def with_redundant(work: Workload, redundant: int | None) -> Workload:
    """Return the workload of a deployment with copies of experts; raises InferometerError for a number out of range."""
    if redundant is not None and not 0 <= redundant <= MAX_REDUNDANT:
        raise InferometerError(f"--redundant-experts {redundant}: must be from 0 to {MAX_REDUNDANT}")
    return msgspec.structs.replace(work, redundant_experts=redundant or 0)
