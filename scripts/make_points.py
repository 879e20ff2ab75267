"""Write the committed tables of published measurements from the collected ones.

python scripts/make_points.py POINTS_CSV [SUSPICIOUS_CSV]

POINTS_CSV is in the dialect of `inferometer.measurement.published`; SUSPICIOUS_CSV has columns group_id and kind.
The same input gives the same tables.
"""

import csv
import gzip
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from inferometer.measurement.points import DATA, POINT_COLUMNS, SOURCE_COLUMNS, points_from_rows, read_rows, read_text
from inferometer.measurement.published import COLUMNS, SOURCE_CELLS, to_own


def read_doubts(path: Path) -> dict[str, str]:
    """Return group -> its kinds of doubt, sorted and joined by semicolons."""
    kinds: dict[str, set[str]] = {}
    for row in read_rows(read_text(path), path.name, ("group_id", "kind")):
        kinds.setdefault(row["group_id"], set()).add(row["kind"])
    return {group: ";".join(sorted(found)) for group, found in kinds.items()}


def packed(rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> bytes:
    """Return rows as CSV, gzipped without a time stamp."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return gzip.compress(out.getvalue().encode(), compresslevel=9, mtime=0)


def make(points_csv: Path, suspicious_csv: Path | None, out: Path) -> int:
    """Write both tables into the folder `out` and return the number of points."""
    needed = (*COLUMNS.values(), *SOURCE_CELLS.values(), "metric", "value")
    rows = read_rows(read_text(points_csv), points_csv.name, needed)
    points, sources = to_own(rows, read_doubts(suspicious_csv) if suspicious_csv else {}, points_csv.name)
    points_from_rows(points, {}, points_csv.name)  # refuses what cannot be read back
    out.mkdir(parents=True, exist_ok=True)
    (out / "points.csv.gz").write_bytes(packed(points, POINT_COLUMNS))
    (out / "sources.csv.gz").write_bytes(packed(sources, SOURCE_COLUMNS))
    return len(points)


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    if len(given) not in (1, 2):
        sys.exit(__doc__)
    sys.stdout.write(f"{make(given[0], given[1] if len(given) > 1 else None, DATA)} points\n")
