"""One model over many chips: a line each, and two picks with the number that justifies them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from inferometer.report.cost import Cost, cost_row
from inferometer.report.memory import MemoryAnswer
from inferometer.report.tables import GIB, Page, table
from inferometer.report.text import count
from inferometer.version import __version__

TIGHT = 0.9
"""Share of the room above which a fit is tight."""

ROOMY = 0.5
"""Share of the room below which more than half of it stays empty."""


class Pick(NamedTuple):
    """A chip, and why."""

    chip: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One chip."""

    chip: str
    cost: Cost | None
    """None where nothing can be priced."""
    memory: MemoryAnswer | None
    max_batch: int
    least_chips: int | None
    """That hold the weights, evenly cut."""
    lost: str
    """Why nothing can be said."""

    @property
    def fits(self) -> bool:
        """Whether it runs what is asked for."""
        priced = self.cost is not None and self.cost.answer.estimate.feasible
        return priced and self.memory is not None and self.memory.fits

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not."""
        found = [self.lost] if self.lost else []
        found += self.memory.reasons if self.memory else ()
        priced = self.cost.answer.estimate.reasons if self.cost else ()
        names = {reason.partition(":")[0] for reason in found}
        return (*found, *(reason for reason in priced if reason.partition(":")[0] not in names))

    @property
    def room_bytes(self) -> float | None:
        """Memory of a chip but what is reserved."""
        return None if self.memory is None else self.memory.plan.asked.visible_bytes - self._line("reserve")

    @property
    def required_bytes(self) -> float | None:
        """What is asked for takes so much of it: more than there is where it does not fit."""
        return None if self.room_bytes is None else self.room_bytes - self._line("free")

    @property
    def used_share(self) -> float | None:
        """Required over room; above 1 where it does not fit."""
        room, required = self.room_bytes, self.required_bytes
        return None if room is None or required is None or room <= 0 else required / room

    @property
    def lacks_bytes(self) -> float:
        """Bytes that a chip lacks."""
        return 0.0 if self.memory is None else self.memory.plan.deficit_bytes

    @property
    def tok_per_s(self) -> float:
        """Output tokens of a busy second; 0 where nothing can be priced."""
        return 0.0 if self.cost is None else self.cost.output_tok_per_s

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars of a million output tokens: of prefill and decode, or of decode alone."""
        return None if self.cost is None else self.cost.per_mtok(self.cost.output_tok_per_s)

    @property
    def status(self) -> str:
        """fits, tight, does-not-fit, or cannot-run."""
        if self.fits:
            return "tight" if (self.used_share or 0.0) > TIGHT else "fits"
        return "does-not-fit" if self.memory is not None and not self.memory.illegal and not self.lost else "cannot-run"

    @property
    def verdict(self) -> str:
        """What to make of it, in a few words."""
        if self.fits:
            share = self.used_share or 0.0
            empty = f"{1 - share:.0%} of its room stays empty" if share < ROOMY else "well used"
            return "little room for longer contexts" if self.status == "tight" else empty
        if self.status == "cannot-run":
            return self.reasons[0] if self.reasons else "cannot run"
        more = f"; weights take {self.least_chips} chips" if (self.least_chips or 1) > 1 else ""
        return f"lacks {self.lacks_bytes / GIB:.1f} GiB a chip{more}"

    def _line(self, name: str) -> float:
        lines = () if self.memory is None else self.memory.plan.lines
        return sum(line.bytes for line in lines if line.name == name)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All chips."""

    model: str
    entries: tuple[Entry, ...]
    batch: int
    batch_given: bool
    context: int
    """Tokens that each sequence holds when it is longest."""
    nearest: tuple[str, ...] = ()
    """Where nothing fits: single changes that would, of the chip that lacks least."""

    @property
    def fitting(self) -> list[Entry]:
        """The chips that run it."""
        return [entry for entry in self.entries if entry.fits]

    @property
    def right_sized(self) -> Pick | None:
        """The least bill an hour of those that fit; where no price is known, the least memory."""
        priced = [entry for entry in self.fitting if entry.cost and entry.cost.usd_per_hour is not None]
        if priced:
            hourly = {entry.chip: (entry.cost and entry.cost.usd_per_hour) or 0.0 for entry in priced}
            best = min(priced, key=lambda entry: (hourly[entry.chip], -entry.tok_per_s))
            used = f"{best.used_share:.0%} of its room used" if best.used_share is not None else ""
            among = f"the least of {len(priced)} that fit and have a price"
            return Pick(best.chip, f"${hourly[best.chip]:,.2f}/h, {among}; {used}")
        if not self.fitting:
            return None
        small = min(self.fitting, key=lambda entry: (entry.room_bytes or 0.0, -entry.tok_per_s))
        return Pick(
            small.chip, f"{(small.room_bytes or 0.0) / GIB:.1f} GiB of room, the least that fits; no price known"
        )

    @property
    def fastest(self) -> Pick | None:
        """The most output tokens a second of those that fit."""
        best = max(self.fitting, key=lambda entry: entry.tok_per_s, default=None)
        if best is None:
            return None
        return Pick(best.chip, f"{count(best.tok_per_s)} tok/s, the most of {len(self.fitting)} that fit")


def matrix_row(matrix: Matrix) -> dict[str, Any]:
    """Return the keys of MATRIX in `report.schema_money`."""
    first = next((entry.cost for entry in matrix.entries if entry.cost), None)
    right, fastest = matrix.right_sized, matrix.fastest
    return {
        "version": __version__,
        "model": matrix.model,
        "batch": matrix.batch,
        "context": matrix.context,
        "rows": [entry_row(entry) for entry in matrix.entries],
        "right_sized": None if right is None else right._asdict(),
        "fastest": None if fastest is None else fastest._asdict(),
        "nearest": list(matrix.nearest),
        "assumed": matrix_assumed(matrix, first),
    }


def matrix_assumed(matrix: Matrix, first: Cost | None) -> list[str]:
    """Return what nobody chose; the machine's own is left to each row."""
    own = [] if matrix.batch_given else ["batch 1"]
    return own + ([] if first is None else cost_row(first)["assumed"])


def entry_row(entry: Entry) -> dict[str, Any]:
    """Return the keys of ENTRY in `report.schema_money`."""
    cost = entry.cost
    problem = None if cost is None else cost.answer.problem
    found = None if cost is None else cost_row(cost)
    return {
        "chip": entry.chip,
        "machine": None if problem is None else problem.machine.name,
        "n_chips": None if problem is None else problem.machine.fabric.n_chips,
        "room_bytes": entry.room_bytes,
        "required_bytes": entry.required_bytes,
        "utilization": entry.used_share,
        "headroom_bytes": None if entry.memory is None else entry._line("free"),  # noqa: SLF001 (its own row)
        "memory_bytes_per_s": None if problem is None else problem.machine.chip.memory_bytes_per_s,
        "max_batch": entry.max_batch,
        "tpot_s": found and found["tpot_s"],
        "tok_per_s": found and found["tok_per_s"],
        "output_tok_per_s": found and found["output_tok_per_s"],
        "tok_per_s_per_user": found and found["tok_per_s_per_user"],
        "usd_per_hour": found and found["usd_per_hour"],
        "decode_only_usd_per_mtok_output": found and found["decode_only_usd_per_mtok_output"],
        "usd_per_mtok_output": found and found["usd_per_mtok_output"],
        "price_source": "none" if found is None else found["price_source"],
        "basis": None if found is None else found["basis"],
        "status": entry.status,
        "verdict": entry.verdict,
        "reasons": list(entry.reasons),
    }


def print_matrix(page: Page, matrix: Matrix) -> None:
    """Print the chips that fit, the cheapest token first, then the others with their reasons; then the picks."""
    cost = next((entry.cost for entry in matrix.entries if entry.cost), None)
    loops = cost is not None and cost.loops
    what = f"{matrix.batch:,} sequence{'s' * (matrix.batch > 1)} of {matrix.context:,} tokens"
    page.show(f"{matrix.model}, {what}")
    page.show()
    heads = ["|chip", "required\nGiB", "room\nGiB", "tok/s", "$/h", "$ per M\noutput", "used", "most\nbatch"]
    grid = table([*heads, "head-\nroom", "GB/s", "!verdict"])
    order = sorted(matrix.entries, key=lambda e: (not e.fits, e.usd_per_mtok or float("inf"), e.lacks_bytes))
    for entry in order:
        grid.add_row(*_cells(entry))
    page.show(grid)
    page.show()
    definition = "prefill and decode in turn" if loops else "decode alone"
    rule = "" if cost is None else f"; price: {cost.bill.rule}"
    page.show(f"tok/s and $ are of {definition}, at {(cost.utilization if cost else 1):.0%} utilisation{rule}")
    for name, pick in (("right-sized", matrix.right_sized), ("fastest", matrix.fastest)):
        if pick is not None:
            page.show(f"{name}: {pick.chip}, {pick.why}")
    for near in matrix.nearest:
        page.show(f"would fit: {near}")
    page.show(f"assumed: {', '.join(matrix_assumed(matrix, cost))}")


def _cells(entry: Entry) -> list[str]:
    row = entry_row(entry)
    hourly, tokens = row["usd_per_hour"], entry.usd_per_mtok
    headroom, share = row["headroom_bytes"], entry.used_share
    return [
        entry.chip,
        *("-" if size is None else f"{size / GIB:,.1f}" for size in (entry.required_bytes, entry.room_bytes)),
        count(entry.tok_per_s) if entry.fits else "-",
        "-" if hourly is None else f"{hourly:,.2f}",
        "-" if tokens is None or not entry.fits else f"{tokens:,.3f}",
        "-" if share is None else f"{share:.0%}",
        f"{entry.max_batch:,}",
        "-" if headroom is None else f"{headroom / GIB:,.1f}",
        "-" if row["memory_bytes_per_s"] is None else f"{row['memory_bytes_per_s'] / 1e9:,.0f}",
        f"{entry.status}: {entry.verdict}",
    ]
