"""Tables for a terminal: units in the heads, numbers to the right, readable at 80 columns."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from inferometer.report.answer import Answer, Ranking
from inferometer.report.text import changes_text, count, machine_text, phase_text, price_text, sizes_text
from inferometer.specs.hardware import Machine

GIB = 2.0**30
FEW_GIB = 10
"""Of a chip; below, memory is shown with decimals."""


class Page(Console):
    """A console on stdout: no markup in data, no colour guesses about numbers, no blanks at the ends of lines."""

    def __init__(self, width: int | None = None, *, piped_width: int | None = None) -> None:
        """Take the terminal's width, or COLUMNS; where neither is there, `piped_width`."""
        super().__init__(markup=False, highlight=False, emoji=False, width=width)
        if piped_width is not None and not self.is_terminal and not os.environ.get("COLUMNS"):
            self.width = piped_width

    def show(self, *parts: RenderableType) -> None:
        """Print parts one below the other; nothing is an empty line."""
        for given in parts or ("",):
            part = narrowed(given, self.width) if isinstance(given, Table) and given.show_header else given
            if self.is_terminal:
                self.print(part)
                continue
            with self.capture() as taken:
                self.print(part)
            self.file.write("".join(f"{line.rstrip()}\n" for line in taken.get().splitlines()))

    def copyable(self, line: str) -> None:
        """Print a line that is never broken."""
        self.print(line, soft_wrap=True)


LEAST_TEXT = 10
"""Columns to which a column of text may be folded."""

LEAST_KEPT = 20
"""The same of a column that is never left out."""


def gib_text(size: float) -> str:
    """Return bytes in GiB, small ones with the digits they need."""
    return f"{size / GIB:,.2f}" if abs(size) >= 0.005 * GIB or size == 0 else f"{size / GIB:,.5f}"


def table(columns: Sequence[str], *, title: str | None = None) -> Table:
    """Return an empty table. Heads: `<` text, `|` text that never breaks, `!` text never left out, others numbers."""
    grid = Table(
        box=box.SIMPLE_HEAD,
        title=None if title is None else Text(title, style="bold"),
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for head in columns:
        if head.startswith("<"):
            grid.add_column(head[1:], justify="left", overflow="fold")
        elif head.startswith("!"):
            grid.add_column(head[1:], justify="left", overflow="fold", min_width=LEAST_KEPT)
        elif head.startswith("|"):
            grid.add_column(head[1:], justify="left", no_wrap=True)
        else:
            grid.add_column(head, justify="right", no_wrap=True)
    return grid


def narrowed(grid: Table, width: int) -> Table:
    """Return `grid` without the columns, from the right, that do not fit `width`: no number is ever cut.

    The first column and one number stay. What is left out is said below.
    """
    kept = list(grid.columns)
    gone: list[Column] = []
    gap = 2  # a blank of padding and one between columns
    while len(kept) > FEWEST_COLUMNS and sum(map(_least_width, kept)) + gap * (len(kept) - 1) > width:
        last = max((i for i, column in enumerate(kept) if i and not column.min_width), default=len(kept) - 1)
        gone.insert(0, kept.pop(last))
    if not gone:
        return grid
    left_out = ", ".join(" ".join(str(column.header).split()) for column in gone)
    grid.columns = kept
    note = f"too narrow for: {left_out}"
    grid.caption = f"{grid.caption}; {note}" if grid.caption else note
    grid.caption_justify = "left"
    return grid


FEWEST_COLUMNS = 2


def _least_width(column: Column) -> int:
    lines = [line for cell in (column.header, *column.cells) for line in str(cell).splitlines()]
    widest = max((cell_len(line) for line in lines), default=0)
    return widest if column.no_wrap else max(min(widest, LEAST_TEXT), column.min_width or 0)


def ranking_table(ranking: Ranking) -> Table:
    """Return ranked deployments, one a line."""
    first = ranking.answers[0]
    decode = first.problem.workload.generates
    several = len(ranking.results) > 1
    heads = ["#", *(["|machine"] if several else []), "<sharding", "batch", "tok/s\n/chip"]
    heads += ["tok/s\n/user", "TPOT\nms"] if decode else ["TTFT\nms"]
    heads += ["$ per M\noutput" if decode else "$ per M\nprompt", "memory\nGiB", "<bound"]
    grid = table(heads)
    for place, answer in enumerate(ranking.answers, 1):
        grid.add_row(f"{TIED * (place > 1 and bool(answer.tied))}{place}", *_ranked(answer, several=several))
    return grid


TIED = "~"
"""Before the place of a row that the band cannot tell from row 1."""


def tied_lines(ranking: Ranking) -> list[str]:
    """Return what the mark of rows means, where there is one."""
    tied = [place for place, answer in enumerate(ranking.answers, 1) if answer.tied and place > 1]
    return [f"{TIED} row{'s' * (len(tied) > 1)} {runs(tied)}: the band cannot tell from row 1"] if tied else []


def _ranked(answer: Answer, *, several: bool) -> list[str]:
    priced, rates = answer.estimate, answer.rates
    machine = answer.problem.machine
    cells = [_short_name(machine)] if several else []
    cells += [sizes_text(priced.sizes), f"{priced.batch:,}", count(rates.tok_per_s_per_chip)]
    if rates.tok_per_s_per_user is not None:
        cells.append(count(rates.tok_per_s_per_user))
    cost = answer.usd_per_mtok
    memory = priced.memory
    held = memory.weights_bytes + memory.kv_bytes
    return [
        *cells,
        count(priced.step_s * 1e3),
        "-" if cost is None else f"{cost:.3f}",
        _of_memory(held, memory.visible_bytes),
        priced.bound,
    ]


def _of_memory(held: float, visible: float) -> str:
    """Return GiB held and visible; with decimals where a chip has few.

    >>> _of_memory(72.4 * 2**30, 79.6 * 2**30), _of_memory(0.1 * 2**30, 0.214 * 2**30)
    ('72/80', '0.10/0.21')
    """
    digits = 0 if visible >= FEW_GIB * GIB else 2
    return f"{held / GIB:.{digits}f}/{visible / GIB:.{digits}f}"


def _short_name(machine: Machine) -> str:
    """Return the chip, or the product where that is not the chip's usual machine."""
    usual = machine.product in ("", machine.chip.default_machine)
    return machine.chip.id if usual else machine.product


def question_lines(ranking: Ranking) -> list[str]:
    """Return what was asked: the model, and each machine with its price and, of several, its best."""
    problem = (*ranking.best, *ranking.nearest)[0].problem
    lines = [f"{problem.model.name}, {phase_text(problem.workload)}"]
    for best in ranking.best:
        reached = f"; best {count(best.rates.tok_per_s_per_chip)} tok/s/chip" if len(ranking.results) > 1 else ""
        lines.append(f"{machine_text(best.problem)}: {price_text(best)}{reached}")
        lines += [f"  what if {changes_text(best)}"] if best.changes else []
    for near in ranking.nearest:
        lines.append(f"{machine_text(near.problem)}: nothing is feasible{' as asked' * near.estimate.feasible}")
        lines += [f"  what if {changes_text(near)}"] if near.changes else []
    return lines


def diagnosed(ranking: Ranking) -> list[str]:
    """Return what the rows have to say: of the first in full, of the others by name."""
    first, *others = ranking.answers
    lines = [f"row 1 has {note.name}: {note.text}" for note in first.estimate.diagnostics]
    places: dict[str, list[int]] = {}
    for place, answer in enumerate(others, 2):
        for name in dict.fromkeys(note.name for note in answer.estimate.diagnostics):
            places.setdefault(name, []).append(place)
    return lines + [
        f"row{'s' * (len(at) > 1)} {runs(at)} ha{'ve' if len(at) > 1 else 's'} {name}" for name, at in places.items()
    ]


def runs(numbers: Sequence[int]) -> str:
    """Return increasing numbers with their runs written as such.

    >>> runs([2, 4, 5, 6, 9, 10])
    '2, 4-6, 9, 10'
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > LEAST_RUN else ", ".join(map(str, run)) for run in found)


LEAST_RUN = 2


def lost_text(ranking: Ranking) -> str:
    """Return what was priced, and which rule cost how many shardings."""
    lost = sorted(ranking.lost.items(), key=lambda item: -item[1])
    why = ", ".join(f"{number} {rule}" for rule, number in lost)
    shardings = f"{ranking.shardings:,} sharding{'' if ranking.shardings == 1 else 's'}"
    candidates = f"{ranking.candidates:,} candidate{'' if ranking.candidates == 1 else 's'}"
    return f"{shardings}, {candidates} priced" + (f"; lost: {why}" if why else "")


WIDE = 100
"""Columns of a terminal from which tables show what is good to know too."""


def chips_table(rows: Iterable[dict[str, Any]], *, model: str | None, width: int) -> Table:
    """Return chips, one a line; `model` adds the least number that holds its weights."""
    wide = width >= WIDE
    heads = ["|chip", "memory\nGiB", "GB/s", "bf16\nTFLOP/s", "fp8\nTFLOP/s", "fp4\nTFLOP/s", "$/h"]
    grid = table([*heads, *(["least\nchips"] if model else []), *(["W", "|machine"] if wide else [])])
    for row in rows:
        peaks = row["peak_flops_per_s"]
        cells = [
            row["chip"],
            f"{row['memory_bytes'] / GIB:.1f}",
            f"{row['memory_bytes_per_s'] / 1e9:,.0f}",
            *(f"{peaks[kind] / 1e12:,.0f}" if kind in peaks else "-" for kind in ("bf16", "fp8", "fp4")),
            "-" if row["usd_per_chip_hour"] is None else f"{row['usd_per_chip_hour']:.2f}",
            *([_or_dash(row["least_chips"])] if model else []),
            *(["-" if row["tdp_w"] is None else f"{row['tdp_w']:,.0f}", row["default_machine"]] if wide else []),
        ]
        grid.add_row(*cells)
    return grid


WHOLE_NAMES = 120
"""Columns from which names of models are whole."""


def models_table(rows: Iterable[dict[str, Any]], *, width: int) -> Table:
    """Return model presets, one a line; names break only where a terminal is too narrow for much else."""
    wide = width >= WIDE
    heads = [
        "|model" if width >= WHOLE_NAMES else "<model",
        "params\n1e9",
        "active\n1e9",
        "weights\nGiB",
        "KV\nKiB/tok",
        "context\ntok",
        "|experts",
    ]
    grid = table([*heads, *(["layers", "|attention"] if wide else [])])
    for row in rows:
        grid.add_row(
            row["model"],
            count(row["total_params"] / 1e9),
            count(row["active_params"] / 1e9),
            count(row["checkpoint_bytes"] / GIB),
            count(row["kv_bytes_per_token"] / 1024),
            f"{row['max_context']:,}",
            row["ffn"].replace(", dense", "").replace("dense", "-"),
            *([str(row["layers"]), row["attention"]] if wide else []),
        )
    return grid


def validation_tables(summary: dict[str, Any]) -> list[Table]:
    """Return how far predictions lie from measurements, by group and by metric."""
    heads = ["points", "median\n|error|", "p90\n|error|", "bias", "in band"]
    groups = table(["<group", *heads])
    for row in summary["by_group"]:
        groups.add_row(row["group"], *_errors(row))
    metrics = table(["<group", "<metric", *heads])
    for row in summary["by_metric"]:
        metrics.add_row(row["group"], row["metric"], *_errors(row))
    return [groups, metrics]


def _errors(row: dict[str, Any]) -> list[str]:
    names = ("median_error", "p90_error", "bias", "within_band")
    return [f"{row['n']:,}", *("-" if row[name] is None else f"{row[name]:.0%}" for name in names)]


def _or_dash(value: object) -> str:
    return "-" if value is None else f"{value:,}"
