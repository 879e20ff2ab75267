"""The tree works wherever it is cloned, and holds what a release needs."""

import re

from repo.tree import ROOT, tracked_files

FOREIGN = re.compile(r"/wo[r]k/|/ro[o]t/|/ho[m]e/|\.\./sha[r]ed\b|\bsha[r]ed/facts\b")
"""Paths of one machine. Written with brackets, so that this line is not a hit."""


def test_no_machine_paths():
    hits = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary
        hits += [f"{path.relative_to(ROOT)}: {found}" for found in set(FOREIGN.findall(text))]
    assert not hits


def test_the_licence_is_whole():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_has_room_for_the_next_release():
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_decisions_are_numbered_without_gaps():
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(len(numbers)))
