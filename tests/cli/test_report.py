"""report on the command line: its parts are those of the other verbs, and its JSON gives its pages byte for byte."""

import json
import re
import shlex

import pytest
from cli.command import inferometer, refused

QWEN = ("qwen2.5-7b", "rtx4090", "--batch-size", "16", "--isl", "2000", "--osl", "200", "--backend", "roofline")
PARTS = ("Summary", "Memory", "Speed", "Economics", "Chips compared", "Assumptions", "Sources", "To reproduce")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One report as JSON, Markdown and HTML, each asked for anew."""
    folder = tmp_path_factory.mktemp("report")
    for name in ("r.json", "r.md", "r.html"):
        done = inferometer("report", *QWEN, "--output", str(folder / name))
        assert done.status == 0, done.err
        assert not done.out
    return folder


def commands_apart(text):
    """A page without the one line that names the file it was written to."""
    return re.sub(r"inferometer report .*", "", text)


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_its_own_json_gives_each_form_byte_for_byte(written, form):
    again = written / f"again.{form}"
    done = inferometer("report", str(written / "r.json"), "--output", str(again))
    assert done.status == 0, done.err
    first = (written / f"r.{form}").read_text(encoding="utf-8")
    assert commands_apart(again.read_text(encoding="utf-8")) == commands_apart(first)
    twice = inferometer("report", str(written / "r.json"), "--format", form).out
    assert twice.encode() == again.read_bytes()
    if form == "json":
        assert again.read_bytes() == (written / "r.json").read_bytes()


def test_the_parts_are_what_the_other_verbs_say(written):
    found = json.loads((written / "r.json").read_text(encoding="utf-8"))
    (cost,) = inferometer("cost", *QWEN, "--json").rows
    assert found["cost"] == cost
    held = ("memory", "qwen2.5-7b", "rtx4090", "--batch-size", "16", "--context", "2200", "--json")
    (memory,) = inferometer(*held).rows
    assert found["memory"] == memory
    compare = ("compare", "qwen2.5-7b", *QWEN[2:], "--sizes", "TP=1", "--json")
    (matrix,) = inferometer(*compare).rows
    assert found["matrix"]["rows"] == matrix["rows"]
    assert found["clouds"] == inferometer("cost", *QWEN, "--compare-clouds", "--json").rows


def test_a_page_has_every_part_and_its_numbers(written):
    found = json.loads((written / "r.json").read_text(encoding="utf-8"))
    for name in ("r.md", "r.html"):
        text = (written / name).read_text(encoding="utf-8")
        assert all(part in text for part in PARTS)
        assert found["cost"]["price_source"] in text
        assert f"${found['cost']['usd_per_mtok_output']:.4f}" in text
        assert found["matrix"]["right_sized"]["chip"] in text
        assert "None" not in text
    html = (written / "r.html").read_text(encoding="utf-8")
    assert html.lstrip().startswith("<!DOCTYPE html>")
    assert html.count("<tr>") == html.count("</tr>")
    assert "http" not in html.partition("<body>")[0]  # nothing is loaded from elsewhere


def test_the_commands_run(written):
    found = json.loads((written / "r.json").read_text(encoding="utf-8"))
    assert len(found["commands"]) == 6
    for command in found["commands"][:-1]:
        done = inferometer(*shlex.split(command)[1:])
        assert done.status == 0, (command, done.err)


def test_what_does_not_fit_is_reported_too_with_exit_1(tmp_path):
    file = tmp_path / "no.md"
    done = inferometer("report", "llama-3.1-70b", "h100", "--batch", "4", "--output", str(file))
    assert done.status == 1
    text = file.read_text(encoding="utf-8")
    assert "does not run on 1 x h100-sxm" in text
    assert "would fit" in text


def test_a_name_in_html_is_escaped(written):
    found = json.loads((written / "r.json").read_text(encoding="utf-8")) | {"model": "<b>&"}
    file = written / "odd.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    html = inferometer("report", str(file), "--format", "html").out
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;" in html


def test_without_a_file_it_is_markdown_on_stdout():
    assert inferometer("report", *QWEN).out.startswith("# qwen2.5-7b on 1 x rtx4090\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("qwen2.5-7b",), "report needs CHIP"),
        (("qwen2.5-7b", "rtx4090", "--format", "pdf"), "unknown --format 'pdf'"),
        (("qwen2.5-7b", "rtx4090", "--output", "a.pdf"), "say --format"),
        (("qwen2.5-7b", "rtx4090", "--output", "a.md", "--format", "html"), "--format says html"),
        (("qwen2.5-7b", "rtx4090", "--json", "--format", "html"), "leave --format and --output out"),
        (("qwen2.5-7b", "rtx4090", "--output", "/no/such/folder/a.md"), "No such file"),
    ],
)
def test_bad_input_is_one_line(words, said):
    assert said in refused("report", *words)


def test_a_report_is_only_rendered_again(written):
    assert "leave --batch-size out" in refused("report", str(written / "r.json"), "--batch-size", "4")
    broken = written / "broken.json"
    broken.write_text("{", encoding="utf-8")
    assert "cannot be read" in refused("report", str(broken))
    short = written / "short.json"
    short.write_text('{"kind": "inferometer-report"}', encoding="utf-8")
    assert "lacks what a page needs" in refused("report", str(short))
