"""Every diagnostic and reason that the code can give is a row of docs/diagnostics.md, and no other is."""

import ast
import re

import pytest
from cli.command import inferometer
from repo.tree import ROOT, SRC

WHERE = (
    *("estimate/diagnose.py", "estimate/legality.py", "estimate/room.py", "memory/division.py"),
    *("api/notes.py", "api/questions.py", "api/memory_tiers.py"),
)
NAME = re.compile(r"([a-z]+(?:-[a-z]+)+)(?:$|: )")
PAGE = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")


def names(path):
    """Texts of a file that are a name, or begin with one and a colon."""
    tree = ast.parse((SRC / path).read_text(encoding="utf-8"))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {found[1] for text in texts if (found := NAME.match(text))}


def documented(head):
    section = PAGE.partition(f"## {head}")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w-]+)` \|", section, flags=re.MULTILINE)


def test_every_name_is_documented_and_no_other():
    known = {name for path in WHERE for name in names(path)}
    listed = documented("What to know") + documented("Why it is not feasible")
    assert known == set(listed)


@pytest.mark.parametrize("head", ["What to know", "Why it is not feasible"])
def test_each_is_listed_once(head):
    listed = documented(head)
    assert listed
    assert len(listed) == len(set(listed))


def test_what_a_search_loses_is_documented():
    for words in ("deepseek-v3 h200 8x2 --engine vllm --slo 20", "llama-3.1-405b h100 2x1", "qwen2-0.5b h200 8x2"):
        out = inferometer("search", *words.split()).out
        lost = re.findall(r"\d+ ([a-z]+(?:-[a-z]+)+)", out.partition("lost:")[2].partition("assumed:")[0])
        assert lost
        assert all(f"`{name}`" in PAGE for name in lost)


def test_a_table_names_what_every_row_has():
    words = ("search", "deepseek-v3", "h200,mi300x", "8x2", "--sizes", "DCP=1,PP=1", "--top", "40")
    rows = inferometer(*words, "--json").rows
    out = " ".join(inferometer(*words).out.split())
    had = {}
    for place, row in enumerate(rows, 1):
        for note in row["diagnostics"]:
            had.setdefault(note["name"], []).append(place)
    assert had
    for name, places in had.items():
        if places[0] == 1:
            assert f"row 1 has {name}: " in out
        said = re.search(rf"rows? ([\d, -]+) ha(?:s|ve) {name}\b(?!:)", out)
        others = [place for place in places if place > 1]
        if not others:
            assert said is None
            continue
        listed = []
        for part in said[1].split(", "):
            first, _, last = part.partition("-")
            listed += range(int(first), int(last or first) + 1)
        assert listed == others
