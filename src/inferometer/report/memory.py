"""What a chip's memory is taken by, line by line, and the engine's own start-up lines."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from inferometer.estimate.result import Diagnostic
from inferometer.memory.division import Plan
from inferometer.memory.tiers import TierPlan
from inferometer.report.tables import GIB, Page, gib_text, table
from inferometer.report.text import sizes_flag
from inferometer.report.tiers import tier_lines, tier_row
from inferometer.specs.deployment import ROLES
from inferometer.specs.hardware import Machine
from inferometer.units import format_gib
from inferometer.version import __version__

MIB = 2.0**20


@dataclass(frozen=True, kw_only=True)
class MemoryAnswer:
    """One question about memory, answered."""

    plan: Plan
    machine: Machine
    engine: str
    """As asked for, with its version."""
    illegal: tuple[str, ...] = ()
    """Rules of model and engine that the sharding breaks."""
    nearest: tuple[str, ...] = ()
    """Where it does not fit: what would, with one thing changed."""
    assumed: Mapping[str, str]
    """What nobody chose, name -> value as shown."""
    diagnostics: tuple[Diagnostic, ...] = ()
    tiers: tuple[TierPlan, ...] = ()
    """Of the prefix cache, beside the chip's pool."""
    recompute_s: Mapping[int, float] = field(default_factory=dict)
    """Tokens of a prefix -> its prefill, where it was priced."""

    @property
    def fits(self) -> bool:
        """Whether the engine starts, and holds what is asked for."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not."""
        return (*self.illegal, *self.plan.reasons)

    @property
    def concurrency(self) -> float:
        """Sequences of full length over the deployment, as a fraction."""
        return self.plan.concurrency * self.plan.asked.ranks


@dataclass(frozen=True, kw_only=True)
class Most:
    """The most that fits, with the memory it takes; 0 where nothing does, with the memory of 1."""

    value: int
    memory: MemoryAnswer


def memory_row(answer: MemoryAnswer) -> dict[str, Any]:
    """Return the keys of MEMORY in `report.schema`, in that order."""
    plan, asked = answer.plan, answer.plan.asked
    stage = plan.tightest
    return {
        "version": __version__,
        "model": asked.model.name,
        "chip": answer.machine.chip.id,
        "machine": answer.machine.name,
        "n_chips": answer.machine.fabric.n_chips,
        "engine": answer.engine,
        "sizes": {role: getattr(asked.sizes, role) for role in ROLES},
        "context": asked.context,
        "max_model_len": asked.max_model_len,
        "batch": asked.batch,
        "weights_bytes_per_chip": stage.parts_bytes["weights"],
        "kv_bytes_per_token_per_chip": plan.kv_bytes_per_token,
        "kv_pool_bytes": max(stage.room_bytes, 0.0),
        "block_size": stage.pools.block_size,
        "blocks_per_request": stage.pools.blocks(asked.max_model_len),
        "kv_tokens": plan.kv_tokens,
        "max_concurrency": answer.concurrency,
        "fits": answer.fits,
        "reasons": list(answer.reasons),
        "deficit_bytes": plan.deficit_bytes,
        "nearest": list(answer.nearest),
        "lines": [line._asdict() for line in plan.lines],
        "tiers": [tier_row(tier, answer.recompute_s) for tier in answer.tiers],
        "log": log_lines(plan),
        "assumed": list(answer.assumed),
        "diagnostics": [asdict(note) for note in answer.diagnostics],
    }


def most_row(most: Most) -> dict[str, Any]:
    """Return the keys of MOST in `report.schema`."""
    return {"value": most.value, "memory": memory_row(most.memory)}


def log_values(plan: Plan) -> dict[str, float]:
    """Return what an engine's log lines may say."""
    asked, stage = plan.asked, plan.tightest
    needs = stage.pools.needs_bytes(asked.context)
    return {
        "weights_gib": stage.parts_bytes["weights"] / GIB,
        "weights_mib": stage.parts_bytes["weights"] / MIB,
        "graphs_gib": stage.parts_bytes["graphs"] / GIB,
        "activations_mib": stage.parts_bytes["activations"] / MIB,
        "room_gib": stage.room_bytes / GIB,
        "kv_mib": asked.sequences * sum(needs) / MIB,
        "needed_gib": stage.pools.room_for(1, asked.max_model_len) / GIB,
        "block_size": stage.pools.block_size,
        "tokens": plan.kv_tokens,
        "seqs": asked.seqs,
        "max_model_len": asked.max_model_len,
        "concurrency": plan.concurrency,
    }


def log_lines(plan: Plan) -> list[str]:
    """Return the lines that the engine prints when it starts, to hold against a real log."""
    rules, stage = plan.asked.rules, plan.tightest
    refused = stage.pools.hold(stage.room_bytes, plan.asked.max_model_len) < 1
    said = {
        "always": True,
        "states": stage.pools.state_bytes > 0,
        "graphs": "graphs" in rules.charged and stage.parts_bytes["graphs"] > 0,
        "refused": refused,
    }
    values = log_values(plan)
    whole = {name: round(values[name]) if values[name] < float("inf") else 0 for name in ("tokens", "block_size")}
    return [line.text.format(**(values | whole)) for line in rules.log if said[line.when]]


def print_memory(page: Page, answer: MemoryAnswer) -> None:
    """Print what was asked, the lines, what the engine would log, and whether it fits."""
    plan, asked = answer.plan, answer.plan.asked
    chips = answer.machine.fabric.n_chips
    where = f"{answer.machine.chip.id} {answer.machine.name} ({chips} chip{'s' * (chips > 1)})"
    page.show(f"{asked.model.name} on {where}, {sizes_flag(asked.sizes)}, engine {answer.engine}")
    page.show()
    page.show(_lines_table(answer))
    log = log_lines(plan)
    if log:
        page.show()
        page.show("start-up lines:")
        for line in log:
            page.copyable(f"  {line}")
    page.show()
    for line in _verdict(answer):
        page.show(line)
    for tier in answer.tiers:
        for line in tier_lines(tier, answer.recompute_s):
            page.show(line)
    for note in answer.diagnostics:
        page.show(f"{note.name}: {note.text}")
    page.show("assumed: " + ", ".join(f"{name} {value}" for name, value in answer.assumed.items()))
    for remark in asked.model.assumed:
        page.show(f"assumed: {remark}")


def _lines_table(answer: MemoryAnswer) -> Any:
    plan = answer.plan
    stages = plan.asked.sizes.pp
    heads = ["<memory of a chip" + (" of the tightest stage" if stages > 1 else ""), "GiB", "<basis", "<"]
    grid = table(heads)
    for line in plan.lines:
        grid.add_row(line.name, gib_text(line.bytes), line.basis, line.note)
    grid.caption = _totals(answer)
    grid.caption_justify = "left"
    grid.add_section()
    grid.add_row("visible", gib_text(plan.asked.visible_bytes), "", answer.machine.chip.name)
    return grid


def _totals(answer: MemoryAnswer) -> str:
    stage, each = answer.plan.tightest, answer.plan.kv_bytes_per_token
    weights, room = format_gib(stage.parts_bytes["weights"]), format_gib(max(stage.room_bytes, 0.0))
    return f"weights {weights}; room for caches {room}; {each:,.0f} B a token"


def _verdict(answer: MemoryAnswer) -> list[str]:
    plan, asked = answer.plan, answer.plan.asked
    what = f"{asked.batch:,} sequence{'s' * (asked.batch > 1)} of {asked.context:,} tokens"
    holds = plan.kv_tokens
    endless = holds == float("inf")
    room = "no caches to limit it" if endless else f"{holds:,.0f} tokens a rank"
    more = f"{answer.concurrency:,.2f} sequences of {asked.max_model_len:,} tokens over the deployment ({room})"
    if answer.fits:
        return [f"fits: {what}; {'its caches are not on the chip' if endless else f'room for {more}'}"]
    found = [f"does not fit: {reason}" for reason in answer.reasons]
    if plan.deficit_bytes:
        found.append(f"a chip lacks {format_gib(plan.deficit_bytes)}")
    return [*found, *(f"would fit: {near}" for near in answer.nearest)]
