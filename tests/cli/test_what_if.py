"""What-ifs: a changed copy of the machine is priced, exactly; the catalogue and the price stay."""

import pytest
from cli.command import inferometer, refused

from inferometer import estimate, load_machine
from inferometer.api.whatif import changed, parse_what_if, targets
from inferometer.cost.registry import create_backend

ONE = ("explain", "llama-3.1-8b", "h100", "1x1", "--batch", "1", "--context", "1000")
MOE = ("explain", "deepseek-v3", "h200", "8x2", "--sizes", "DPA=8,TP=2", "--batch", "256")


def row(*words):
    done = inferometer(*words, "--json")
    assert done.status == 0, done.err
    return done.rows[0]


def test_a_memory_bound_step_follows_its_bandwidth_exactly():
    base = ("--overlap", "1,1", "--scheduler", "overlap")
    plain, faster = row(*ONE, *base), row(*ONE, *base, "--what-if", "hbm_bandwidth=+25%")
    assert plain["bound"] == "memory"
    assert faster["step_s"] == pytest.approx(plain["step_s"] / 1.25, rel=1e-12)


@pytest.mark.parametrize(
    "field", ["memory_bytes_per_s", "peak.fp8", "peak.bf16", "link.nvlink", "link.network", "link.scale_up"]
)
@pytest.mark.parametrize("words", [ONE, MOE])
def test_more_is_never_slower(field, words):
    steps = [row(*words, "--what-if", f"{field}={factor}x")["step_s"] for factor in (0.5, 1, 1.1, 2, 100)]
    assert steps == sorted(steps, reverse=True)
    assert steps[1] == row(*words)["step_s"]


def test_less_latency_is_never_slower():
    steps = [row(*MOE, "--what-if", f"latency.network={us}us")["step_s"] for us in (50, 5, 1, 0.1)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


def test_a_switch_that_no_longer_reduces_is_never_faster():
    words = ("explain", "llama-3.1-8b", "h100", "8x1", "--sizes", "PP=2,TP=4", "--batch", "64")
    with_it, without = row(*words), row(*words, "--what-if", "reduces.nvlink=no")
    assert with_it["step_s"] < without["step_s"]
    assert "reduces.nvlink yes -> no;" in inferometer(*words, "--what-if", "reduces.scale_up=no").out


def test_it_is_said_and_the_price_stays():
    plain, other = row(*MOE), row(*MOE, "--what-if", "memory_bytes=200e9,tdp_w=500", "--what-if", "link.nvlink=2x")
    assert plain["workload"]["what_if"] == []
    changes = {change["field"]: change for change in other["workload"]["what_if"]}
    assert list(changes) == ["memory_bytes", "tdp_w", "link.nvlink"]
    assert changes["memory_bytes"]["after"] == 200e9
    assert changes["link.nvlink"]["after"] == 2 * changes["link.nvlink"]["before"]
    assert other["resident_sequences"] > plain["resident_sequences"]
    assert (other["usd_per_hour"], other["price_source"]) == (plain["usd_per_hour"], plain["price_source"])
    assert other["id"] != plain["id"]
    said = inferometer(*MOE, "--what-if", "hbm_bandwidth=-10%").out
    assert "what if    memory_bytes_per_s 4,800 GB/s -> 4,320 GB/s (-10%); price as it is" in said


def test_a_search_gives_the_command_that_explains_its_winner():
    words = ("deepseek-v3", "h200,b200", "8x2", "--what-if", "link.scale_out=2x", "--what-if", "hbm_bandwidth=5TB/s")
    done = inferometer("search", *words)
    assert "what if link.network" in done.out
    command = done.out.splitlines()[-1].split()[1:]
    (best, *_) = inferometer("search", *words, "--json").rows
    assert row(*command)["id"] == best["id"]


def test_scale_up_is_the_innermost_level_and_a_whole_torus():
    for words, names in (("h200 8x2", ["nvlink"]), ("tpu-v5p 2x2x4", ["x", "y", "z"])):
        machine = load_machine(*words.split())
        other, changes = changed(machine, parse_what_if("link.scale_up=2x"))
        assert [change.field for change in changes] == [f"link.{name}" for name in names]
        assert all(
            b.bytes_per_s == a.bytes_per_s * (2 if a.name in names else 1)
            for a, b in zip(machine.fabric.axes, other.fabric.axes, strict=True)
        )


def test_a_faster_link_keeps_the_latency_of_the_one_it_was():
    """NVLink 4 at twice its rate is as fast as NVLink 5, whose messages take longer to start."""
    calibrated, machine = create_backend("calibrated"), load_machine("h200", "8x1")
    once, _ = changed(machine, parse_what_if("link.nvlink=2x"))
    again, _ = changed(once, parse_what_if("link.nvlink=2x"))
    plain, *faster = (calibrated.link(one.fabric.axes[0]) for one in (machine, once, again))
    assert [link.alpha_s for link in faster] == [plain.alpha_s] * 2
    assert [link.bytes_per_s for link in faster] == pytest.approx([2 * plain.bytes_per_s, 4 * plain.bytes_per_s])


def test_every_field_that_is_listed_can_be_changed():
    machine = load_machine("h200", "8x2")
    for field, target in targets(machine).items():
        value = "2x" if target.dimension else "no" if target.before else "yes"
        other, (change,) = changed(machine, parse_what_if(f"{field}={value}"))
        assert change.after == (2 * change.before if target.dimension else 1 - change.before)
        assert targets(other)[field].before == change.after
        assert [f for f, t in targets(other).items() if t != targets(machine)[f]] == [field]


def test_python_takes_them_too():
    text, listed = "peak.fp8=2x,link.nvlink=2x", ["peak.fp8=2x", "link.nvlink=2x"]
    answers = [estimate("deepseek-v3", "h200 8x2", batch=64, what_if=given) for given in (text, listed)]
    assert answers[0].changes == answers[1].changes
    assert [change.field for change in answers[0].changes] == ["peak.fp8", "link.nvlink"]


def test_what_would_hold_it_counts_the_memory_asked_about():
    plain = inferometer("search", "llama-3.1-405b", "h100", "2x1")
    more = inferometer("search", "llama-3.1-405b", "h100", "2x1", "--what-if", "memory_bytes=2x")
    assert "16 chips would hold it" in plain.err
    assert "8 chips would hold it" in more.err
    assert "what if memory_bytes" in more.out


@pytest.mark.parametrize(
    ("what_if", "said"),
    [
        ("hbm_bandwith=2x", "did you mean 'hbm_bandwidth'?"),
        ("link.nvlnk=2x", "did you mean 'link.nvlink'?"),
        ("peak.fp4=2x", "peak.fp8"),
        ("memory_bytes_per_s", "FIELD=VALUE"),
        ("", "FIELD=VALUE"),
        ("tdp_w=2x,", "FIELD=VALUE"),
        ("hbm_bandwidth=5", "has no unit"),
        ("hbm_bandwidth=5GiB", "not one of bytes_per_s"),
        ("hbm_bandwidth=20%", "+20% or -10%"),
        ("hbm_bandwidth=+2x", "2x or 0.5x"),
        ("hbm_bandwidth=-100%", "above 0"),
        ("hbm_bandwidth=0x", "above 0"),
        ("hbm_bandwidth=fast", "+20%, -10% or 2x"),
        ("tdp_w=1e999", "finite"),
        ("reduces.nvlink=2x", "yes or no"),
        ("memory_bytes=0.5", "above 0"),
        ("hbm=2x,memory_bytes=2x", "memory_bytes of h100-sxm twice"),
    ],
)
def test_bad_what_ifs(what_if, said):
    assert said in refused(*ONE, "--what-if", what_if)
