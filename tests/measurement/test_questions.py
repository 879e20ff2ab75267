import dataclasses

import pytest
from measurement.rows import dialect_text

from inferometer.blocks.params import all_tensors
from inferometer.measurement.models import SHAPES, chip_of, find_model, stored_model
from inferometer.measurement.points import load_points
from inferometer.measurement.published import read_points
from inferometer.measurement.questions import Question, ask
from inferometer.specs.deployment import Sizes


@pytest.fixture
def point(tmp_path):
    (tmp_path / "one.csv").write_text(dialect_text({}), encoding="utf-8")
    return read_points(tmp_path / "one.csv")[0]


MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        ({"n_chips": 4, "tp": 4}, Sizes(tp=4)),
        ({"n_chips": 8, "tp": 2, "pp": 2}, Sizes(r=2, pp=2, tp=2)),
        ({"n_chips": 4, "tp": None, "pp": None}, Sizes(tp=4)),
        ({"n_chips": 4, "tp": 4, "ep": 4}, Sizes(tp=4)),
        ({"model": MIXTRAL, "n_chips": 4, "tp": 4}, Sizes(tp=4, ep=1, etp=4)),
        ({"model": MIXTRAL, "n_chips": 4, "tp": 4, "ep": 2}, Sizes(tp=4, ep=2, etp=2)),
        ({"model": MIXTRAL, "n_chips": 8, "tp": 8, "ep": 8, "dp_attention": True}, Sizes(dpa=8, ep=8)),
        ({"model": MIXTRAL, "n_chips": 8, "tp": 1, "ep": 8, "dp_attention": True}, Sizes(dpa=8, ep=8)),
        ({"model": MIXTRAL, "n_chips": 8, "tp": 2, "ep": 8}, Sizes(dpa=4, tp=2, ep=8)),
    ],
)
def test_sizes(point, change, sizes):
    assert ask(dataclasses.replace(point, **change)).setup.sizes == sizes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"klass": "D"}, "class: D"),
        ({"klass": ""}, "class: none"),
        ({"metric": "op_latency"}, "metric: op_latency"),
        ({"speculation": "mtp"}, "speculation: mtp"),
        ({"disaggregated": "y (P 1x; D 1x)"}, "disaggregated"),
        ({"model": "tiiuae/falcon-180B"}, "model: tiiuae/falcon-180B"),
        ({"hardware": "RTX 3080"}, "chip: RTX 3080"),
        ({"weight_format": "Q4_K_M"}, "weight format: Q4_K_M"),
        ({"kv_format": "int3"}, "kv format: int3"),
        ({"n_chips": None}, "not stated: n_chips"),
        ({"isl_tok": None}, "not stated: isl"),
        ({"isl_tok": 0}, "not stated: isl"),
        ({"osl_tok": None}, "not stated: osl"),
        ({"osl_tok": 1, "metric": "tpot"}, "not stated: osl"),
        ({"batch": None}, "not stated: batch"),
        ({"n_chips": 6, "tp": 4}, "sizes: do not multiply to the chips"),
        ({"n_chips": 2, "tp": 2, "dp_attention": True}, "sizes: do not multiply to the chips"),
    ],
)
def test_reasons(point, change, reason):
    assert ask(dataclasses.replace(point, **change)) == reason


def test_the_first_token_takes_no_decode_step(point):
    assert ask(point).decode_steps == 9 - 1


def test_without_a_prompt_every_token_does(point):
    asked = ask(dataclasses.replace(point, isl_tok=0, phase="decode", metric="output_tok_per_s"))
    assert asked.decode_steps == 9


def test_what_a_row_leaves_unsaid_is_filled_and_said(point):
    changed = {"framework": "gpt-fast", "phase": "decode", "osl_tok": None, "metric": "output_tok_per_s"}
    asked = ask(dataclasses.replace(point, **changed))
    assert asked.osl_tok == 200
    assert "osl 200" in asked.assumed[0]
    assert ask(point).assumed == ()


def test_every_class_a_row_is_asked_or_has_a_reason():
    answers = [ask(p) for p in load_points() if p.klass == "A"]
    assert len([a for a in answers if isinstance(a, Question)]) >= 1359
    assert not [a for a in answers if isinstance(a, str) and a.startswith(("not stated", "sizes", "class"))]


TOTALS = {
    "Qwen/Qwen2-7B": 7_615_616_512,
    "Qwen/Qwen1.5-7B": 7_721_324_544,
    "Qwen/Qwen2-72B": 72_706_203_648,
    "huggyllama/llama-7b": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "BAAI/Aquila-7B": 6_738_415_616 + 2 * 4096 * (100_008 - 32_000),
}
"""Published parameter counts; Aquila is Llama 2 7B with a larger vocabulary in embedding and head."""


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_equal_shapes_have_the_published_parameters(name):
    total = sum(tensor.rows * tensor.cols * count for tensor, count in all_tensors(find_model(name)))
    assert total == TOTALS[name]


def test_an_a100_without_memory_is_the_40_gb_part():
    assert chip_of("A100").id == "a100-40-sxm"
    assert chip_of("A100-80GB").id == "a100-80-sxm"


def test_names_that_only_look_alike_are_not_taken():
    for name in ("MI250X (1 GCD)", "RTX 3080", "RTX 4070 Ti SUPER", "RTX 5000"):
        assert chip_of(name) is None
    assert find_model("Deci/DeciLM-7B") is None


def test_a_scheme_may_take_the_head():
    name = "meta-llama/Llama-2-7b-hf"
    assert stored_model(name, "int8", "bf16", head=True).head_format == "int8"
    assert stored_model(name, "int8", "bf16", head=False).head_format is None
    assert stored_model(name, "fp8", "", head=False).kv_format == "fp16"


def test_mixtures_in_4_bits_keep_their_attention_in_16():
    """As their checkpoints do; a dense model in 4 bits, and a mixture in 8, have attention in them too."""

    def attention(name, weights):
        return {fmt for mixer in stored_model(name, weights, "", head=False).mixers for fmt in mixer.formats.values()}

    mixture, dense = "deepseek-ai/DeepSeek-R1-0528", "meta-llama/Llama-2-7b-hf"
    assert attention(mixture, "nvfp4") == attention(mixture, "mxfp4") == set()
    assert attention(mixture, "fp8")
    assert attention(dense, "nvfp4") == {"nvfp4"}
