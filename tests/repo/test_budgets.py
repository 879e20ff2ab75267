"""Files and functions stay small enough to read in one sitting. Complexity is ruff's (C901)."""

from repo.tree import ROOT, SRC, functions, sources

FILE_LINES = 400
FILE_LINES_HARD = 600
FUNCTION_LINES = 50

LONGER_FILES: dict[str, str] = {}
"""Path -> why it may pass FILE_LINES (never FILE_LINES_HARD)."""


def is_data(path):
    return "data" in path.relative_to(SRC).parts


def code():
    return [path for path in sources(SRC) if not is_data(path)]


def lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_files_keep_their_budget():
    long = {path.relative_to(ROOT).as_posix(): lines(path) for path in code() if lines(path) > FILE_LINES}
    assert not {name: n for name, n in long.items() if name not in LONGER_FILES}


def test_no_file_passes_the_hard_stop():
    everything = [*code(), *sources(ROOT / "tests", ROOT / "benchmarks")]
    assert not {path.relative_to(ROOT).as_posix(): lines(path) for path in everything if lines(path) > FILE_LINES_HARD}


def test_functions_keep_their_budget():
    assert not [
        f"{path.relative_to(ROOT).as_posix()}: {name} has {n} lines"
        for path in code()
        for name, n in functions(path)
        if n > FUNCTION_LINES
    ]


def test_every_exemption_is_still_needed():
    assert all(lines(ROOT / name) > FILE_LINES for name in LONGER_FILES)
