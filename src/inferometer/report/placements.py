"""Every placement of one deployment with the step it gives."""

from typing import Any

from inferometer.estimate.estimate import placement_steps
from inferometer.report.answer import Answer
from inferometer.report.row import placed
from inferometer.report.tables import Page, table
from inferometer.report.text import count, machine_text, sizes_flag, spans_text
from inferometer.specs.deployment import Deployment


def placement_rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the keys of PLACEMENT in `report.schema`, fastest first."""
    problem, priced = answer.problem, answer.estimate
    steps = placement_steps(problem, Deployment(sizes=priced.sizes, batch=priced.batch))
    per_chip = answer.rates.tok_per_s_per_chip * priced.step_s
    return [
        {
            "placement": placed(placement, problem.machine.fabric),
            "step_s": step_s,
            "tok_per_s_per_chip": per_chip / step_s,
            "taken": placement == priced.placement,
        }
        for placement, step_s in steps
    ]


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
