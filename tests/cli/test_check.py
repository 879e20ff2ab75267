"""Pinned deployments: what keeps its bounds, what moved, and files that are bad."""

import pytest
from cli.command import inferometer, refused
from cli.test_rows import check, schema

PIN = 'name = "one"\nmodel = "llama-3.1-8b"\nchip = "h100"\nbatch = 16\nisl = 1000\n'


@pytest.fixture
def pins(tmp_path):
    def write(*bodies, head=""):
        path = tmp_path / "pins.toml"
        path.write_text(head + "".join(f"[[pin]]\n{body}\n" for body in bodies), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def row():
    return inferometer("explain", "llama-3.1-8b", "h100", "--batch", "16", "--isl", "1000", "--json").rows[0]


def test_what_keeps_its_bounds_is_ok(pins, row):
    keys = ("tok_per_s_per_chip", "tpot_s", "mfu", "weights_bytes_per_chip", "decode_only_usd_per_mtok_output")
    bounds = "".join(f"{key} = {{min = {row[key]!r}, max = {row[key]!r}}}\n" for key in keys)
    done = inferometer("check", pins(PIN + bounds))
    assert done.status == 0, done
    assert done.out.startswith("ok     one: tok_per_s_per_chip ")
    assert done.out.count("\n") == 1


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("tok_per_s_per_chip = {min = 1e6}", "is below 1,000,000"),
        ('tpot_s = {max = "1 ms"}', "is above 1.00 ms"),
        ('memory_bytes_per_chip = {max = "1 GiB"}', "is above 1.00 GiB"),
        ("usd_per_mtok = {max = 1e-3}", "is above $0.0010"),
        ("usd_per_mtok_output = {max = 1}", "usd_per_mtok_output is not known"),
        ("feasible = false", "feasible, pinned as not"),
        ("gpu_memory_utilization = 0.1", "not feasible: weights-do-not-fit"),
    ],
)
def test_what_leaves_them_moved(pins, bound, said):
    done = inferometer("check", pins(PIN + bound, PIN.replace("one", "two")))
    assert done.status == 1
    first, second = done.out.splitlines()
    assert first.startswith("moved  one: ")
    assert said in first
    assert second == "ok     two: feasible"


def test_a_bound_missed_by_less_than_is_shown(pins, row):
    done = inferometer("check", pins(PIN + f"tpot_s = {{max = {row['tpot_s'] * (1 - 1e-9)!r}}}"))
    assert f"tpot_s {row['tpot_s']!r} is above " in done.out


def test_defaults_and_options_are_those_of_explain(pins):
    head = '[defaults]\nmodel = "deepseek-v3"\nchip = "h200"\nmachine = "8x2"\nbatch = 64\n'
    first = 'name = "a"\nsizes = {DPA = 8, TP = 2}\nwhat_if = ["hbm=2x"]\nkv_cache_dtype = "fp8"\nslo = 20\n'
    second = (
        'name = "b"\nsizes = "DPA=16"\nphase = "prefill"\nslo = "ttft=60s"\nusd_per_chip_hour = 2\nmfu = {min = 0}\n'
    )
    done = inferometer("check", pins(first, second, head=head), "--json")
    assert done.status == 0, done
    for one in done.rows:
        check(one, schema("pin"))
    assert [(one["pin"], one["ok"], one["machine"]) for one in done.rows] == [("a", True, "8x2"), ("b", True, "8x2")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (PIN + "tok_per_s_per_chp = {min = 1}", "pin 'one': unknown key 'tok_per_s_per_chp'; did you mean"),
        (PIN + "batch_size = 4", "unknown key 'batch_size'; did you mean 'batch'"),
        (PIN + "tpot_s = 5", "write bounds"),
        (PIN + "tpot_s = {}", "write bounds"),
        (PIN + "tpot_s = {most = 5}", "tpot_s: unknown bound 'most'"),
        (PIN + "tpot_s = {min = 2, max = 1}", "min 2 is above max 1"),
        (PIN + 'tpot_s = {max = "5 GiB"}', "not one of time"),
        (PIN + 'mfu = {max = "5%"}', "is not a number"),
        (PIN + "mfu = {max = nan}", "is not a number"),
        (PIN + "mfu = {max = true}", "is not a number"),
        (PIN + 'isl_ = "x"', "unknown key"),
        (PIN + 'osl = "1000"', "osl '1000' is not a whole number"),
        (PIN + "osl = true", "is not a whole number"),
        (PIN + "osl = 0", "pin 'one': --osl 0"),
        (PIN + "quant = 8", "is not text"),
        (PIN + "what_if = [1]", "what_if"),
        (PIN.replace("h100", "h1000"), "pin 'one': unknown chip"),
        (PIN.replace('name = "one"\n', ""), "pin 1: name is missing"),
        ("", "name is missing"),
    ],
)
def test_bad_pins(pins, body, said):
    err = refused("check", pins(body))
    assert said in err
    assert "pins.toml" in err


def test_bad_files(tmp_path, pins):
    assert "No such file" in refused("check", str(tmp_path / "none.toml"))
    assert "two pins are called 'one'" in refused("check", pins(PIN, PIN))
    assert "holds no [[pin]]" in refused("check", pins(head="[defaults]\nbatch = 1\n"))
    assert "unknown key 'pins'" in refused("check", pins(PIN, head="pins = 1\n"))
    assert "defaults must be a table" in refused("check", pins(PIN, head="defaults = 1\n"))
    broken = tmp_path / "broken.toml"
    broken.write_text("[[pin]\n")
    assert "broken.toml" in refused("check", str(broken))
