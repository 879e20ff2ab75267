"""Images of a request from the command line: prompt, memory, operations, and what is refused."""

import pytest
from cli.command import inferometer, refused

from inferometer import estimate

VL = ("explain", "qwen3-vl-8b-instruct", "h100", "1x1")
PREFILL = (*VL, "--phase", "prefill", "--isl", "1000", "--batch", "2")


def test_images_are_in_the_row():
    """1280 x 736 pixels are 40 x 23 tokens of 32 x 32 pixels."""
    (row,) = inferometer(*PREFILL, "--images", "3", "--image-size", "1280x736", "--json").rows
    work = row["workload"]
    assert (work["isl"], work["images"], work["image_size"]) == (1000, 3, [1280, 736])
    assert work["image_tokens"] == 3 * 40 * 23
    assert "image_limits" in work["assumed"]
    assert "image_size" not in work["assumed"]
    assert row["tok_per_s"] == pytest.approx(2 * (1000 + 3 * 40 * 23) / row["ttft_s"])
    assert {op["segment"] for op in row["ops"]} >= {"vision.patches", "vision.layer", "vision.merger"}


def test_text_alone_has_no_images_and_no_tower_ops():
    (row,) = inferometer(*PREFILL, "--json").rows
    assert (row["workload"]["images"], row["workload"]["image_size"], row["workload"]["image_tokens"]) == (0, [], 0)
    assert not [op for op in row["ops"] if op["segment"].startswith("vision")]


def test_the_page_says_what_images_are_and_what_was_assumed_of_them():
    page = inferometer(*PREFILL, "--images", "1").out
    words = " ".join(page.split())
    assert "1 of 1024x1024 a request, 4,096 patches and 1,024 tokens each" in words
    assert "prompt 2,024 = 1,000 of text + 1,024" in words
    assert "image size 1024x1024" in words
    assert "image limits 65536 to 16777216 pixels" in words
    assert "weights, 1.07 GiB of them towers" in words
    assert "vision.layer x 27" in words


def test_a_decode_starts_where_text_and_images_end():
    page = " ".join(inferometer(*VL, "--images", "2", "--isl", "1000", "--osl", "100").out.split())
    assert "decode (mean over contexts" not in page or "contexts 3048..3148" in page
    (after,) = inferometer(*VL, "--images", "2", "--isl", "1000", "--osl", "100", "--batch", "4", "--json").rows
    (text,) = inferometer(*VL, "--isl", "3048", "--osl", "100", "--batch", "4", "--json").rows
    assert after["tpot_s"] == text["tpot_s"]
    assert after["id"] != text["id"]


def test_a_search_s_winner_with_images_is_explained_as_it_was_found():
    words = ("llama-4-scout-17b-16e-instruct", "h200", "4x2", "--phase", "prefill", "--images", "2")
    (row,) = inferometer("search", *words, "--top", "1", "--json").rows
    sizes = ",".join(f"{role.upper()}={size}" for role, size in row["sizes"].items())
    (again,) = inferometer("explain", *words, "--sizes", sizes, "--batch", str(row["batch"]), "--json").rows
    del again["ops"], again["flags"], again["basis_shares"]
    assert again == row | {"tied": None}


def test_images_of_one_side_of_a_comparison():
    done = inferometer(*PREFILL, "--against", "--images 2 --image-size 640x480", "--json")
    (row,) = done.rows
    assert [one["workload"]["images"] for one in (row["a"], row["b"])] == [0, 2]
    assert next(term for term in row["terms"] if term["term"] == "towers")["b_s"] > 0


def test_the_least_chips_hold_the_tower_too():
    """Llama 4 Scout in bf16 is 2 x 108,225,039,360 bytes with its tower."""
    (with_tower,) = inferometer("chips", "h100", "--model", "llama-4-scout-17b-16e-instruct", "--json").rows
    room = 0.9 * with_tower["memory_bytes"]
    assert with_tower["least_chips"] == -(-2 * 108_225_039_360 // room)


def test_the_python_face_takes_them():
    answer = estimate("gemma-3-27b-it", "h200 1x1", phase="prefill", isl=500, images=4, batch=1)
    assert answer.problem.workload.image_tokens == 4 * 256


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--images", "0"), "--images 0: must be from 1 to"),
        (("--images", "-2"), "--images -2"),
        (("--image-size", "10x10"), "--image-size 10x10: of no images; add --images N"),
        (("--images", "1", "--image-size", "10"), "give WIDTHxHEIGHT"),
        (("--images", "1", "--image-size", "0x10"), "give WIDTHxHEIGHT"),
        (("--images", "1", "--image-size", "9999999x10"), "from 1 to 100000 pixels"),
        (("--images", "1", "--image-size", "1000x2"), "one side is more than 200 times the other"),
        (("--images", "1", "--context", "100"), "--images add to --isl"),
    ],
)
def test_images_that_make_no_sense_are_refused(words, said):
    assert said in refused(*VL, *words)


@pytest.mark.parametrize("verb", ["explain", "search"])
def test_a_model_without_a_tower_takes_no_images(verb):
    said = refused(verb, "llama-3.1-8b", "h100", "1x1", "--images", "1")
    assert "--images: meta-llama-3.1-8b has no vision tower whose images are understood" in said
