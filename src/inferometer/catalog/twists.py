"""Twisted tori: `4x4x8_twisted`, and what going round a ring of one does."""

from inferometer.errors import InferometerError
from inferometer.specs.hardware import MachineSpec

WORDS = ("twisted", "untwisted")
"""What may follow the sizes, after an underscore, as in `gcloud --topology`."""

Turns = tuple[tuple[int, ...], ...]


def split_twist(text: str, numbers: str) -> str:
    """Return what follows the sizes (`numbers`) in `text`: `twisted`, `untwisted` or nothing.

    Raises InferometerError for anything else.
    """
    word = text[len(numbers) :].strip().removeprefix("_").lower()
    if len(text) > len(numbers) and word not in WORDS:
        raise InferometerError(f"machine {text[:40]!r}: after the sizes comes _twisted, _untwisted or nothing")
    return word


def twist_of(spec: MachineSpec, sizes: tuple[int, ...], word: str, text: str) -> Turns:
    """Return the turns (`Fabric.twist`) of a slice with `sizes`, by what was asked for and the product's default.

    On k x k x 2k and on k x 2k x 2k, going once round a short ring ends k positions further along each long one
    (Camara et al. 2010; Jouppi et al. 2023). Raises InferometerError for a twist that the product or the slice has not.
    """
    if word and spec.twist == "never":
        raise InferometerError(f"machine {text!r}: {spec.id} has no twisted slices")
    inner = sizes[: spec.dimensions]
    turns = _turns(spec, inner)
    if word == "twisted" and not turns:
        wrap = spec.levels[0].wrap_multiple
        raise InferometerError(
            f"machine {text!r}: a twisted slice is k x k x 2k or k x 2k x 2k, k a multiple of {wrap}, "
            f"as in {wrap}x{wrap}x{2 * wrap}_twisted"
        )
    if not turns or word == "untwisted" or (not word and spec.twist != "default"):
        return ()
    joined = [0 for size in sizes[spec.dimensions :] if size > 1]
    return tuple((*turn, *joined) for turn in turns) + tuple((0,) * (len(inner) + len(joined)) for _ in joined)


def _turns(spec: MachineSpec, inner: tuple[int, ...]) -> Turns:
    """Return the turns of a slice that may be twisted; nothing for another shape."""
    short, long = min(inner), max(inner)
    wraps = all(level.wrap_multiple and short % level.wrap_multiple == 0 for level in spec.levels[: len(inner)])
    if spec.twist == "never" or not wraps or long != 2 * short or set(inner) != {short, long}:
        return ()
    further = tuple(short if size == long else 0 for size in inner)
    return tuple(further if size == short else (0,) * len(inner) for size in inner)
