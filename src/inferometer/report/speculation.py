"""What speculation brings: tokens a pass, the times of drafts and verify, the memory of both, and where it ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from inferometer.report.answer import Answer
from inferometer.report.explain import labelled
from inferometer.report.memory import MemoryAnswer
from inferometer.report.row import deployment_row
from inferometer.report.tables import GIB, Page, table
from inferometer.report.text import count, machine_text, sizes_flag
from inferometer.serving.speculation import speedup
from inferometer.units import format_seconds

SHARED = ("embedding", "head")
"""Tensors that a model's own drafter takes from it."""


class Round(NamedTuple):
    """One round of drafts and a verify."""

    batch: int
    lookahead: int
    """Places guessed ahead."""
    drafted: int
    """Tokens that are checked: more than the lookahead in a tree."""
    tokens_per_pass: float
    draft_passes: int
    draft_s: float
    """One pass of the drafter."""
    verify_s: float
    decode_s: float
    """A step of the model alone."""

    @property
    def round_s(self) -> float:
        """Seconds of all drafts and the verify."""
        return self.draft_passes * self.draft_s + self.verify_s

    @property
    def speedup(self) -> float:
        """Over decoding without."""
        return speedup(self.tokens_per_pass, self.decode_s, self.draft_passes, self.draft_s, self.verify_s)


class Together(NamedTuple):
    """The memory of target and drafter on one chip."""

    target: MemoryAnswer
    draft: MemoryAnswer
    own: bool
    """The drafter is the model's: embedding and head are shared."""

    @property
    def draft_weights_bytes(self) -> float:
        """What the drafter adds to a chip's weights."""
        kinds = self.draft.plan.tightest.weights_bytes
        return sum(size for kind, size in kinds.items() if not (self.own and kind in SHARED))

    @property
    def draft_cache_bytes(self) -> float:
        """KV and states of the drafter, a chip."""
        return _lines(self.draft, "KV", "state")

    @property
    def free_bytes(self) -> float:
        """What both leave of a chip's room; below 0 where they do not fit together."""
        return _lines(self.target, "free") - self.draft_weights_bytes - self.draft_cache_bytes

    @property
    def most_sequences(self) -> int:
        """Sequences in flight over the deployment that both hold."""
        asked = self.target.plan.asked
        caches = _lines(self.target, "KV", "state") + self.draft_cache_bytes
        if self.free_bytes < 0 or not caches:
            return 0 if self.free_bytes < 0 else asked.batch
        return int((self.free_bytes + caches) * asked.sequences / caches) * asked.ranks


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """A target, its drafter, and the rounds priced."""

    target: Answer
    draft_name: str
    acceptance: float | None
    """None where the mean of taken tokens was given."""
    asked: Round
    lookaheads: tuple[Round, ...]
    """Same batch, other lookaheads; empty where the mean of taken tokens was given."""
    batches: tuple[Round, ...]
    """Same lookahead, other batches."""
    memory: Together
    assumed: Mapping[str, str]

    @property
    def best(self) -> Round:
        """The lookahead with the largest speed-up."""
        return max(self.lookaheads or (self.asked,), key=lambda one: one.speedup)

    @property
    def ends_at(self) -> int | None:
        """The smallest batch tried at which speculation gains nothing; None where it always does."""
        return next((one.batch for one in self.batches if one.speedup <= 1), None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it cannot run."""
        found = (*self.memory.target.reasons, *self.target.estimate.reasons, *self.memory.draft.illegal)
        names: dict[str, str] = {}
        for reason in found:
            names.setdefault(reason.partition(":")[0], reason)
        if not names and self.memory.free_bytes < 0:
            names["both"] = (
                f"draft-does-not-fit: target and drafter lack {-self.memory.free_bytes / GIB:.2f} GiB a chip"
            )
        return tuple(names.values())


def _lines(memory: MemoryAnswer, *names: str) -> float:
    return sum(line.bytes for line in memory.plan.lines if line.name in names)


KEPT = ("version", "model", "chip", "machine", "n_chips", "engine", "backend", "scheduler", "workload", "sizes")


def speculation_row(found: Speculation) -> dict[str, Any]:
    """Return the keys of SPECULATION in `report.schema_money`."""
    whole, asked = deployment_row(found.target), found.asked
    weights = sum(found.memory.target.plan.tightest.weights_bytes.values())
    return {
        **{key: whole[key] for key in KEPT},
        "batch": asked.batch,
        "draft": found.draft_name,
        "acceptance": found.acceptance,
        **{key: value for key, value in round_row(asked).items() if key != "batch"},
        "tpot_s": asked.round_s / asked.tokens_per_pass,
        "tok_per_s": asked.batch * asked.tokens_per_pass / asked.round_s,
        "tok_per_s_per_user": asked.tokens_per_pass / asked.round_s,
        "best_lookahead": found.best.lookahead,
        "best_speedup": found.best.speedup,
        "lookaheads": [round_row(one) for one in found.lookaheads],
        "batches": [round_row(one) for one in found.batches],
        "gain_ends_at_batch": found.ends_at,
        "feasible": not found.reasons,
        "reasons": list(found.reasons),
        "weights_bytes_per_chip": weights,
        "cache_bytes_per_chip": _lines(found.memory.target, "KV", "state"),
        "draft_weights_bytes_per_chip": found.memory.draft_weights_bytes,
        "draft_cache_bytes_per_chip": found.memory.draft_cache_bytes,
        "free_bytes_per_chip": found.memory.free_bytes,
        "basis": whole["basis"],
        "assumed": [f"{name} {value}" for name, value in found.assumed.items()],
    }


def round_row(one: Round) -> dict[str, Any]:
    """Return the keys of ROUND in `report.schema_money`."""
    return {**one._asdict(), "speedup": one.speedup}


def print_speculation(page: Page, found: Speculation) -> None:
    """Print the round asked for, then other lookaheads and batches, then memory."""
    asked, target = found.asked, found.target
    tree = f" of {asked.drafted} tokens in a tree" if asked.drafted != asked.lookahead else ""
    taken = f"acceptance {found.acceptance:g}, " if found.acceptance is not None else ""
    user = asked.tokens_per_pass / asked.round_s
    rows = [
        (
            "target",
            f"{target.problem.model.name} on {machine_text(target.problem)}, {sizes_flag(target.estimate.sizes)}",
        ),
        ("drafter", f"{found.draft_name}, lookahead {asked.lookahead}{tree}, {taken}batch {asked.batch:,}"),
        ("tokens", f"{asked.tokens_per_pass:.4f} a pass"),
        ("draft", f"{asked.draft_passes} x {format_seconds(asked.draft_s)}"),
        ("verify", f"{format_seconds(asked.verify_s)} for {asked.drafted + 1} rows a sequence"),
        ("decode", f"{format_seconds(asked.decode_s)} a step without speculation"),
        ("speed-up", f"{asked.speedup:.2f} x: {count(user)} tok/s a user, {count(1 / asked.decode_s)} without"),
    ]
    if found.lookaheads:
        best = found.best
        rows.append(("best", f"lookahead {best.lookahead}: {best.speedup:.2f} x"))
    ends = f"gains nothing from batch {found.ends_at:,} on" if found.ends_at else "gains at every batch tried"
    rows.append(("batch", ends))
    page.show(labelled(rows))
    for title, rounds in (("lookahead", found.lookaheads), ("batch", found.batches)):
        if rounds:
            page.show()
            page.show(_table(title, rounds))
    page.show()
    page.show(labelled(_memory(found)))
    page.show(f"assumed: {', '.join(f'{name} {value}' for name, value in found.assumed.items())}")


def _table(title: str, rounds: tuple[Round, ...]) -> Any:
    grid = table(
        [title, "tokens\na pass", "drafts\nms", "verify\nms", "decode\nms", "speed-up", "tok/s\n/user", "tok/s"]
    )
    for one in rounds:
        grid.add_row(
            f"{one.lookahead if title == 'lookahead' else one.batch:,}",
            f"{one.tokens_per_pass:.3f}",
            count(one.draft_passes * one.draft_s * 1e3),
            count(one.verify_s * 1e3),
            count(one.decode_s * 1e3),
            f"{one.speedup:.2f}",
            count(one.tokens_per_pass / one.round_s),
            count(one.batch * one.tokens_per_pass / one.round_s),
        )
    return grid


def _memory(found: Speculation) -> list[tuple[str, str]]:
    weights = sum(found.memory.target.plan.tightest.weights_bytes.values())
    caches = _lines(found.memory.target, "KV", "state")
    both = f"target {weights / GIB:.2f} + {caches / GIB:.2f} GiB of weights and caches"
    draft = f"drafter {found.memory.draft_weights_bytes / GIB:.2f} + {found.memory.draft_cache_bytes / GIB:.2f}"
    state = (
        f"{found.memory.free_bytes / GIB:.2f} GiB free" if found.memory.free_bytes >= 0 else "they do not fit together"
    )
    return [("memory", f"of a chip: {both}, {draft}; {state}"), *(("not feasible", reason) for reason in found.reasons)]
