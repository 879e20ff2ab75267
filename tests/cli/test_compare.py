"""compare on the command line: the rows are those of memory, max-batch and cost; the picks follow from them."""

import pytest
from cli.command import inferometer, refused
from cli.test_rows import check, schema

QWEN = ("qwen2.5-7b", "--batch-size", "1", "--context", "2048", "--backend", "roofline")


def matrix(*words, status=0):
    done = inferometer("compare", *words, "--json")
    assert done.status == status, done.err
    (found,) = done.rows
    check(found, schema("matrix"))
    return found


def test_every_chip_of_the_catalogue_is_a_row():
    found = matrix(*QWEN)
    assert {row["chip"] for row in found["rows"]} == {row["chip"] for row in inferometer("chips", "--json").rows}
    assert {row["status"] for row in found["rows"]} >= {"fits", "tight", "does-not-fit"}
    for row in found["rows"]:
        assert row["headroom_bytes"] == pytest.approx(row["room_bytes"] - row["required_bytes"])
        assert row["utilization"] == pytest.approx(row["required_bytes"] / row["room_bytes"])
        assert (row["status"] in ("fits", "tight")) == (not row["reasons"])
        assert (row["max_batch"] > 0) == (row["utilization"] <= 1)
    assert max(row["utilization"] for row in found["rows"]) > 4  # never clipped


def test_a_row_is_what_memory_max_batch_and_cost_say():
    (row,) = matrix("qwen2.5-7b", "rtx4090", *QWEN[1:])["rows"]
    (held,) = inferometer("memory", "qwen2.5-7b", "rtx4090", "--context", "2048", "--json").rows
    lines = {line["name"]: line["bytes"] for line in held["lines"]}
    assert row["headroom_bytes"] == pytest.approx(lines["free"])
    assert row["room_bytes"] == pytest.approx(sum(lines.values()) - lines["reserve"])
    (most,) = inferometer("max-batch", "qwen2.5-7b", "rtx4090", "--context", "2048", "--json").rows
    assert row["max_batch"] == most["value"]
    (paid,) = inferometer("cost", "qwen2.5-7b", "rtx4090", *QWEN[1:], "--json").rows
    for key in ("tpot_s", "tok_per_s", "usd_per_hour", "decode_only_usd_per_mtok_output", "price_source"):
        assert row[key] == paid[key]


def test_the_picks_are_the_least_bill_and_the_most_tokens():
    found = matrix(*QWEN)
    fitting = [row for row in found["rows"] if not row["reasons"]]
    least = min((row for row in fitting if row["usd_per_hour"] is not None), key=lambda row: row["usd_per_hour"])
    assert found["right_sized"]["chip"] == least["chip"]
    assert f"${least['usd_per_hour']:.2f}/h" in found["right_sized"]["why"]
    assert found["fastest"]["chip"] == max(fitting, key=lambda row: row["tok_per_s"])["chip"]


def test_without_a_price_the_smallest_that_fits_is_right_sized():
    found = matrix("qwen2.5-7b", "m2-ultra,m1-max", *QWEN[1:])
    assert found["right_sized"]["chip"] == "m1-max"
    assert "no price known" in found["right_sized"]["why"]


def test_where_nothing_fits_the_nearest_change_is_said_and_does_fit():
    found = matrix("llama-3.1-405b", "rtx4090,h100", "--context", "4096", status=1)
    assert found["right_sized"] is found["fastest"] is None
    (near,) = (near for near in found["nearest"] if "16 chips" in near)
    assert near.startswith("h100-sxm: 16 chips: h100-sxm 8x2, TP=16")
    assert matrix("llama-3.1-405b", "h100", "8x2", "--context", "4096")["fastest"]["chip"] == "h100-sxm"


def test_the_engine_s_own_memory_rules_count():
    ours, theirs = (
        matrix("llama-3.1-8b", "h100", "--context", "4096", *more)["rows"][0] for more in ((), ("--engine", "vllm"))
    )
    assert theirs["required_bytes"] > ours["required_bytes"]


def test_the_page_has_the_picks_and_every_row():
    done = inferometer("compare", *QWEN)
    said = " ".join(done.out.split())
    assert "right-sized: rtx3090, $0.22/h" in said
    assert "fastest: " in said
    assert "rtx3050-4-laptop" in said


def test_names_that_are_none_are_refused():
    assert "ambiguous" in refused("compare", "qwen2.5-7b", "h100,a100")
    assert "unknown chip" in refused("compare", "qwen2.5-7b", "h101")


@pytest.mark.parametrize("bad", [("--quant", "foo"), ("--backend", "foo"), ("--calibration", "foo")])
def test_what_is_wrong_for_every_chip_is_bad_input(bad):
    said = refused("compare", "llama-3.1-8b", "h200,b200", "8x1", *bad)
    assert said.count("\n") == 1
    assert "unknown" in said
