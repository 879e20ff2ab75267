"""One deployment fully worked: what was asked, what came out, and every operation, choice and byte behind it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from inferometer.estimate.result import OpRow
from inferometer.memory.lines import Line
from inferometer.report.answer import Answer
from inferometer.report.flags import launch_flags
from inferometer.report.kinds import segment_text
from inferometer.report.row import resident_sequences
from inferometer.report.tables import GIB, Page, gib_text, table
from inferometer.report.text import (
    assumed_text,
    changes_text,
    count,
    machine_text,
    phase_text,
    placement_flag,
    price_text,
    sizes_flag,
)
from inferometer.units import format_seconds, format_usd

MOST_BEATEN = 3
"""Losing plans a Choice lists in full."""


COMMANDS = ("vllm serve", "python -m sglang")
"""How a line begins that is for copying, and so is never broken."""


def print_explanation(page: Page, answer: Answer) -> None:
    """Print the whole view, top down: the answer first, then what it is made of."""
    for part in (_header(answer), _memory(answer), *_ops(answer), _choices(answer)):
        page.show(part)
        page.show()
    for lines in _flags(answer):
        for line in lines:
            if line.startswith(COMMANDS):
                page.copyable(line)
            else:
                page.show(line)
        page.show()
    for note in _notes(answer):
        page.show(note)


def labelled(rows: Sequence[tuple[str, str]]) -> Table:
    """Return names in bold beside what they are."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name, style="bold"), value)
    return grid


def _header(answer: Answer) -> Table:
    problem, priced, rates = answer.problem, answer.estimate, answer.rates
    step = "TPOT" if rates.tpot_s is not None else "TTFT"
    per_s = f"{count(rates.tok_per_s)} tok/s, {count(rates.tok_per_s_per_chip)} a chip"
    if rates.tok_per_s_per_user is not None:
        per_s += f", {count(rates.tok_per_s_per_user)} a user"
    if problem.workload.draft_tokens:
        per_s += f"; the token that is certain, up to x{problem.workload.new_tokens} with every draft taken"
    rows = [
        ("model", f"{problem.model.name}, {phase_text(problem.workload)}"),
        ("machine", machine_text(problem)),
        ("sizes", f"{sizes_flag(priced.sizes)}, batch {priced.batch:,} ({priced.sequences:,} a rank)"),
        ("placement", f"{placement_flag(answer) or 'one chip'} (of {priced.placements_priced} priced)"),
        (
            step,
            f"{format_seconds(priced.step_s)}, band {format_seconds(priced.low_s)} to {format_seconds(priced.high_s)}",
        ),
        ("basis", f"{priced.basis}; band: {priced.band_source}"),
        *_measured(answer),
        ("rate", per_s),
        (
            "bound",
            f"{priced.bound}: " + ", ".join(f"{k} {format_seconds(s)}" for k, s in priced.busy_s.items() if s > 0),
        ),
        ("MFU, MBU", f"{priced.mfu:.1%} of peak flops, {priced.mbu:.1%} of memory bandwidth"),
        ("cost", _cost(answer)),
        ("assumed", assumed_text(answer)),
    ]
    if problem.image is not None:
        rows.insert(1, ("images", _images(answer)))
    if answer.changes:
        rows.insert(2, ("what if", f"{changes_text(answer)}; price as it is"))
    if priced.microbatches > 1:
        rows.insert(4, ("microbatches", str(priced.microbatches)))
    return labelled(rows + [("not feasible", reason) for reason in priced.reasons])


def _measured(answer: Answer) -> list[tuple[str, str]]:
    """Return how much of the time is of kernels timed on the chip, where the backend knows any."""
    shares = answer.estimate.basis_shares
    if answer.problem.backend.name != "measured" and "measured" not in shares:
        return []
    others = "".join(f", {share:.0%} {basis}" for basis, share in shares.items() if basis != "measured")
    return [("by", f"{shares.get('measured', 0.0):.0%} of the step's time on measured kernels{others}")]


def _images(answer: Answer) -> str:
    """Return what the images of a request are to the tower and to the prompt."""
    work, image = answer.problem.workload, answer.problem.image
    if image is None:
        return ""
    tiles = f" in {image.tiles} tiles" if image.tiles > 1 else ""
    what = f"{image.over('patches'):,} patches{tiles} and {image.tokens:,} tokens each"
    prompt = f"prompt {work.prompt_tokens:,} = {work.isl:,} of text + {work.image_tokens:,}"
    return f"{work.images:,} of {work.image_width}x{work.image_height} a request, {what}; {prompt}"


def _cost(answer: Answer) -> str:
    if answer.usd_per_mtok is None:
        return price_text(answer)
    what = "output tokens, decode alone" if answer.rates.tpot_s is not None else "prompt tokens"
    hourly = format_usd(answer.rates.usd_per_hour or 0.0)
    return f"{format_usd(answer.usd_per_mtok)} a million {what}; {hourly}/h at {price_text(answer)}"


def _weights(answer: Answer) -> str:
    towers = answer.estimate.memory.tower_bytes
    return f"weights, {towers / GIB:.2f} GiB of them towers" if towers else "weights"


def _memory(answer: Answer) -> Table:
    """Return a chip's memory: as the engine named divides it, else weights, caches and the reserve."""
    memory = answer.estimate.memory
    grid = _divided(memory.lines) if memory.lines else _simple(answer)
    grid.add_section()
    grid.add_row("visible", f"{memory.visible_bytes / GIB:,.2f}")
    resident = resident_sequences(answer)
    grid.caption = f"room for {'any number of' if resident is None else f'{resident:,}'} sequences over the deployment"
    grid.caption_justify = "left"
    return grid


def _divided(lines: Sequence[Line]) -> Table:
    grid = table(["<memory of a chip of the tightest stage", "GiB", "<basis", "<"])
    for line in lines:
        grid.add_row(line.name, gib_text(line.bytes), line.basis, line.note)
    return grid


def _simple(answer: Answer) -> Table:
    memory = answer.estimate.memory
    grid = table(["<memory of a chip of the fullest stage", "GiB"])
    kv = f"KV of {memory.sequences:,.0f} sequences, {memory.kv_bytes_per_sequence / GIB:.3f} GiB each"
    state = f"state of {memory.sequences:,.0f} sequences, {memory.state_bytes_per_sequence / GIB:.3f} GiB each"
    lines = [
        (_weights(answer), memory.weights_bytes),
        (kv, memory.kv_bytes),
        *([(state, memory.state_bytes)] if memory.state_bytes else []),
        ("reserve: activations, graphs, runtime", memory.reserve_bytes),
        ("free", memory.free_bytes),
    ]
    for name, size in lines:
        grid.add_row(name, f"{size / GIB:,.2f}")
    return grid


def _ops(answer: Answer) -> Iterator[Table]:
    ops = answer.estimate.ops
    total_s = sum(op.alone_s * op.share * op.layers for op in ops)
    segments: dict[str, list[OpRow]] = defaultdict(list)
    for op in ops:
        segments[op.segment].append(op)
    for name, own in segments.items():
        layers = own[0].layers
        spent = sum(op.alone_s * op.share * op.layers for op in own)
        share = f"{format_seconds(spent)}, {spent / total_s:.1%} of all operations one after another"
        title = f"{segment_text(answer.problem.model, name)} x {layers}: {share}"
        yield _op_table(title, own, total_s, told="measured" in answer.estimate.basis_shares)


def _op_table(title: str, ops: list[OpRow], total_s: float, *, told: bool) -> Table:
    """Return operations, one a line; `told`: with the first letter of each one's basis."""
    cached = "+".join(word for kind, word in _CACHED.items() if any(op.traffic_bytes.get(kind) for op in ops)) or "KV"
    heads = ["<operation", "GFLOP", "weights\nMB", f"{cached}\nMB", "activ.\nMB", "message\nMB"]
    heads += ["us", "<bound", "share", *(["|by"] if told else [])]
    grid = table(heads, title=title)
    for name, same in _merged(ops):
        flops = sum(op.flops * op.share for op in same)
        seconds = sum(op.alone_s * op.share for op in same)
        moved = [sum(op.traffic_bytes.get(k, 0.0) * op.share for op in same for k in kinds) for kinds in _MOVED]
        grid.add_row(
            name,
            _cell(flops / 1e9),
            *(_cell(size / 1e6) for size in moved),
            count(seconds * 1e6),
            same[0].bound,
            f"{seconds * same[0].layers / total_s:.1%}",
            *([same[0].basis[:1]] if told else []),
        )
    return grid


_CACHED = {"kv": "KV", "state": "state"}
_MOVED = (("weights",), tuple(_CACHED), ("activations",), ("message",))


def _cell(value: float) -> str:
    return count(value) if value else ""


def _merged(ops: list[OpRow]) -> Iterator[tuple[str, list[OpRow]]]:
    """Yield (name, rows): the same operation at several contexts is one line, its counts weighed by their share."""
    index = 0
    while index < len(ops):
        end = index + 1
        while end < len(ops) and ops[end].name == ops[index].name and ops[end].share < 1 and ops[index].share < 1:
            end += 1
        op = ops[index]
        dtype = f" {op.dtype}" if op.flops else ""
        plan = op.plan.removeprefix("hierarchical(").removesuffix(")") if "@" in op.plan else op.plan
        how = f" [{plan}]" if op.network_s and plan != "direct" else ""
        yield f"{op.name}{dtype}{how}", ops[index:end]
        index = end


def _choices(answer: Answer) -> Table:
    grid = table(["<choice", "<taken", "us", "<instead of (us)"], title="choices, each priced alone for one layer")
    alike: dict[tuple[str, str, float, tuple[tuple[str, float], ...]], list[str]] = defaultdict(list)
    for choice in answer.estimate.choices:
        key = (choice.name, choice.plan, choice.alone_s, tuple(choice.beaten_s.items()))
        if choice.segment not in alike[key]:
            alike[key].append(choice.segment)
    grid.add_row("residual", answer.estimate.residual, "", "")
    for (name, plan, seconds, beaten), segments in alike.items():
        grid.add_row(f"{name} ({', '.join(segments)})", plan, count(seconds * 1e6), _beaten(beaten))
    return grid


def _beaten(beaten: Sequence[tuple[str, float]]) -> str:
    listed = [f"{plan} {count(seconds * 1e6)}" for plan, seconds in beaten[:MOST_BEATEN]]
    more = len(beaten) - MOST_BEATEN
    return ", ".join(listed) + (f", and {more} more" if more > 0 else "")


def _flags(answer: Answer) -> Iterator[list[str]]:
    for flags in launch_flags(answer):
        if flags.command is None:
            yield [f"{flags.engine} cannot run this deployment: {note}" for note in flags.notes]
        else:
            yield [flags.command, *(f"  {note}" for note in flags.notes)]


def _notes(answer: Answer) -> Iterator[str]:
    for note in answer.estimate.diagnostics:
        yield f"{note.name}: {note.text}"
    model = answer.problem.model
    if model.unknown_keys:
        yield f"config keys not understood: {', '.join(model.unknown_keys)}"
    for remark in model.assumed:
        yield f"assumed: {remark}"
