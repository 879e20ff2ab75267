"""What needs no price: what a pass is made of, and what a sequence keeps in cache. No chip is needed."""

from collections.abc import Mapping
from typing import Unpack

import numpy as np

from inferometer.api.bounds import check_batch
from inferometer.api.choices import check_routing, parse_choices
from inferometer.api.legal_sizes import broken_by, legal_sizes
from inferometer.api.load import in_formats, load_model
from inferometer.api.notes import beyond_context
from inferometer.api.settings import Settings, settle_workload
from inferometer.api.sizes import Given, chips_of, role_given
from inferometer.api.workload import check_tokens, phase_text, with_images
from inferometer.blocks.kinds import is_moe, parts, sees_images
from inferometer.errors import InferometerError
from inferometer.estimate.candidates import make_shardings
from inferometer.estimate.count import Counting, count_ops, default_plans
from inferometer.estimate.estimate import IDEAL
from inferometer.estimate.passes import of_model
from inferometer.estimate.precision import Precision, resolve_precision, stored_precision
from inferometer.memory.footprint import cache_lines, footprint
from inferometer.report.kv import CacheSize, PerChip
from inferometer.report.ops import Counts
from inferometer.specs.deployment import ROLES, Sizes, Workload
from inferometer.specs.hardware import Machine
from inferometer.specs.mixers import Mla
from inferometer.specs.model import ModelSpec


def count(
    model: ModelSpec | str,
    machine: Machine | None = None,
    sizes: Given = None,
    *,
    batch: int | None = None,
    **settings: Unpack[Settings],
) -> Counts:
    """Return the operations of one pass of `model`, counted.

    Parameters
    ----------
    model
        A `ModelSpec`, or any name `load_model` takes.
    machine
        Whose arithmetic types and how many chips; None takes the types that formats are stored for, on as many chips
        as `sizes` span.
    sizes
        Role sizes, as in `estimate`.
    batch
        Sequences in flight over all chips; None is 1.
    settings
        Those that say what work is done: quant, kv_cache_dtype, state_dtype, cut_latents, lengths, images, phase, and
        `choice`, the plans to count instead of the rule's (`default_plans`). The others change no count.

    Raises InferometerError for input that makes no sense.

    >>> int(count("llama-3.1-8b", batch=32, context=4096).total(lambda op: op.flops))
    549017616384
    """
    check_batch(batch)
    spec = load_model(model) if isinstance(model, str) else model
    spec = in_formats(
        spec,
        settings.get("quant"),
        settings.get("kv_cache_dtype"),
        settings.get("state_dtype"),
        cut_latents=settings.get("cut_latents"),
    )
    given = role_given(sizes)
    n_chips = machine.fabric.n_chips if machine is not None else chips_of(given) or 1
    filled = legal_sizes(spec, given, n_chips)
    check_legal(spec, filled)
    silent = {} if batch is not None else {"batch": "1"}
    of = _counting(spec, machine, batch or 1, settings, silent)
    chip = None if machine is None else machine.chip.id
    said = [", ".join(f"{name} {value}" for name, value in silent.items())] if silent else []
    said += [*_said(of, chip, parse_choices(settings.get("choice"))), *spec.assumed]
    return Counts(of=of, sizes=filled, chip=chip, ops=count_ops(of, filled), assumed=tuple(said))


def _counting(
    model: ModelSpec, machine: Machine | None, batch: int, settings: Settings, silent: dict[str, str]
) -> Counting:
    """Return what is counted; what nobody chose is added to `silent`."""
    work = settle_workload(settings, None, silent)
    check_routing(work, model)
    work, image = of_model(work, model)
    if "phase" in silent:
        silent["phase"] = phase_text(work)
    if settings.get("kv_cache_dtype") is None:
        silent["KV"] = model.kv_format
    precision = stored_precision(model) if machine is None else resolve_precision(model, machine.chip, IDEAL)
    plans = _plans(model, work, parse_choices(settings.get("choice")))
    return Counting(model=model, workload=work, precision=precision, batch=batch, plans=plans, image=image)


def check_legal(model: ModelSpec, sizes: Sizes) -> None:
    """Raise InferometerError for a sharding that the model does not allow."""
    broken = broken_by(model, sizes)
    if broken:
        raise InferometerError(f"{broken[0].name}: {broken[0].advice}")


def _plans(model: ModelSpec, work: Workload, pins: Mapping[str, str]) -> dict[str, str]:
    plans = default_plans(work)
    if not any(isinstance(part, Mla) for mixer in model.mixers for part in parts(mixer)):
        del plans["mla"]
    return plans | dict(pins)


def _said(of: Counting, chip: str | None, pins: Mapping[str, str]) -> list[str]:
    """Return what the counts take for granted."""
    said = [_types(of.precision, chip)]
    if "mla" in of.plans and "mla" not in pins:
        rule = "absorbed where tokens are generated, else expanded; --choice mla=... says otherwise"
        said.append(f"latent attention {of.plans['mla']} ({rule})")
    if is_moe(of.model):
        said.append("routing uniform: every expert is as popular, and all top-k weights of a token are above 0")
    if is_moe(of.model) and "moe-dispatch" not in pins:
        said.append("every rank gathers all tokens for its experts")
    if "residual" not in pins:
        said.append("between blocks each TP rank holds all tokens")
    said.append("norms, rotations, activations and sampling are bytes alone, no FLOPs")
    return said


def _types(precision: Precision, chip: str | None) -> str:
    listed = ", ".join(f"{name} in {dtype}" for name, dtype in precision.dtypes.items())
    where = "as stored, no chip asked" if chip is None else f"on {chip}"
    return f"arithmetic types {where}: {listed}"


def size_cache(
    model: ModelSpec | str,
    sizes: Given = None,
    *,
    context: int | None = None,
    kv_cache_dtype: str | None = None,
    state_dtype: str | None = None,
    conv_state: bool | None = None,
    images: int | None = None,
    image_size: str | None = None,
) -> CacheSize:
    """Return what a sequence of `context` tokens keeps in cache, whole and on a chip of the fullest stage.

    Without `context` it is as long as the model's config states. `images` of `image_size` are those that
    cross-attention sees: others are a part of the context. Raises InferometerError for input that makes no sense.

    >>> held = size_cache("llama-3.1-8b", "TP=8", context=1024)
    >>> held.chip.kv_bytes_per_token, held.lines[0].bytes_per_token
    (16384.0, 131072.0)
    """
    plain = load_model(model) if isinstance(model, str) else model
    spec = in_formats(plain, None, kv_cache_dtype, state_dtype, conv_state=conv_state)
    given = role_given(sizes)
    filled = legal_sizes(spec, given, chips_of(given) or 1)
    check_legal(spec, filled)
    check_tokens("--context", context)
    length = context or spec.max_context
    said = [] if context is not None else [f"context {length:,}, the longest that the config states"]
    said += [] if kv_cache_dtype else [f"KV {spec.kv_format}, the checkpoint's"]
    shown = _cross_tokens(spec, images, image_size, said)
    columns = {role: np.array([float(getattr(filled, role))]) for role in ROLES}
    times = make_shardings(spec, columns, "even").multiplicities
    token, whole = (
        footprint(spec, columns, times, length=n, room_bytes=0.0, cross_tokens=seen)
        for n, seen in ((1, 0), (length, shown))
    )
    chip = PerChip(
        float(token.kv_bytes_per_sequence.max()),
        float(whole.kv_bytes_per_sequence.max()),
        float(whole.state_bytes_per_sequence.max()),
    )
    lines, notes = cache_lines(spec, length, shown), tuple(beyond_context(spec, length, "--context"))
    return CacheSize(spec, length, shown, lines, filled, chip, (*said, *spec.assumed), notes)


def _cross_tokens(model: ModelSpec, images: int | None, size: str | None, said: list[str]) -> int:
    """Return the image tokens that cross-attention sees; what nobody chose is added to `said`."""
    silent: dict[str, str] = {}
    work = with_images(Workload(), images, size, silent)
    if work.images and not sees_images(model):
        raise InferometerError(f"--images: those of {model.name} are tokens of its context, if it takes any")
    said += [f"image size {value}" for value in silent.values()]
    return of_model(work, model)[0].cross_tokens
