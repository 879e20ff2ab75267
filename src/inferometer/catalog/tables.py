"""Read the data files: every value has a unit and a source, or the file is refused."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from inferometer.errors import InferometerError
from inferometer.units import parse_quantity

Row = dict[str, str]

DATA = Path(__file__).parent / "data"


def read_table(name: str, required: Sequence[str]) -> list[Row]:
    """Return the rows of `data/<name>`; raises InferometerError as `check_rows` does."""
    return check_rows(name, _dicts(csv.reader(read_data(name).splitlines())), required)


def _dicts(lines: Iterator[list[str]]) -> Iterator[dict[str | None, str | None]]:
    """Yield each line by the first one's names; several times as quick as `csv.DictReader`."""
    names: list[str | None] = [*next(lines, ())]
    for line in lines:
        row: dict[str | None, str | None] = dict(zip(names, line, strict=False))
        if len(line) > len(names):
            row[None] = ""
        yield row


def read_data(name: str) -> str:
    """Return the text of `data/<name>`."""
    return (DATA / name).read_text(encoding="utf-8")


def check_rows(name: str, rows: Iterable[dict[str | None, str | None]], required: Sequence[str]) -> list[Row]:
    """Return `rows` with every cell a string, refusing a row whose `required` cells are not all filled.

    Raises InferometerError naming the file, the line and the empty or missing columns.

    >>> check_rows("x.csv", [{"value": "1", "source": ""}], ("value", "source"))
    Traceback (most recent call last):
    inferometer.errors.InferometerError: x.csv line 2: no source
    """
    out: list[Row] = []
    for line, row in enumerate(rows, start=2):
        if None in row:
            raise InferometerError(f"{name} line {line}: more cells than columns")
        clean = {str(k): v.strip() if v else "" for k, v in row.items()}
        if not all(map(clean.get, required)):
            missing = [c for c in required if not clean.get(c)]
            raise InferometerError(f"{name} line {line}: no {', '.join(missing)}")
        out.append(clean)
    return out


def cell_quantity(where: str, number: str, unit: str, dimension: str) -> float:
    """Return the SI value of a number and its unit, as `parse_quantity` does, a unit looked up once.

    Raises InferometerError naming `where` for a cell that is no number, and for one negative or not finite.

    >>> cell_quantity("x.csv", "80", "GiB", "bytes") == 80 * 2**30
    True
    """
    try:
        value = float(number) * _factor(unit, dimension)
    except ValueError as err:
        raise InferometerError(f"{where}: {number!r} is no number") from err
    if not 0 <= value < math.inf:
        raise InferometerError(f"{where}: {number!r} must be finite and not negative")
    return value


@cache
def _factor(unit: str, dimension: str) -> float:
    return parse_quantity(f"1 {unit}", dimension)


def split_names(cell: str) -> tuple[str, ...]:
    """Return the names of a cell that lists them with semicolons.

    >>> split_names("h100; h100-sxm5")
    ('h100', 'h100-sxm5')
    """
    return tuple(part.strip() for part in cell.split(";") if part.strip())


def yes(name: str, cell: str) -> bool:
    """Return a yes/no cell as a bool; raises InferometerError for anything else."""
    if cell not in ("yes", "no"):
        raise InferometerError(f"{name}: {cell!r} is neither yes nor no")
    return cell == "yes"
