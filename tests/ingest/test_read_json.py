"""A file that nobody vouches for is read, or refused in one line."""

import json
import math
import time

import pytest
from ingest.samples import TINY

from inferometer.errors import InferometerError
from inferometer.ingest.config import load_model_path
from inferometer.ingest.read_json import MAX_BYTES, read_json, show


def refusal(path, reader=read_json):
    with pytest.raises(InferometerError) as caught:
        reader(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(tmp_path, data, name="config.json"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_malformed_json_is_refused_with_line_and_column(tmp_path):
    assert "at line 2, column 8" in refusal(written(tmp_path, b'{\n  "a": ,\n}'))


def test_an_empty_file_is_refused(tmp_path):
    assert "line 1, column 1" in refusal(written(tmp_path, b""))


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_ten_thousand_deep_is_refused(tmp_path, opening):
    assert "nested too deep" in refusal(written(tmp_path, opening * 10_000))


@pytest.mark.parametrize("data", [b"[1, 2]", b'"text"', b"3", b"null", b"true", b"NaN"])
def test_json_that_is_no_object_is_refused(tmp_path, data):
    assert "where a JSON object is wanted" in refusal(written(tmp_path, data))


def test_a_file_of_500_mb_is_refused_unread(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(500 * 1024 * 1024)
    began = time.perf_counter()
    text = refusal(path)
    assert time.perf_counter() - began < 0.5
    assert str(MAX_BYTES) in text


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("{}".encode("utf-16"), "UTF-16"),
        ("{}".encode("utf-16-le"), "UTF-16"),
        (b"\x80\x02}", "bad byte at offset 0"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"GGUF\x03\x00", "GGUF"),
        (b"{\x00}", "binary"),
    ],
)
def test_what_is_not_utf8_is_named(tmp_path, data, what):
    assert what in refusal(written(tmp_path, data))


def test_a_byte_order_mark_and_duplicate_keys_are_fine(tmp_path):
    assert read_json(written(tmp_path, b'\xef\xbb\xbf{"a": 1, "a": 2}')) == {"a": 2}


def test_infinity_is_syntax_and_no_shape(tmp_path):
    path = written(tmp_path, json.dumps(TINY["llama"] | {"hidden_size": math.inf}).encode())
    assert read_json(path)["hidden_size"] == math.inf
    assert "hidden_size is Infinity; allowed: an integer" in refusal(path, load_model_path)


def test_an_integer_of_ten_thousand_digits_is_refused(tmp_path):
    assert "too long" in refusal(written(tmp_path, b'{"a": ' + b"9" * 10_000 + b"}"))


def test_missing_things_are_named(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none.json")
    assert "does not exist" in refusal(tmp_path / "none.json", load_model_path)
    assert "directory without a config.json" in refusal(tmp_path, load_model_path)
    assert "not a regular file" in refusal(tmp_path)
    refusal("a\0b", load_model_path)
    refusal(tmp_path / "two\nlines", load_model_path)
    refusal("", load_model_path)
    refusal("x" * 5000, load_model_path)


def test_a_directory_and_its_config_are_the_same_model(tmp_path):
    folder = tmp_path / "Tiny-Llama"
    folder.mkdir()
    path = written(folder, json.dumps(TINY["llama"]).encode())
    whole, single = load_model_path(folder), load_model_path(str(path))
    assert whole.name == single.name == "Tiny-Llama"
    assert whole.mixers == single.mixers
    assert whole.source == str(folder)


def test_a_sidecar_beside_the_config_is_read(tmp_path):
    written(tmp_path, json.dumps(TINY["llama"]).encode())
    sidecar = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    written(tmp_path, json.dumps(sidecar).encode(), "hf_quant_config.json")
    model = load_model_path(tmp_path)
    assert model.mixers[0].formats["q"] == "fp8"
    assert model.kv_format == "fp8"
    written(tmp_path, b"{", "hf_quant_config.json")
    assert "hf_quant_config.json is not JSON" in refusal(tmp_path, load_model_path)


def test_a_value_is_shown_short_whatever_it_is():
    deep = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, "x" * 10**6, 10**10_000, {"k": deep}, math.nan, [1] * 1000, object(), "a\nb"):
        assert len(show(value)) < 100
        assert "\n" not in show(value)
