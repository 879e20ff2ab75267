"""The verbs that price nothing: ops and kv, and params against files at hand."""

import json

import pytest
from cli.command import inferometer, refused

from inferometer.catalog.loader import preset_config

GIB = 2**30


def ops(*words):
    done = inferometer("ops", *words, "--json")
    assert done.status == 0, done.err
    (row,) = done.rows
    return row


def kv(*words):
    (row,) = inferometer("kv", *words, "--json").rows
    return row


@pytest.mark.parametrize(
    ("model", "decode", "prefill"),
    [
        ("qwen3-235b-a22b", 1_784_055_595_008, 197_430_019_620_864),
        ("deepseek-v3", 4_570_914_750_464, 334_368_312_131_584),
        ("llama-3.1-70b", 4_791_707_107_328, 582_748_632_776_704),
    ],
)
def test_flops_of_published_passes(model, decode, prefill):
    assert ops(model, "--batch", "32", "--context", "4096")["gemm_attention_flops"] == decode
    assert ops(model, "--phase", "prefill", "--isl", "4096")["gemm_attention_flops"] == prefill


def test_a_sharding_changes_a_chip_s_part_and_not_the_whole():
    words = ("deepseek-v3", "--batch", "32", "--context", "4096")
    whole, split = ops(*words), ops(*words, "-tp", "8", "-ep", "8")
    changed = {"n_chips", "sizes", "flops_per_chip", "bytes_per_chip", "ops"}
    assert {key for key in whole if whole[key] != split[key]} == changed
    assert whole["flops_per_chip"] == whole["total_flops"]
    assert whole["total_flops"] / 8 < split["flops_per_chip"] < whole["total_flops"]
    names = [op["name"] for op in split["ops"] if op["bytes_per_chip"].keys() != {"message"}]
    assert names == [op["name"] for op in whole["ops"]]
    assert split["bytes_per_chip"]["message"] > 0


def test_totals_are_the_sums_of_the_operations():
    row = ops("mixtral-8x7b", "--batch", "7", "--sizes", "TP=2,EP=2")
    times = [op["layers"] * op["share"] for op in row["ops"]]
    assert row["total_flops"] == pytest.approx(sum(op["flops"] * n for op, n in zip(row["ops"], times, strict=True)))
    moved = sum(sum(op["bytes"].values()) * n for op, n in zip(row["ops"], times, strict=True))
    assert row["total_bytes"] == pytest.approx(moved)
    assert row["total_bytes"] == pytest.approx(sum(row["bytes"].values()))
    assert sum(part["flops_share"] for part in row["parts"]) == pytest.approx(1)
    assert sum(part["bytes_share"] for part in row["parts"]) == pytest.approx(1)


def test_the_form_of_latent_attention_follows_the_phase_or_a_flag():
    names = {"absorbed": "q-absorb", "expanded": "kv_b"}
    for words, form in (
        ((), "absorbed"),
        (("--phase", "verify", "--draft-tokens", "2"), "absorbed"),
        (("--phase", "prefill"), "expanded"),
        (("--phase", "extend", "--context", "100"), "expanded"),
        (("--choice", "mla=expanded"), "expanded"),
    ):
        row = ops("deepseek-v3", *words)
        assert row["choices"] == {"residual": "replicated", "mla": form}
        assert names[form] in {op["name"] for op in row["ops"]}


def test_without_a_chip_types_are_those_that_are_stored():
    stored, widened = ops("deepseek-v3"), ops("deepseek-v3", "a100-80gb")
    (fp8,), (bf16,) = ([op["dtype"] for op in row["ops"] if op["name"] == "q_b"][:1] for row in (stored, widened))
    assert (fp8, bf16) == ("fp8", "bf16")
    assert (stored["chip"], widened["chip"]) == (None, "a100-80-sxm")
    assert any("as stored, no chip asked" in text for text in stored["assumed"])
    assert any("on a100-80-sxm" in text for text in widened["assumed"])


def test_shapes_are_real_numbers_of_a_chip():
    row = ops("llama-3.1-8b", "--batch", "4", "--context", "100", "-tp", "2")
    shapes = {op["name"]: op["shapes"] for op in row["ops"]}
    assert shapes["qkv"] == "[4, 4096] x [3072, 4096] -> [4, 3072]"
    assert shapes["attention-core"] == "q [4, 1, 16, 128] kv [4, 100, 4, 256]"
    assert shapes["all-reduce(tp)"] == "tp x 2"


def test_what_was_assumed_is_said_beside_the_page():
    done = inferometer("ops", "mixtral-8x7b")
    assert "routing uniform" in done.err
    assert "assumed" not in done.out
    assert "MHA" not in done.out
    assert "attention-core bf16" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ops", "deepseek-v3", "--choice", "mla=both"), "absorbed"),
        (("ops", "llama-3.1-8b", "-tp", "8", "-ep", "8"), "this one is dense"),
        (("ops", "deepseek-v3", "-tp", "8", "--sizes", "TP=8"), "two spellings"),
        (("ops", "llama-3.1-8b", "--sizes", "TP=64"), "tp-exceeds-heads"),
        (("ops", "llama-3.1-8b", "--phase", "extend"), "--context"),
        (("ops", "llama-3.1-8b", "--phase", "verify"), "--draft-tokens"),
        (("ops", "llama-3.1-8b", "--draft-tokens", "3"), "--phase verify"),
        (("ops", "llama-3.1-8b", "--phase", "verify", "--draft-tokens", "1000"), "0 to 128"),
        (("ops", "llama-3.1-8b", "--context", "0"), "from 1"),
        (("kv", "llama-3.1-8b", "--context", "0"), "from 1"),
        (("kv", "llama-3.1-8b", "--kv-cache-dtype", "fp7"), "fp8"),
        (("params", "llama-3.1-8b", "--by", "size"), "layer"),
        (("search", "llama-3.1-8b", "h100", "--phase", "extend", "--context", "9", "--slo", "20"), "ttft=2s"),
        (("search", "llama-3.1-8b", "h100", "--phase", "verify", "--draft-tokens", "1", "--by", "ttft"), "verify"),
    ],
)
def test_bad_input_is_one_line(words, said):
    assert said in refused(*words)


@pytest.mark.parametrize(
    ("model", "context", "gib"),
    [
        ("qwen3-0.6b", 40960, 4.375),
        ("deepseek-v3", 163840, 10.72),
        ("kimi-k2", 262144, 17.16),
        ("gemma-3-27b", 131072, 10.41),
    ],
)
def test_one_sequence_at_full_context(model, context, gib):
    assert kv(model, "--context", str(context))["kv_bytes_per_sequence"] / GIB == pytest.approx(gib, rel=1e-3)


def test_kv_of_a_windowed_model_and_of_a_chip():
    row = kv("gemma-3-27b", "--context", "131072", "-tp", "8")
    assert row["kv_bytes_per_token"] == 62 * 2 * 16 * 128 * 2
    assert row["window_bytes_per_sequence"] == 52 * 1024 * 2 * 16 * 128 * 2
    assert row["kv_bytes_per_sequence"] == row["window_bytes_per_sequence"] + 10 * 131072 * 2 * 16 * 128 * 2
    assert row["kv_bytes_per_sequence_per_chip"] == row["kv_bytes_per_sequence"] / 8
    assert [cache["kind"] for cache in row["caches"]] == ["window", "grows"]
    assert row["state_bytes_per_sequence"] == 0


def test_kv_in_another_format_and_over_context_ranks():
    plain, narrow = (kv("deepseek-v3", "--context", "4096", *more) for more in ((), ("--kv-cache-dtype", "fp8")))
    assert plain["kv_bytes_per_token"] == 61 * 576 * 2 == 2 * narrow["kv_bytes_per_token"]
    split = kv("deepseek-v3", "--context", "4096", "--sizes", "TP=8,DCP=4")
    assert split["kv_bytes_per_token_per_chip"] == plain["kv_bytes_per_token"] / 4


def header(tensors):
    """Return the bytes of a safetensors file of zeros."""
    sizes = {"BF16": 2, "F32": 4}
    table, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        size = sizes[dtype]
        for side in shape:
            size *= side
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


H, F, V = 64, 128, 100
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": H,
    "intermediate_size": F,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": V,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LAYER = {
    "self_attn.q_proj": [H, H],
    "self_attn.k_proj": [H // 2, H],
    "self_attn.v_proj": [H // 2, H],
    "self_attn.o_proj": [H, H],
    "mlp.gate_proj": [F, H],
    "mlp.up_proj": [F, H],
    "mlp.down_proj": [H, F],
    "input_layernorm": [H],
    "post_attention_layernorm": [H],
}
TENSORS = {
    "model.embed_tokens.weight": ("BF16", [V, H]),
    "model.norm.weight": ("BF16", [H]),
    "lm_head.weight": ("BF16", [V, H]),
    **{f"model.layers.{n}.{name}.weight": ("BF16", shape) for n in (0, 1) for name, shape in LAYER.items()},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


def params(folder, *words):
    done = inferometer("params", str(folder), *words, "--json")
    assert done.status == 0, done.err
    return done.rows[0]


def test_files_that_hold_what_the_config_says(folder):
    (folder / "model.safetensors").write_bytes(header(TENSORS))
    row = params(folder)
    assert row["files"]["files"] == 1
    assert row["files"]["tensors"] == len(TENSORS)
    assert row["files"]["difference_by_kind"] == {}
    assert (
        row["files"]["stored_bytes"]
        == row["files"]["derived_bytes"]
        == row["checkpoint_bytes"]
        == 2 * row["total_params"]
    )
    assert "the config says the same, to the byte" in inferometer("params", str(folder)).out


def test_files_that_hold_more_than_the_config_says(folder):
    more = TENSORS | {
        "model.layers.0.self_attn.q_proj.bias": ("BF16", [H]),
        "model.layers.2.self_attn.q_proj.weight": ("BF16", [H, H]),
        "model.norm.weight": ("F32", [H]),
    }
    (folder / "model.safetensors").write_bytes(header(more))
    files = params(folder)["files"]
    assert files["mtp_bytes"] == 2 * H * H
    assert files["difference_by_kind"] == {"attention": 2 * H, "norm": 2 * H}
    row = params(folder)
    assert row["checkpoint_bytes"] == files["derived_bytes"] + 4 * H
    assert f"differs by +{4 * H} bytes" in inferometer("params", str(folder)).out


def test_an_index_names_the_files_and_alone_says_the_total(folder):
    parts = [dict(list(TENSORS.items())[:5]), dict(list(TENSORS.items())[5:])]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    weights = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    index = {"metadata": {"total_size": 777}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    alone = params(folder)["files"]
    assert (alone["files"], alone["stored_bytes"], alone["bytes_by_kind"]) == (0, 777, {})
    for name, part in zip(names, parts, strict=True):
        (folder / name).write_bytes(header(part))
    (folder / "consolidated.safetensors").write_bytes(header(TENSORS))
    assert params(folder)["files"]["difference_by_kind"] == {}
    (folder / names[1]).unlink()
    assert "missing" in refused("params", str(folder))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no safetensors file"),
        (b"\xff" * 8, "no safetensors file"),
        ((5).to_bytes(8, "little") + b"{}", "no safetensors file"),
        ((2).to_bytes(8, "little") + b"{x", "not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "its header is []"),
        (header(TENSORS)[:-1], "cut off"),
        (header({"a": ("BF16", [2])}).replace(b"[2]", b"[3]"), "does not take"),
        (header({"a": ("BF16", [2])}).replace(b"[2]", b"[-]"), "not JSON"),
        (header({"a": ("BF16", [2])}).replace(b"shape", b"shapy"), "lacks"),
    ],
)
def test_a_damaged_file_is_one_line(folder, data, said):
    (folder / "model.safetensors").write_bytes(data)
    assert said in refused("params", str(folder))


def test_params_by_layer_and_format():
    (row,) = inferometer("params", "deepseek-v3", "--json").rows
    assert [(run["first"], run["last"], run["kind"]) for run in row["layers"]] == [
        (0, 2, "MLA, dense"),
        (3, 60, "MLA, MoE"),
    ]
    layers = sum((run["last"] - run["first"] + 1) * (run["mixer_params"] + run["ffn_params"]) for run in row["layers"])
    ends = 2 * 129280 * 7168 + 7168
    assert layers + ends == row["total_params"] == sum(row["by_dtype"].values())
    assert row["files"] is None
    assert "3-60" in inferometer("params", "deepseek-v3", "--by", "layer").out
    assert preset_config("deepseek-v3").config["first_k_dense_replace"] == 3
