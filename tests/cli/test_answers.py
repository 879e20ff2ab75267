"""Verbs end to end, as people type them."""

import json
import subprocess
import sys

import pytest
from cli.command import inferometer, refused

from inferometer.catalog.loader import preset_config


@pytest.mark.parametrize(
    "words",
    [
        "models",
        "chips --model deepseek-v3",
        "chips h200",
        "search deepseek-v3 h200 8x2 --slo 20",
        "search deepseek-v3 h200,b200 8x2 --slo tpot=40ms",
        "top llama-3.1-70b b200 8x1 --phase prefill --top 3",
        "top llama-3.1-8b p5.48xlarge",
        "explain deepseek-v3 gb200-nvl72 32x1 --sizes DPA=16,TP=2,EP=32 --batch 512",
        "explain llama-3.1-8b h100",
        "explain deepseek-v3 h200 8x2 --sizes DPA=8 --against=b200",
        "explain deepseek-v3 h200 8x2 --sizes DPA=8 --placements",
        "params deepseek-v3",
    ],
)
@pytest.mark.parametrize("width", ["80", "110"])
def test_tables_keep_to_the_width(words, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    done = inferometer(*words.split())
    assert done.status == 0, done.err
    command = ("  inferometer explain", "vllm serve", "python -m sglang")
    long = [x for x in done.out.splitlines() if len(x) > int(width) and not x.startswith(command)]
    assert not long
    assert not [line for line in done.out.splitlines() if line != line.rstrip()]


def test_search_prints_the_command_that_explains_its_winner():
    done = inferometer("search", "deepseek-v3", "h200", "8x2", "-dp", "8", "--enable-expert-parallel", "--isl", "2000")
    command = done.out.splitlines()[-1].split()
    assert command[:2] == ["inferometer", "explain"]
    assert inferometer(*command[1:]).status == 0


def explain_line(done):
    """The command a search prints, its words without the program's."""
    return done.out.splitlines()[-1].split()[1:]


def test_the_command_names_the_machine_as_typed(tmp_path):
    box = tmp_path / "box.toml"
    box.write_text(
        'id = "box"\nchip = "h100-sxm"\n[[levels]]\nname = "nvlink"\ngeometry = "switch"\nmax_size = 8\n'
        'bytes_per_s = "900 GB/s"\nlatency_s = "1 us"\n'
    )
    for chip in (f"{box},l40s", "a3-highgpu-8g,l40s", "l40s,p5.48xlarge"):
        words = ("search", "llama-3.1-70b", chip, "8", "--top", "1")
        (row,) = inferometer(*words, "--json").rows
        command = explain_line(inferometer(*words))
        assert command[2] in chip.split(",")
        (again,) = inferometer(*command, "--json").rows
        assert (again["machine"], again["step_s"]) == (row["machine"], row["step_s"])


def test_machines_of_one_chip_are_told_apart():
    words = ("search", "llama-3.1-70b", "a3-highgpu-8g,p5.48xlarge,h100", "8x2", "--top", "40")
    done = inferometer(*words)
    heads = [line for line in done.out.splitlines() if line.startswith("h100-sxm ")]
    assert [line.split(" (")[0] for line in heads] == [
        "h100-sxm a3-highgpu-8g 8x2",
        "h100-sxm p5.48xlarge 8x2",
        "h100-sxm 8x2",
    ]
    rows = inferometer(*words, "--json").rows
    assert {row["machine"] for row in rows} == {"a3-highgpu-8g 8x2", "p5.48xlarge 8x2", "8x2"}
    assert {row["price_source"].split()[0] for row in rows} == {"GCP", "AWS", "Nebius"}
    table = done.out.partition("─\n")[2].partition("\n\n")[0]
    listed = [line.split()[1] for line in table.splitlines() if line[:3].strip(" ~").isdecimal()]
    assert set(listed) == {"a3-highgpu-8g", "p5.48xlarge", "h100-sxm"}


def test_a_chip_without_the_price_asked_for_has_none():
    done = inferometer("search", "llama-3.1-8b", "h200,mi300x", "8x1", "--provider", "AWS", "--top", "40", "--json")
    by_chip = {row["chip"]: row for row in done.rows}
    assert by_chip["h200-sxm"]["price_source"].startswith("AWS")
    assert by_chip["mi300x"]["price_source"] == "none"
    assert "no-price" in {note["name"] for note in by_chip["mi300x"]["diagnostics"]}
    for words in (("--provider", "AWS"), ("--tier", "spot"), ("--region", "us-east-1")):
        rows = inferometer("chips", *words, "--json").rows
        assert {row["usd_per_chip_hour"] is None for row in rows} == {True, False}


def test_the_tiers_that_help_names_exist():
    assert "on-demand, spot, lowest-listed or marketplace" in " ".join(inferometer("chips", "--help").out.split())
    for tier in ("on-demand", "spot", "lowest-listed", "marketplace"):
        assert inferometer("chips", "--tier", tier, "--json").status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--context 5000 --isl 100", "--isl not used"),
        ("--phase prefill --osl 100", "--osl not used"),
    ],
)
def test_what_changes_nothing_is_said(words, said):
    for verb in ("search", "explain"):
        done = inferometer(verb, "llama-3.1-8b", "h100", *words.split(), "--json")
        assert done.status == 0
        assert said in done.err
        assert done.err.count("\n") == 1


def test_the_nearest_batch_that_fits_is_printed():
    done = inferometer("search", "llama-3.1-8b", "h200", "1x1", "--batch", "100", "--json")
    (row,) = done.rows
    assert done.status == 1
    assert row["feasible"]
    assert row["batch"] == row["resident_sequences"] < 100
    assert f"h200-sxm 1x1: the most that fits is --batch-size {row['batch']}" in done.err
    explained = inferometer("explain", "llama-3.1-8b", "h200", "1x1", "--batch", "100")
    assert explained.status == 1
    assert f"the most that fits is --batch-size {row['batch']}" in explained.err
    assert inferometer("explain", "llama-3.1-8b", "h200", "1x1", "--batch", str(row["batch"])).status == 0


def test_a_sharding_that_is_not_legal_is_a_row_with_its_reason():
    done = inferometer("search", "qwen2-0.5b", "h200", "8x1", "-tp", "8", "--json")
    assert done.status == 1
    (row,) = done.rows
    assert row["sizes"]["tp"] == 8
    assert not row["feasible"]
    assert "heads-not-divisible: TP must divide the 14 attention heads" in row["reasons"]


def test_how_many_chips_would_hold_it_is_said():
    done = inferometer("search", "llama-3.1-405b", "h100", "2x1")
    assert done.status == 1
    assert done.err.endswith("16 chips would hold it: 8x2\n")
    assert inferometer("search", "llama-3.1-405b", "h100", "8x2").status == 0


def test_a_band_that_published_runs_leave_is_noted():
    (row,) = inferometer("explain", "llama-3.1-8b", "mi300x", "--backend", "roofline", "--json").rows
    (note,) = [one for one in row["diagnostics"] if one["name"] == "band-too-narrow"]
    assert "x16.3" in note["text"]
    (other,) = inferometer("explain", "llama-3.1-8b", "h100", "--backend", "roofline", "--json").rows
    assert "band-too-narrow" not in {one["name"] for one in other["diagnostics"]}


@pytest.mark.parametrize("width", ["40", "60"])
@pytest.mark.parametrize(
    "words",
    [
        "models",
        "chips --model deepseek-v3",
        "search deepseek-v3 h200,b200 8x2",
        "explain deepseek-v3 gb200-nvl72 32x1 --sizes DPA=16,TP=2,EP=32 --batch 512",
        "params deepseek-v3",
    ],
)
def test_narrow_tables_lose_columns_and_cut_no_number(words, width, monkeypatch):
    wide = inferometer(*words.split()).out
    monkeypatch.setenv("COLUMNS", width)
    done = inferometer(*words.split())
    assert done.status == 0
    assert "…" not in done.out
    assert "too narrow for: " in done.out or not words.startswith(("chips", "explain"))
    assert "too narrow for" not in wide


def test_defaults_are_said():
    done = inferometer("search", "deepseek-v3", "h200", "8x2")
    said = " ".join(done.out.split())
    text = (
        "assumed: ISL 8192, OSL 1024, phase decode (mean over contexts 8192..9216), engine ideal, backend calibrated,"
    )
    assert f"{text} scheduler streams, reserve 10% of memory, KV bf16, order by tok_per_s_per_chip" in said
    chosen = inferometer(
        "search", "deepseek-v3", "h200", "8x2", "--isl", "1000", "--engine", "vllm", "--phase", "decode"
    )
    assert "assumed: OSL 1024, backend calibrated, scheduler streams," in chosen.out


def test_stdout_is_the_same_every_time():
    words = ("search", "mixtral-8x7b", "h100", "8x1")
    assert inferometer(*words).out == inferometer(*words).out


def test_search_reports_on_stderr_only():
    quiet = inferometer("search", "mixtral-8x7b", "h100", "8x1", "--json")
    loud = inferometer("search", "mixtral-8x7b", "h100", "8x1", "--json", "--progress")
    assert quiet.out == loud.out
    assert not quiet.err
    assert "candidates priced" in loud.err


def test_several_chips_are_ranked_together():
    rows = inferometer("search", "llama-3.1-70b", "h100,b200", "8x1", "--top", "6", "--json").rows
    assert len(rows) == 6
    assert [r["tok_per_s_per_chip"] for r in rows] == sorted((r["tok_per_s_per_chip"] for r in rows), reverse=True)
    dearer = ("search", "llama-3.1-70b", "h100,b200", "8x1", "--top", "20", "--per-dollar", "--json")
    costs = [row["decode_only_usd_per_mtok_output"] for row in inferometer(*dearer).rows]
    assert costs == sorted(costs)


def test_a_price_given_is_the_price():
    (row,) = inferometer("top", "llama-3.1-8b", "h100", "--usd-per-chip-hour", "2", "--top", "1", "--json").rows
    assert row["usd_per_hour"] == 2
    assert row["price_source"] == "given"
    assert row["decode_only_usd_per_mtok_output"] == pytest.approx(2 / (3600 * row["tok_per_s"]) * 1e6)


def test_slo_is_kept():
    rows = inferometer("search", "deepseek-v3", "h200", "8x2", "--slo", "60", "--json").rows
    assert rows
    assert all(row["tok_per_s_per_user"] >= 60 for row in rows)


def test_what_misses_its_slo_is_not_feasible():
    base = ("explain", "llama-3.1-8b", "h100", "--batch", "20", "--slo")
    assert inferometer(*base, "tpot=1s").status == 0
    missed = inferometer(*base, "tpot=1us")
    assert missed.status == 1
    assert "misses-slo" in missed.err


def test_by_ttft_means_prefill():
    (row,) = inferometer("top", "llama-3.1-8b", "h100", "--by", "ttft", "--top", "1", "--json").rows
    assert row["phase"] == "prefill"
    assert row["ttft_s"] == row["step_s"]
    assert row["tpot_s"] is None


def test_pinned_sizes_are_kept_and_the_rest_is_searched():
    rows = inferometer("search", "deepseek-v3", "h200", "8x2", "--sizes", "TP=2", "--top", "50", "--json").rows
    assert len(rows) > 1
    assert {row["sizes"]["tp"] for row in rows} == {2}


def test_machine_may_be_left_out():
    (row,) = inferometer("explain", "deepseek-v3", "h200", "--sizes", "DPA=8,TP=2", "--json").rows
    assert (row["n_chips"], row["machine"]) == (16, "8x2")
    (row,) = inferometer("explain", "llama-3.1-8b", "p5.48xlarge", "--json").rows
    assert (row["n_chips"], row["chip"]) == (8, "h100-sxm")


def test_chips_count_what_holds_a_model():
    rows = {row["chip"]: row for row in inferometer("chips", "--model", "deepseek-v3", "--json").rows}
    (model,) = inferometer("params", "deepseek-v3", "--json").rows
    for row in rows.values():
        room = 0.9 * row["memory_bytes"]
        assert row["least_chips"] * room >= model["checkpoint_bytes"] > (row["least_chips"] - 1) * room


def test_the_token_predictor_is_one_more_layer_a_projection_of_two_states_and_three_norms():
    """DeepSeek-V3: an MoE layer (58 of 61 are), eh_proj 2H x H, and enorm, hnorm and the head's norm, H each."""
    (model,) = inferometer("params", "deepseek-v3", "--json").rows
    kinds, hidden = model["by_kind"], 7168
    ffn = (kinds["router"] + kinds["experts"] + kinds["shared-experts"]) // 58
    mixer = kinds["attention"] // 61 + 2 * hidden + 1536 + 512  # with its norms: two of H, of q's and of kv's latent
    assert model["mtp_params"] == ffn + mixer + 2 * hidden * hidden + 3 * hidden


def test_a_user_s_own_files_work(tmp_path):
    chip = tmp_path / "mine.toml"
    chip.write_text(
        'id = "mine"\nmemory_bytes = "96 GiB"\nmemory_bytes_per_s = "3 TB/s"\n'
        'peak_flops_per_s = {bf16 = "500 TFLOP/s"}\n'
    )
    done = inferometer("explain", "llama-3.1-8b", str(chip), "--json")
    assert done.status == 0, done.err
    assert done.rows[0]["chip"] == "mine"
    assert done.rows[0]["usd_per_hour"] is None


def test_a_config_file_and_its_directory_are_one_model(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    config = folder / "config.json"
    config.write_text(json.dumps(preset_config("llama-3.1-8b").config))
    (by_file,) = inferometer("params", str(config), "--json").rows
    (by_folder,) = inferometer("params", str(folder), "--json").rows
    assert by_file["model"] == by_folder["model"] == "my-model"
    assert by_file["total_params"] == 8_030_261_248
    assert "my-model" in inferometer("search", str(config), "tpu-v7", "2x2x1", "--isl", "8192", "--osl", "1024").out


def test_hub_ids_find_presets_first():
    (row,) = inferometer("params", "deepseek-ai/DeepSeek-V3", "--json").rows
    assert row["model"] == "deepseek-v3"


def test_a_hub_id_without_the_library_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install huggingface_hub" in refused("params", "nobody/nothing")


def test_a_broken_pipe_is_no_noise():
    script = "from inferometer.cli.main import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", script, "models", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
        status = process.wait()
    assert not said
    assert status == 0


def test_an_interrupt_ends_with_130(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("inferometer.cli.lists.model_row", interrupted)
    done = inferometer("models")
    assert done.status == 130
    assert "Traceback" not in done.err


@pytest.mark.parametrize("verb", ["search", "explain", "params", "chips", "models", "check", "validate", "top"])
def test_help_of_a_verb_loads_nothing_heavy(verb):
    script = (
        "import sys\nfrom inferometer.cli.main import main\n"
        f"main([{verb!r}, '--help'])\nprint([m for m in ('numpy', 'msgspec', 'rich.table') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "words",
    [
        "search llama-3.1-8b h100",
        "explain llama-3.1-8b h100 --against=b200",
        "explain llama-3.1-8b h100 --placements",
        "chips h100",
    ],
)
def test_json_needs_no_rich(words):
    script = (
        "import sys\nfrom inferometer.cli.main import main\n"
        f"main({words.split()!r} + ['--json'])\nprint([m for m in sys.modules if m.startswith('rich')])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_one_sharding_is_counted_as_one_and_a_price_names_its_tier_once():
    """A marketplace's row has `marketplace` as instance and as tier."""
    done = inferometer("search", "qwen3-4b", "rtx4090", "1x1", "--batch-size", "1", "--table")
    said = " ".join((done.out + done.err).split())
    assert "1 sharding, 1 candidate priced" in said
    assert "(Vast.ai marketplace any 2026-03)" in said
