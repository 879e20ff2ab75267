"""Every placement of one deployment with the step it gives."""

from typing import Any

from inferometer.report.answer import Answer
from inferometer.report.tables import Page, table
from inferometer.report.text import count, machine_text, sizes_flag, spans_text


def print_placements(page: Page, answer: Answer, rows: list[dict[str, Any]]) -> None:
    """Print the placements as a table."""
    problem, priced = answer.problem, answer.estimate
    page.show(f"{problem.model.name}, {problem.workload.phase}")
    page.show(f"{machine_text(problem)}: {sizes_flag(priced.sizes)}, batch {priced.batch:,}")
    page.show()
    heads = ["#", "TPOT\nms" if answer.rates.tpot_s is not None else "TTFT\nms", "slower", "tok/s\n/chip", "<placement"]
    grid = table(heads)
    for number, row in enumerate(rows, 1):
        grid.add_row(
            str(number),
            count(row["step_s"] * 1e3),
            f"{row['step_s'] / rows[0]['step_s'] - 1:.1%}",
            count(row["tok_per_s_per_chip"]),
            spans_text(row["placement"]) or "one chip",
        )
    page.show(grid)
