"""`ops` and `kv` of models with recurrent layers, indexers, cross-attention and layer inputs."""

import json
from pathlib import Path

import pytest
from cli.command import inferometer, refused

PHASES = {
    "decode": ("--isl", "4096", "--osl", "512"),
    "prefill": ("--isl", "512"),
    "extend": ("--isl", "512", "--context", "4096"),
    "verify": ("--draft-tokens", "3", "--isl", "4096"),
}
VISION = "llama-3.2-11b-vision-instruct"
MODELS = {
    "nvidia-nemotron-3-nano-30b-a3b-nvfp4": (),
    "qwen3-next-80b-a3b-instruct": (),
    "gemma-4-e4b-it": (),
    VISION: ("--images", "1"),
    "deepseek-v3.2": (),
    "llama-3.3-nemotron-super-49b-v1": (),
    "longcat-flash-chat": (),
    "kimi-k3": (),
}


def answer(*words):
    done = inferometer(*words, "--json")
    assert done.status == 0, done.err
    (row,) = done.rows
    return row


@pytest.fixture(scope="module")
def falcon(tmp_path_factory):
    """Return a file with a config whose layers have attention beside Mamba-2."""
    rows = map(json.loads, (Path(__file__).parents[1] / "ingest/hybrids.jsonl").read_text().splitlines())
    config = next(row["config"] for row in rows if row.get("config", {}).get("model_type") == "falcon_h1")
    path = tmp_path_factory.mktemp("falcon") / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def check_sums(row):
    times = [op["layers"] * op["share"] for op in row["ops"]]
    assert row["total_flops"] == pytest.approx(sum(op["flops"] * n for op, n in zip(row["ops"], times, strict=True)))
    moved = sum(sum(op["bytes"].values()) * n for op, n in zip(row["ops"], times, strict=True))
    assert row["total_bytes"] == pytest.approx(moved)
    assert sum(part["flops_share"] for part in row["parts"]) == pytest.approx(1)
    assert sum(part["bytes_share"] for part in row["parts"]) == pytest.approx(1)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("model", MODELS)
def test_every_part_of_every_kind_is_counted(model, phase):
    check_sums(answer("ops", model, "--phase", phase, *PHASES[phase], *MODELS[model], "--batch", "4"))


@pytest.mark.parametrize("phase", PHASES)
def test_mixers_beside_each_other_are_counted(falcon, phase):
    row = answer("ops", falcon, "--phase", phase, *PHASES[phase])
    check_sums(row)
    assert {"attention-core", "state-scan"} <= {op["name"] for op in row["ops"]}
    assert {cache["kind"] for cache in answer("kv", falcon)["caches"]} == {"grows", "state"}


def test_a_page_has_a_line_for_what_a_token_brings_to_each_layer():
    row = answer("ops", "gemma-4-e4b-it", "--context", "100")
    assert [part["part"] for part in row["parts"]] == ["attention", "ffn", "layer-inputs", "embedding", "head"]
    assert sum(op["flops"] * op["layers"] for op in row["ops"] if op["part"] == "layer-inputs") == 42 * 4 * 2560 * 256
    (counted,) = inferometer("params", "gemma-4-e4b-it", "--json").rows
    inputs = 2 * 2560 * 256 + 2560
    assert {run["other_params"] for run in counted["layers"]} == {inputs}
    assert counted["by_kind"]["layer-inputs"] == 42 * 2 * 2560 * 256 + 42 * 256 * 2560


def test_states_are_of_a_sequence_and_growing_caches_of_a_token():
    row = answer("kv", "qwen3-next-80b-a3b-instruct", "--context", "1000", "-tp", "2")
    state, conv = 36 * 32 * 128 * 128 * 4, 36 * 3 * (2 * 16 * 128 + 32 * 128) * 2
    assert row["state_bytes_per_sequence"] == state + conv == 2 * row["state_bytes_per_sequence_per_chip"]
    assert row["kv_bytes_per_token"] == 12 * 2 * 2 * 256 * 2
    narrow = answer("kv", "qwen3-next-80b-a3b-instruct", "--context", "1000", "--state-dtype", "bf16")
    assert narrow["state_bytes_per_sequence"] == state / 2 + conv


def test_index_keys_are_a_cache_of_their_own():
    row = answer("kv", "deepseek-v3.2", "--context", "1000", "--kv-cache-dtype", "fp8")
    assert {(one["name"], one["dtype"], one["bytes_per_token"]) for one in row["caches"]} == {
        ("latent", "fp8", 61 * 656),
        ("index", "fp8-g128", 61 * 132),
    }


def test_images_that_are_seen_across_are_kept_beside_the_context():
    bare, shown = (answer("kv", VISION, "--context", "1000", *more) for more in ((), ("--images", "2")))
    assert (bare["image_tokens"], shown["image_tokens"]) == (0, 2 * 4 * 1601)
    assert bare["kv_bytes_per_sequence"] == 1000 * bare["kv_bytes_per_token"] == 1000 * 32 * 2 * 8 * 128 * 2
    assert shown["kv_bytes_per_sequence"] - bare["kv_bytes_per_sequence"] == 2 * 4 * 1601 * 8 * 2 * 8 * 128 * 2
    assert [one["kind"] for one in shown["caches"]] == ["grows", "images"]
    assert "each image token" in inferometer("kv", VISION).out


def test_images_of_an_extend_come_with_its_tokens():
    words = ("ops", VISION, "--phase", "extend", "--isl", "100", "--context", "1000")
    bare, shown = answer(*words), answer(*words, "--images", "1")
    assert "tower" not in {op["part"] for op in bare["ops"]}
    assert "tower" in {op["part"] for op in shown["ops"]}
    assert bare["kv_length"] == shown["kv_length"] == 1100
    inside = answer("ops", "qwen3-vl-2b-instruct", *words[2:], "--images", "1")
    assert inside["kv_length"] > 1100
    assert inside["new_tokens"] == inside["kv_length"] - 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("kv", "qwen3-next-80b-a3b-instruct", "--images", "1"), "tokens of its context"),
        (("kv", VISION, "--image-size", "10x10"), "add --images"),
        (("kv", "qwen3-next-80b-a3b-instruct", "--state-dtype", "fp8"), "recurrent state"),
        (("ops", VISION, "--images", "1", "--context", "10"), "leave one of them out"),
    ],
)
def test_what_cannot_be_is_one_line(words, said):
    assert said in refused(*words)
