"""The operator view on a page: the sums, then every operation by kind of layer."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.table import Table

from inferometer.estimate.count import CountedOp
from inferometer.report.kinds import segment_text
from inferometer.report.ops import MESSAGE, Counts, memory_bytes, ops_row
from inferometer.report.tables import Page, table
from inferometer.report.text import count, phase_text, sizes_flag

WIDE = 130
"""Columns of a terminal from which bytes are told apart by what they are."""

GIGA, MEGA = 1e9, 1e6

KINDS = ("weights", "kv", "state", "activations")


def print_ops(page: Page, counts: Counts) -> None:
    """Print what was asked, the sums, and the operations of each kind of layer."""
    of, work, row = counts.of, counts.of.workload, ops_row(counts)
    low, high = work.ends
    lengths = f"{high:,}" if low == high else f"{low:,}..{high:,}, the mean"
    rows = f"{_many(of.batch, 'sequence')} x {_many(work.new_tokens, 'token')}"
    page.show(f"{of.model.name}, {phase_text(work)}: {rows}, KV {lengths}")
    plans = "".join(f"; {name} {plan}" for name, plan in of.plans.items())
    page.show(f"{sizes_flag(counts.sizes)}, {_many(counts.sizes.n_chips, 'chip')}{plans}")
    page.show()
    page.show(_parts(counts))
    page.show()
    page.show(f"GEMMs and attention cores: {row['gemm_attention_flops']:,.0f} FLOP")
    page.show(f"active parameters: {row['active_params']:,}")
    page.show()
    for grid in _operations(counts, wide=page.width >= WIDE):
        page.show(grid)
        page.show()


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _parts(counts: Counts) -> Table:
    row = ops_row(counts)
    several = counts.sizes.n_chips > 1
    present = [kind for kind in (*KINDS, MESSAGE) if row["bytes_per_chip"].get(kind)]
    heads = ["<", "GFLOP", "share", "memory\nGB", "share", *(f"{_short(kind)}\nGB" for kind in present)]
    grid = table(heads, title="whole pass, unsharded: every weight read once")
    for part in row["parts"]:
        own = counts.bytes_by_kind(lambda op, name=part["part"]: op.traffic_bytes if op.part == name else {})  # type: ignore[misc]  # mypy takes no default in a lambda
        shares = (count(part["flops"] / GIGA), f"{part['flops_share']:.1%}")
        moved = (count(part["bytes"] / GIGA), f"{part['bytes_share']:.1%}")
        grid.add_row(part["part"], *shares, *moved, *_giga(own, present))
    grid.add_section()
    whole = (count(row["total_flops"] / GIGA), "100%", count(row["total_bytes"] / GIGA), "100%")
    grid.add_row("whole", *whole, *_giga(row["bytes"], present))
    if several:
        moved_bytes = memory_bytes(row["bytes_per_chip"])
        chip = (count(row["flops_per_chip"] / GIGA), "", count(moved_bytes / GIGA), "")
        grid.add_row("the busiest chip", *chip, *_giga(row["bytes_per_chip"], present))
    return grid


def _giga(held: dict[str, float], kinds: Sequence[str]) -> list[str]:
    return [count(held[kind] / GIGA) if held.get(kind) else "" for kind in kinds]


def _short(kind: str) -> str:
    return {"kv": "KV", "activations": "activ."}.get(kind, kind)


def _operations(counts: Counts, *, wide: bool) -> Iterator[Table]:
    """Yield a table a kind of layer: an operation a line, of one layer and the busiest chip."""
    segments: dict[str, list[CountedOp]] = defaultdict(list)
    for op in counts.ops:
        segments[op.segment].append(op)
    chip = "a chip's part of " * (counts.sizes.n_chips > 1)
    totals = (counts.total(lambda op: op.flops_per_chip), counts.total(lambda op: memory_bytes(op.chip_bytes)))
    for name, own in segments.items():
        present = [kind for kind in (*KINDS, MESSAGE) if any(op.chip_bytes.get(kind) for op in own)]
        title = f"{chip}{segment_text(counts.of.model, name)} x {own[0].layers}"
        grid = table(_heads(present, wide=wide), title=title)
        for same in _merged(own):
            grid.add_row(*_line(same, present, totals, wide=wide))
        yield grid


def _heads(present: Sequence[str], *, wide: bool) -> list[str]:
    told = present if wide else ["memory", *(kind for kind in present if kind == MESSAGE)]
    memory = [f"{_short(kind)}\nMB" for kind in told]
    return ["|operation", "GFLOP", *memory, "% of\nFLOP", "% of\nbytes", "|shapes" if wide else "<shapes"]


def _line(same: list[CountedOp], present: Sequence[str], totals: tuple[float, float], *, wide: bool) -> list[str]:
    """Return one operation; at several contexts its counts are weighed by their share."""
    first = same[0]
    flops = sum(op.flops_per_chip * op.share for op in same)
    held = {kind: sum(op.chip_bytes.get(kind, 0.0) * op.share for op in same) for kind in present}
    shares = (flops / totals[0], memory_bytes(held) / totals[1])
    told = list(held.values()) if wide else [memory_bytes(held), *(held[kind] for kind in present if kind == MESSAGE)]
    dtype = f" {first.dtype}" if flops else ""
    return [
        f"{first.name}{dtype}",
        count(flops / GIGA) if flops else "",
        *(count(size / MEGA) if size else "" for size in told),
        *(f"{share * first.layers:.1%}" if share else "" for share in shares),
        same[len(same) // 2].shape,
    ]


def _merged(ops: list[CountedOp]) -> Iterator[list[CountedOp]]:
    """Yield runs of the same operation at several contexts."""
    run: list[CountedOp] = []
    for op in ops:
        if run and not (op.name == run[-1].name and op.share < 1 and run[-1].share < 1):
            yield run
            run = []
        run.append(op)
    if run:
        yield run
