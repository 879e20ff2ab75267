"""Whatever is typed: a status of ours, one line on stderr where it failed, JSON where JSON was asked for."""

from cli.command import inferometer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferometer.cli.options import flags
from inferometer.cli.verb_options import VERBS

NUMBERS = ("0", "1", "2", "3", "7", "16", "-1", "1e30", "nan", "inf", "-0", "0.5", "1_0", "٣", "")
WORDS = (
    "fp8",
    "decode",
    "prefill",
    "extend",
    "verify",
    "layer",
    "mla=expanded",
    "vllm",
    "ideal",
    "serial",
    "streams",
    "tpot=50ms",
    "ttft=1s",
    "20",
    "TP=2",
    "DPA=2,EP=4",
    "x",
)
values = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.text(max_size=12))
SWITCHES = {
    *("enable_expert_parallel", "all_token_logits", "per_dollar", "progress", "placements", "json", "table"),
    *("enforce_eager", "enable_prefix_caching"),
}


@st.composite
def options(draw, verb):
    words = []
    for field in draw(st.lists(st.sampled_from(VERBS[verb]), max_size=5)):
        if flags(field):
            words.append(draw(st.sampled_from(flags(field))))
            if field not in SWITCHES:
                words.append(draw(values))
    return words


models = st.one_of(st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite"]), values)
chips = st.one_of(st.sampled_from(["h100", "rtx4090", "tpu-v5p", "h100,b200", "p5.48xlarge"]), values)
machines = st.one_of(st.sampled_from(["1x1", "2x2", "8x1", "2x2x1"]), values)


def check(words):
    done = inferometer(*words)
    assert done.status in (0, 1, 2), (words, done)
    assert "Traceback" not in done.err
    if done.status == 2:
        assert done.err.count("\n") == 1 or "--progress" in words, (words, done.err)
        assert done.err.startswith("inferometer: ") or "--progress" in words
    elif "--json" in words and "--help" not in words:
        assert done.rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_questions(data):
    verb = data.draw(st.sampled_from(["search", "explain", "top"]))
    words = [verb, data.draw(models), data.draw(chips), *data.draw(st.lists(machines, max_size=1))]
    check([*words, *data.draw(options(verb))])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_counts(data):
    verb = data.draw(st.sampled_from(["ops", "kv", "params"]))
    chip = data.draw(st.lists(chips, max_size=1)) if verb == "ops" else []
    check([verb, data.draw(models), *chip, *data.draw(options(verb))])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([*VERBS, "--help", "--json", "-tp", "2", "h100"]), st.text(max_size=8)), max_size=5
    )
)
def test_anything(words):
    if "validate" not in words:  # reads thousands of points
        check(words)
