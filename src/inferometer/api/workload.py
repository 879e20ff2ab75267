"""What each request asks for, from settings: lengths, images, phase; and what of it was assumed."""

import re
from typing import get_args

import msgspec

from inferometer.errors import InferometerError, unknown_name
from inferometer.estimate.step import Problem
from inferometer.specs.deployment import Phase, Workload

MAX_TOKENS = 1_000_000_000
"""Longest prompt, answer or context taken; a larger number is a slip."""

MAX_IMAGES = 100_000
"""Most images of a request, same."""

MAX_PIXELS = 100_000
"""Longest side of an image, same."""

DEFAULT_PHASE: Phase = "decode"
_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})", re.ASCII)
_SHOWN = 40


def lengths(
    isl: int | None, osl: int | None, context: int | None, phase: Phase, assumed: dict[str, str], *, phase_given: bool
) -> Workload:
    """Return a workload of text; what was left out is noted in `assumed`.

    Raises InferometerError for a length that is out of range, and for a context of a prefill.
    """
    plain = Workload()
    for flag, value in (("--isl", isl), ("--osl", osl), ("--context", context)):
        if value is not None and not 1 <= value <= MAX_TOKENS:
            raise InferometerError(f"{flag} {value}: must be from 1 to {MAX_TOKENS} tokens")
    if context is not None and phase == "prefill":
        raise InferometerError("--context is the KV length of a decode step; prefill takes --isl")
    if context is None:
        if isl is None:
            assumed["isl"] = str(plain.isl)
        if osl is None and phase == "decode":
            assumed["osl"] = str(plain.osl)
    work = Workload(isl=isl or plain.isl, osl=osl or plain.osl, phase=phase, context=context)
    if not phase_given:
        assumed["phase"] = phase_text(work)
    return work


def phase_text(work: Workload) -> str:
    """Return a phase that was assumed, with the contexts it is the mean over."""
    if work.phase != "decode" or work.context is not None:
        return work.phase
    return f"{work.phase} (mean over contexts {work.prompt_tokens}..{work.prompt_tokens + work.osl})"


def with_images(work: Workload, images: int | None, size: str | None, assumed: dict[str, str]) -> Workload:
    """Return the workload with `images` a request, of `size` WIDTHxHEIGHT pixels.

    Raises InferometerError for a number or a size that is out of range, a size without images, images beside a context.
    """
    if images is None:
        if size is not None:
            raise InferometerError(f"--image-size {size[:_SHOWN]}: of no images; add --images N")
        return work
    if not 1 <= images <= MAX_IMAGES:
        raise InferometerError(f"--images {images}: must be from 1 to {MAX_IMAGES} a request")
    if work.context is not None:
        raise InferometerError("--images add to --isl; --context is the whole KV length: leave one of them out")
    if size is None:
        assumed["image_size"] = f"{work.image_width}x{work.image_height}"
        return msgspec.structs.replace(work, images=images)
    width, height = parse_image_size(size)
    return msgspec.structs.replace(work, images=images, image_width=width, image_height=height)


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
    if by == "ttft" and phase == "decode":
        raise InferometerError("--by ttft orders prefill passes; leave --phase decode out")
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
