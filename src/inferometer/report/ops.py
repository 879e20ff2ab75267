"""The operator view as JSON holds it: what a pass is made of, counted whole and of one chip, without a price."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inferometer.blocks.params import count_params
from inferometer.estimate.count import CORE_KINDS, CountedOp, Counting
from inferometer.specs.deployment import ROLES, Sizes
from inferometer.version import __version__

MESSAGE = "message"
"""Bytes between chips, which no total of memory traffic counts."""

PARTS = ("attention", "ffn", "layer-inputs", "tower", "embedding", "head")
"""What the whole pass is shared between; what is none of these is a message."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """A pass, counted; `ops_row` writes it down."""

    of: Counting
    sizes: Sizes
    chip: str | None
    """Whose arithmetic types it takes; None takes those that formats are stored for."""
    ops: tuple[CountedOp, ...]
    assumed: tuple[str, ...]
    """What nobody chose, and what the counts leave out: a sentence each."""

    def total(self, value: Callable[[CountedOp], float], *, part: str | None = None) -> float:
        """Return the sum of a value of one layer over the mean pass of the model."""
        return sum(value(op) * op.times for op in self.ops if part in (None, op.part))

    def bytes_by_kind(self, held: Callable[[CountedOp], Mapping[str, float]]) -> dict[str, float]:
        """Return bytes by what they are, messages last."""
        kinds = sorted({kind for op in self.ops for kind in held(op)}, key=lambda kind: (kind == MESSAGE, kind))
        return {kind: self.total(lambda op, kind=kind: held(op).get(kind, 0.0)) for kind in kinds}  # type: ignore[misc]  # mypy takes no default in a lambda


def memory_bytes(held: Mapping[str, float]) -> float:
    """Return the bytes moved to and from memory, of a map by what they are."""
    return sum(size for kind, size in held.items() if kind != MESSAGE)


def core_flops(op: CountedOp) -> float:
    """Return the FLOPs of a GEMM or an attention core, of one layer of the whole pass."""
    return op.flops if op.kind in CORE_KINDS else 0.0


def ops_row(counts: Counts) -> dict[str, Any]:
    """Return the keys of OPS in `report.schema`."""
    of, work = counts.of, counts.of.workload
    present = {op.part for op in counts.ops}
    return {
        "version": __version__,
        "model": of.model.name,
        "chip": counts.chip,
        "n_chips": counts.sizes.n_chips,
        "sizes": {role: getattr(counts.sizes, role) for role in ROLES},
        "phase": work.phase,
        "batch": of.batch,
        "new_tokens": work.new_tokens,
        "kv_length": sum(work.ends) / 2,
        "all_token_logits": work.all_token_logits,
        "kv_cache_dtype": of.model.kv_format,
        "choices": dict(of.plans),
        "total_flops": counts.total(lambda op: op.flops),
        "gemm_attention_flops": counts.total(core_flops),
        "total_bytes": counts.total(lambda op: memory_bytes(op.traffic_bytes)),
        "bytes": counts.bytes_by_kind(lambda op: op.traffic_bytes),
        "parts": [part_row(counts, part) for part in PARTS if part in present],
        "flops_per_chip": counts.total(lambda op: op.flops_per_chip),
        "bytes_per_chip": counts.bytes_by_kind(lambda op: op.chip_bytes),
        "active_params": count_params(of.model).active,
        "ops": [_op(op) for op in counts.ops],
        "assumed": list(counts.assumed),
    }


def part_row(counts: Counts, part: str) -> dict[str, Any]:
    """Return what one part of the model adds to the whole pass, with its shares."""
    flops = counts.total(lambda op: op.flops, part=part)
    moved = counts.total(lambda op: memory_bytes(op.traffic_bytes), part=part)
    all_flops = counts.total(lambda op: op.flops)
    return {
        "part": part,
        "flops": flops,
        "flops_share": flops / all_flops,
        "bytes": moved,
        "bytes_share": moved / counts.total(lambda op: memory_bytes(op.traffic_bytes)),
    }


def _op(op: CountedOp) -> dict[str, Any]:
    return {
        "name": op.name,
        "kind": op.kind,
        "segment": op.segment,
        "part": op.part,
        "layers": op.layers,
        "share": op.share,
        "shapes": op.shape,
        "dtype": op.dtype,
        "flops": op.flops,
        "bytes": dict(op.traffic_bytes),
        "flops_per_chip": op.flops_per_chip,
        "bytes_per_chip": dict(op.chip_bytes),
        "plan": op.plan,
    }
