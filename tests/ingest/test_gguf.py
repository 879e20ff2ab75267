"""GGUF files: what they say becomes a model, and what is no such file is one clear line."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest.gguf_maker import header, llama, mixture

from inferometer.blocks.params import all_tensors, count_params
from inferometer.errors import InferometerError
from inferometer.ingest.gguf import load_gguf
from inferometer.ingest.gguf_file import MOST_TENSORS, TYPES, read_header
from inferometer.memory.weights import layer_caches
from inferometer.specs.formats import GGML_BLOCKS, find_format
from inferometer.specs.mixers import Attention, Mla


@pytest.fixture
def write(tmp_path):
    def writer(metadata, tensors, name="model.Q4_K_M.gguf", **more):
        path = tmp_path / name
        path.write_bytes(header(metadata, tensors, **more))
        return path

    return writer


def bytes_of(shape, form):
    """Return the bytes of one tensor by its blocks."""
    if form in GGML_BLOCKS:
        _, elements, size = GGML_BLOCKS[form]
        return math.prod(shape) // elements * size
    return math.prod(shape) * (4 if form == "fp32" else 2)


@pytest.mark.parametrize("tied", [False, True])
def test_every_tensor_of_a_llama_is_counted_in_its_format(write, tied):
    metadata, tensors = llama(tied=tied)
    model = load_gguf(write(metadata, tensors))
    matrices = {name: (shape, form) for name, (shape, form) in tensors.items() if len(shape) > 1}
    found = sorted((t.params, t.format) for t, n in all_tensors(model) for _ in range(n) if t.cols > 1)
    assert found == sorted((math.prod(shape), form) for shape, form in matrices.values())
    expected = sum(bytes_of(shape, form) for shape, form in matrices.values())
    norms = sum(shape[0] for shape, form in tensors.values() if len(shape) == 1)
    assert count_params(model).checkpoint_bytes == expected + 2 * norms
    assert (model.hidden, model.vocab, model.max_context, model.tied) == (512, 1000, 8192, tied)
    assert model.mixers[0] == Attention(
        heads=8, kv_heads=2, head_dim=64, formats={"q": "q4_k", "k": "q4_k", "v": "q6_k", "o": "q4_k"}
    )
    assert model.name == "model.Q4_K_M"
    assert "GiB of tensors in the file" in model.assumed[0]


@pytest.mark.parametrize("apart", [False, True])
def test_latent_attention_with_routed_and_shared_experts(write, apart):
    metadata, tensors = mixture(apart=apart)
    model = load_gguf(write(metadata, tensors))
    (mla,), (moe,) = model.mixers, model.ffns
    assert isinstance(mla, Mla)
    assert (mla.kv_rank, mla.rope_dim, mla.nope_dim, mla.v_dim, mla.split_up) == (256, 64, 128, 128, apart)
    assert (moe.experts, moe.top_k, moe.width, moe.shared_width) == (8, 2, 256, 512)
    params = sum(math.prod(shape) for shape, _ in tensors.values())
    assert count_params(model).total == params
    (cache,) = layer_caches(model, model.layers[0], expanded=True)
    assert cache.heads * cache.width == (256 + 64 if apart else 4 * (128 + 64 + 128))


def test_windows_are_applied_where_the_file_says_which_layers_have_them(write):
    window = {"attention.sliding_window": 512}
    metadata, tensors = llama(layers=4, **window)
    model = load_gguf(write(metadata, tensors))
    assert {mixer.window for mixer in model.mixers} == {None}
    assert "all are counted at full length" in model.assumed[-1]
    metadata, tensors = llama(layers=4, **window, **{"attention.sliding_window_pattern": [True, True, False, True]})
    model = load_gguf(write(metadata, tensors))
    assert [model.mixers[layer.mixer].window for layer in model.layers] == [512, 512, None, 512]


def test_parts_are_read_together(write):
    metadata, tensors = llama()
    split = dict(list(tensors.items())[:6]), dict(list(tensors.items())[6:])
    first = write(metadata | {"split.count": 2}, split[0], "m-00001-of-00002.gguf")
    with pytest.raises(InferometerError, match="m-00002-of-00002"):
        load_gguf(first)
    write({"split.count": 2}, split[1], "m-00002-of-00002.gguf")
    whole = load_gguf(write(metadata, tensors))
    assert count_params(load_gguf(first)).checkpoint_bytes == count_params(whole).checkpoint_bytes


def refused(path):
    with pytest.raises(InferometerError) as caught:
        load_gguf(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_gguf_file_is_one_line(write, tmp_path):
    metadata, tensors = llama()
    assert "is no GGUF file" in refused(write(metadata, tensors, magic=b"GGML"))
    assert "GGUF version 1" in refused(write(metadata, tensors, version=1))
    assert "No such file" in refused(tmp_path / "none.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(header(metadata, tensors)[:-20])
    assert "ends inside its header" in refused(cut)
    cut.write_bytes(header(metadata, tensors)[:8] + (MOST_TENSORS + 1).to_bytes(8, "little") * 2)
    assert "tensors; allowed" in refused(cut)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"blk.0.ssm_in.weight": ((512, 512), "q4_k")}, "tensor blk.0.ssm_in.weight of llama is not understood"),
        ({"blk.7.attn_q.weight": ((512, 512), "q4_k")}, "is not understood"),
        ({"blk.0.attn_q.weight": ((512, 500), "q4_k")}, "500 rows of attn_q are not of 8 heads"),
        ({"blk.0.attn_q.weight": ((512, 512), 99)}, "unknown type 99"),
        ({"blk.0.ffn_up.weight": ((512, 512), "q4_k")}, "ffn_up of layer 0 has 512 rows"),
        ({"token_embd.weight": ((512,), "q4_k")}, "allowed: a matrix"),
    ],
)
def test_tensors_that_contradict_are_refused(write, change, said):
    metadata, tensors = llama()
    assert said in refused(write(metadata, tensors | change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"general.architecture": 3}, "general.architecture"),
        ({"llama.block_count": 0}, "block_count is 0"),
        ({"llama.block_count": "two"}, "block_count is two"),
        ({"llama.attention.head_count": 0}, "not of 0 heads"),
        ({"split.count": 3}, "is a part of 3"),
    ],
)
def test_metadata_that_contradicts_is_refused(write, change, said):
    metadata, tensors = llama()
    assert said in refused(write(metadata | change, tensors))


@given(st.data())
def test_any_damage_is_a_model_or_one_line(tmp_path_factory, data):
    raw = bytearray(header(*data.draw(st.sampled_from([llama(vocab=20), mixture()]))))
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("gguf") / "damaged.gguf"
    path.write_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw))
    assert "\n" not in said(path)


def said(path):
    """Return what is wrong with a file; empty where nothing is."""
    try:
        load_gguf(path)
    except InferometerError as error:
        return str(error)
    return ""


def test_every_type_is_a_format():
    for name in TYPES.values():
        assert find_format(name).name == name


def test_long_arrays_are_passed_over(write):
    metadata, tensors = llama(vocab=5000)
    assert "tokenizer.ggml.tokens" not in read_header(write(metadata, tensors)).metadata
