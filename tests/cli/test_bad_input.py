"""Bad input: status 2 and one line that says what was wrong and what is allowed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.command import inferometer, refused

from inferometer.catalog.loader import preset_config

BASE = ("explain", "llama-3.1-8b", "h100", "2x1")
MOE = ("explain", "deepseek-v3", "h200", "8x2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing command"),
        (("serch",), "search"),
        (("search",), "MODEL"),
        (("search", "deepseek-v3"), "CHIP"),
        (("search", "deepseek-v33", "h200"), "deepseek-v3"),
        (("search", "llama", "h200"), "choose one of"),
        (("search", "", "h200"), "MODEL is empty"),
        (("search", "model.gguf", "h200"), "model.gguf: No such file"),
        (("search", "~0", "h200"), "nobody"),
        (("search", "./nothing/config.json", "h200"), "does not exist"),
        (("search", "llama-3.1-8b", "h210"), "did you mean"),
        (("search", "llama-3.1-8b", "a100"), "ambiguous"),
        (("search", "llama-3.1-8b", ""), "CHIP"),
        (("search", "llama-3.1-8b", "h100,,b200"), "CHIP"),
        (("search", "llama-3.1-8b", "h100", "0x2"), "whole number"),
        (("search", "llama-3.1-8b", "h100", "9x1"), "8"),
        (("search", "llama-3.1-8b", "h100", "-1"), "No such option"),
        ((*BASE, "--nonsense"), "--nonsense"),
        ((*BASE, "--json", "--table"), "not both"),
        ((*BASE, "--batch", "0"), "--batch-size 0"),
        ((*BASE, "--batch", "-3"), "--batch-size -3"),
        ((*BASE, "--batch", "1e30"), "--batch-size"),
        ((*BASE, "--batch", "1" + "0" * 40), "--batch-size"),
        ((*BASE, "--isl", "-5"), "--isl -5"),
        ((*BASE, "--isl", "nan"), "--isl"),
        ((*BASE, "--osl", "0"), "--osl 0"),
        ((*BASE, "--context", "0"), "--context 0"),
        ((*BASE, "--phase", "training"), "prefill"),
        ((*BASE, "--phase", "prefill", "--context", "5"), "--context"),
        ((*BASE, "--quant", "fp7"), "fp8"),
        ((*BASE, "--kv-cache-dtype", "mxfp4"), "KV cache"),
        ((*BASE, "--gpu-memory-utilization", "nan"), "above 0"),
        ((*BASE, "--gpu-memory-utilization", "1.5"), "at most 1"),
        ((*BASE, "--reserve-bytes", "inf"), "--reserve-bytes"),
        ((*BASE, "--reserve-bytes", "1e30"), "leaves nothing"),
        ((*BASE, "--reserve-bytes", "1", "--mem-fraction", "0.5"), "not both"),
        ((*BASE, "--usd-per-chip-hour", "-1"), "price"),
        ((*BASE, "--usd-per-chip-hour", "nan"), "price"),
        ((*BASE, "--provider", "nobody"), "provider"),
        ((*BASE, "--engine", "vllm@9"), "vllm@0.24"),
        ((*BASE, "--backend", "oracle"), "roofline"),
        ((*BASE, "--scheduler", "psychic"), "overlap"),
        ((*BASE, "--overlap", "2"), "from 0 to 1"),
        ((*BASE, "--overlap", "0.5", "--scheduler", "dag"), "finds what overlaps"),
        ((*BASE, "--slo", "fast"), "--slo 20"),
        ((*BASE, "--slo", "0"), "--slo"),
        ((*BASE, "--slo", "nan"), "--slo"),
        ((*BASE, "--slo", "1e-320"), "--slo"),
        ((*BASE, "--slo", "tpot=50"), "unit"),
        ((*BASE, "--slo", "tpot=0ms"), "above 0"),
        ((*BASE, "--slo", "itl=5ms"), "ttft"),
        ((*BASE, "--slo", "ttft=2s"), "--phase prefill"),
        ((*BASE, "--slo", "20", "--phase", "prefill"), "ttft"),
        ((*BASE, "--sizes", "TP"), "ROLE=N"),
        ((*BASE, "--sizes", "XP=2"), "role"),
        ((*BASE, "--sizes", "TP=2,TP=2"), "twice"),
        ((*BASE, "--sizes", "TP=0"), "whole number"),
        ((*BASE, "--sizes", "TP=²"), "whole number"),
        ((*BASE, "--sizes", "TP=4"), "1 x 1 x 1 x 4 = 4, but the machine has 2 chips"),
        ((*BASE, "--sizes", "DPA=2"), "replicas as R"),
        ((*BASE, "--sizes", "TP=2,DCP=3"), "DCP=3 must divide TP=2"),
        ((*BASE, "--sizes", "R=3"), "does not divide"),
        ((*BASE, "--sizes", "TP=2", "-tp", "2"), "two spellings"),
        ((*BASE, "--enable-expert-parallel"), "dense"),
        ((*BASE, "-tp", "0"), "--tensor-parallel-size"),
        ((*BASE, "-tp", "x"), "--tensor-parallel-size"),
        ((*MOE, "--sizes", "DPA=3"), "does not divide the 16 chips"),
        ((*MOE, "--sizes", "EP=3"), "no ETP fits"),
        ((*MOE, "--sizes", "EP=4,ETP=2"), "4 x 2 = 8, but the machine has 16 chips"),
        ((*MOE, "--placement", "TP=nvlink"), "divide the 8 of nvlink"),
        ((*MOE, "--placement", "TP=warp:2"), "axis"),
        ((*MOE, "--placement", "R=nvlink:2"), "role"),
        ((*MOE, "--placement", "TP"), "ROLE=AXIS:N"),
        ((*MOE, "--placement", "TP=nvlink:2"), "no placement"),
        (("explain", "llama-3.1-8b", "h100,b200"), "explain takes one CHIP"),
        (("search", "llama-3.1-8b", "h100", "--top", "0"), "--top"),
        (("search", "llama-3.1-8b", "h100", "--by", "magic"), "tok_per_s_per_chip"),
        (("search", "llama-3.1-8b", "h100", "--by", "ttft", "--phase", "decode"), "--by ttft"),
        (("search", "llama-3.1-8b", "h100", "--by", "ttft", "--per-dollar"), "--per-dollar"),
        (("search", "llama-3.1-8b", "h100", "--by", "tok_per_s_per_user", "--phase", "prefill"), "decode"),
        (("search", "llama-3.1-8b", "h100", "8x1", "--sizes", "TP=3"), "no sharding with TP=3"),
        (("chips", "--quant", "fp8"), "--model"),
        (("chips", "--provider", "nobody"), "known: AWS"),
        ((*BASE, "--kv-cache-dtype", "int4"), "known: bf16, e4m3, e5m2, fp16, fp32, fp8, fp8_e5m2, int8, q4_0, q8_0"),
        ((*BASE, "--slo", "20", "--slo", "30"), "--slo is given twice"),
        ((*BASE, "--batch", "2", "--batch-size=3"), "--batch-size is given twice"),
        ((*BASE, "--scheduler", "serial", "--overlap", "0.9,0.5"), "overlaps nothing"),
        ((*BASE, "--scheduler", "streams", "--overlap", "0.9,0.5"), "hides no share"),
        ((*BASE, "--usd-per-chip-hour", "2", "--provider", "AWS"), "--provider"),
        (("explain", "llama-3.1-8b", "p5.48xlarge", "--provider", "Nebius"), "let by AWS"),
        (("explain", "llama-3.1-8b", "h100", "8x1", "--sizes", "TP=4"), "R=2 or PP=2 would take them all"),
        ((*MOE, "--sizes", "TP=4"), "R=4, PP=4 or DPA=4 would take them all"),
        (("search", "llama-3.1-70b", "h200", "8x1", "--sizes", "DPA=8"), "replicas as R"),
        (("search", "llama-3.1-8b", "h200,h200"), "twice"),
        (("search", "llama-3.1-8b", "h200,h200-sxm"), "twice"),
        (("search", "llama-3.1-8bb", "h200"), "did you mean 'llama-3.1-8b'"),
        (("validate", "--points", "/nowhere/points.csv"), "points.csv"),
        (("validate", "--class", "Z"), "class"),
    ],
)
def test_one_line(words, said):
    assert said in refused(*words)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"model_type": "llama"}',
        '{"model_type": "perceiver"}',
        "[" * 100_000,
        '{"model_type": "llama", "hidden_size": -1}',
        '{"model_type": "llama", "hidden_size": NaN}',
        "\x00\x01",
    ],
)
def test_a_bad_config_is_one_line(text, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(text)
    refused("params", str(config))


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads"])
@pytest.mark.parametrize("value", [None, 0, -1, 1e30, "many", [], True])
def test_a_bad_value_names_its_key(key, value, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(preset_config("llama-3.1-8b").config | {key: value}))
    assert key in refused("search", str(config), "h100")


@pytest.mark.parametrize("junk", ["\u202e", "🦙", "a\nb", "\ud800", "x" * 5000, "-", "--", "%s", "../../etc"])
def test_junk_is_one_line(junk):
    refused("search", junk, "h100")
    refused("search", "llama-3.1-8b", junk)
    assert inferometer("search", "llama-3.1-8b", "h100", junk).status in (0, 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_an_answer_that_cannot_be_written_is_one_line():
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-c", "from inferometer.cli.main import run; run()", "chips", "h100"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "inferometer: the answer cannot be written: No space left on device\n"
