"""Role sizes as people write them, and what fills the ones left out.

Letters: R replicas, PP stages, DPA data-parallel attention, TP, EP experts, ETP inside an expert, DCP.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.deployment import ROLES, Sizes

MAX_SIZE = 1_000_000
"""More chips than any one machine will have; a larger size is a slip."""

_ASSIGNMENT = re.compile(r"\s*([A-Za-z]+)\s*=\s*(\S+)\s*", re.ASCII)


Given = str | Sizes | Mapping[str, int] | None
"""Role sizes: text such as `DPA=16,EP=32`, a spec, role -> size, or None."""


def role_given(sizes: Given) -> dict[str, int]:
    """Return the sizes that are given, role -> size."""
    if sizes is None:
        return {}
    if isinstance(sizes, str):
        return parse_sizes(sizes)
    if isinstance(sizes, Sizes):
        return {role: getattr(sizes, role) for role in ROLES}
    return parse_sizes(",".join(f"{role}={size}" for role, size in sizes.items())) if sizes else {}


class EngineFlags(NamedTuple):
    """Role sizes in vLLM's spelling; None is a flag not given."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    enable_expert: bool = False
    expert: int | None = None
    decode_context: int | None = None


def parse_sizes(text: str) -> dict[str, int]:
    """Return the sizes written `DPA=16,TP=2`, role in lower case -> size.

    Raises InferometerError for text of another form, an unknown or repeated role, and a size that is not a whole
    number from 1 to MAX_SIZE.

    >>> parse_sizes("DPA=16,tp=2")
    {'dpa': 16, 'tp': 2}
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        match = _ASSIGNMENT.fullmatch(part)
        if match is None:
            raise InferometerError(f"--sizes {text[:80]!r}: write ROLE=N,ROLE=N, as in DPA=16,TP=2,EP=32")
        role = match[1].lower()
        if role not in ROLES:
            raise unknown_name("role in --sizes", match[1], (r.upper() for r in ROLES))
        if role in found:
            raise InferometerError(f"--sizes {text[:80]!r} gives {role.upper()} twice")
        found[role] = _whole(f"--sizes {role.upper()}", match[2])
    return found


def engine_sizes(flags: EngineFlags, *, moe: bool) -> dict[str, int]:
    """Return the sizes that vLLM's flags pin, role -> size; empty where none is given.

    `-dp` is DPA for MoE and R for dense models. Experts are tensor parallel over the stage (EP = 1) unless
    `--enable-expert-parallel` (ETP = 1) or `-ep N`; with both, N is the whole stage.

    >>> engine_sizes(EngineFlags(tensor=2, data=8, enable_expert=True), moe=True)
    {'tp': 2, 'dpa': 8, 'etp': 1}
    >>> engine_sizes(EngineFlags(tensor=2, data=8), moe=True)
    {'tp': 2, 'dpa': 8, 'ep': 1}
    """
    if flags == EngineFlags():
        return {}
    if not moe and (flags.enable_expert or flags.expert is not None):
        raise InferometerError("expert parallelism is for MoE models; this one is dense")
    named = {
        "tp": ("--tensor-parallel-size", flags.tensor),
        "pp": ("--pipeline-parallel-size", flags.pipeline),
        "dpa" if moe else "r": ("--data-parallel-size", flags.data),
        "dcp": ("--decode-context-parallel-size", flags.decode_context),
        "ep": ("--expert-parallel-size", flags.expert),
    }
    found = {role: _whole(flag, str(size)) for role, (flag, size) in named.items() if size is not None}
    if moe and flags.enable_expert:
        found["etp"] = 1
    elif moe and flags.expert is None:
        found["ep"] = 1
    return found


def check_dense(given: Mapping[str, int], *, moe: bool) -> None:
    """Refuse roles that a dense model does not have."""
    if not moe and max(given.get(role, 1) for role in ("dpa", "ep", "etp")) > 1:
        raise InferometerError("a dense model has DPA = EP = ETP = 1; write data parallel replicas as R")


def fill_sizes(given: Mapping[str, int], n_chips: int, *, moe: bool) -> Sizes:
    """Return all role sizes of a deployment on `n_chips`.

    R = PP = DPA = DCP = 1; stage = chips / (R PP); TP = stage / DPA; MoE: ETP = 1 and EP = stage / ETP, and EP alone
    gives ETP = stage / EP; dense: EP = ETP = 1. Raises InferometerError, with the products, where they do not close.

    >>> fill_sizes({"dpa": 16}, 32, moe=True)
    Sizes(r=1, pp=1, dpa=16, tp=2, ep=32, etp=1, dcp=1)
    >>> fill_sizes({"ep": 8, "tp": 16}, 16, moe=True).etp
    2
    >>> fill_sizes({"tp": 8}, 12, moe=False)
    Traceback (most recent call last):
    inferometer.errors.InferometerError: R x PP x DPA x TP = 1 x 1 x 1 x 8 = 8, but the machine has 12 chips
    """
    r, pp, dpa, dcp = (given.get(role, 1) for role in ("r", "pp", "dpa", "dcp"))
    check_dense(given, moe=moe)
    stage = n_chips // (r * pp)
    tp = given.get("tp", stage // dpa)
    times, rest = divmod(n_chips, max(r * pp * dpa * tp, 1))
    more = "" if rest else _would_close(given, times, moe=moe)
    _close("R x PP x DPA x TP", (r, pp, dpa, tp), n_chips, free="TP" if "tp" not in given else None, more=more)
    ep = etp = 1
    if moe:
        etp = given.get("etp", stage // given["ep"] if "ep" in given else 1)
        ep = given.get("ep", stage // etp)
        filled = {"ep": "ETP", "etp": "EP"}
        free = next((filled[role] for role in filled if role in given and filled[role].lower() not in given), None)
        _close("R x PP x EP x ETP", (r, pp, ep, etp), n_chips, free=free)
    if tp % dcp:
        raise InferometerError(f"DCP={dcp} must divide TP={tp}")
    return Sizes(r=r, pp=pp, dpa=dpa, tp=tp, ep=ep, etp=etp, dcp=dcp)


def chips_of(given: Mapping[str, int]) -> int | None:
    """Return the chips that the sizes given span, None where none is given.

    >>> chips_of({"tp": 2, "dpa": 4}), chips_of({"ep": 32, "dpa": 16}), chips_of({})
    (8, 32, None)
    """
    if not given:
        return None
    outer = given.get("r", 1) * given.get("pp", 1)
    attention = given.get("dpa", 1) * given.get("tp", 1)
    return outer * max(attention, given.get("ep", 1) * given.get("etp", 1))


def _would_close(given: Mapping[str, int], times: int, *, moe: bool) -> str:
    """Return which role, `times` as large, would take the chips that are left."""
    roles = [role for role in ("r", "pp", *(["dpa"] if moe else [])) if times > 1]
    listed = [f"{role.upper()}={given.get(role, 1) * times}" for role in roles]
    return f"; {', '.join(listed[:-1])} or {listed[-1]} would take them all" if listed else ""


def _close(names: str, sizes: tuple[int, ...], n_chips: int, *, free: str | None, more: str = "") -> None:
    product = 1
    for size in sizes:
        product *= size
    if product == n_chips:
        return
    if free is not None:
        rest = [(n, s) for n, s in zip(names.split(" x "), sizes, strict=True) if n != free]
        left = " x ".join(name for name, _ in rest)
        spelled = " x ".join(str(size) for _, size in rest)
        raise InferometerError(
            f"{left} = {spelled} does not divide the {n_chips} chips of the machine, so no {free} fits"
        )
    spelled = " x ".join(str(size) for size in sizes)
    raise InferometerError(f"{names} = {spelled} = {product}, but the machine has {n_chips} chips{more}")


def _whole(name: str, text: str) -> int:
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_SIZE))
    if not digits or not 1 <= int(text) <= MAX_SIZE:
        raise InferometerError(f"{name} {text[:40]!r}: a size is a whole number from 1 to {MAX_SIZE}")
    return int(text)
