"""Per-op breakdowns of five deployments, kept as files: a refactor moves none, a change of model shows its diff.

`python tests/golden/test_golden.py` writes them again. Floats may differ by platform in their last bits.
"""

import json
from math import isclose
from pathlib import Path

import pytest

from inferometer.catalog.loader import build_machine, preset_config
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.ingest.config import model_from_config
from inferometer.specs.deployment import Deployment, Sizes, Workload

HERE = Path(__file__).parent

CASES = {
    "llama-3.1-70b.h100.8x1.decode": (
        ("meta-llama-3.1-70b", "h100", "8x1"),
        Workload(context=4096),
        Deployment(sizes=Sizes(tp=8), batch=64),
    ),
    "deepseek-v3.h200.8x2.decode": (
        ("deepseek-v3", "h200", "8x2"),
        Workload(),
        Deployment(sizes=Sizes(dpa=8, tp=2, ep=16), batch=128),
    ),
    "glm-5.2-fp8.h200.8x2.decode": (
        ("glm-5.2-fp8", "h200", "8x2"),
        Workload(isl=1024, osl=4096),
        Deployment(sizes=Sizes(dpa=4, tp=4, ep=16), batch=64),
    ),
    "qwen3-30b-a3b.rtx-4090.4x1.decode": (
        ("qwen3-30b-a3b", "rtx-4090", "4x1"),
        Workload(isl=1024, osl=256),
        Deployment(sizes=Sizes(pp=2, tp=2, ep=2), batch=8),
    ),
    "deepseek-v3.tpu-v7.4x4x4.prefill": (
        ("deepseek-v3", "tpu-v7", "4x4x4"),
        Workload(isl=4096, phase="prefill"),
        Deployment(sizes=Sizes(dpa=16, tp=4, ep=64), batch=64),
    ),
}


def breakdown(name):
    """Return the estimate as rows of plain data, one an op."""
    (preset, chip, shape), workload, deployment = CASES[name]
    found = preset_config(preset)
    model = model_from_config(found.config, name=found.id, source=found.source, sidecar=found.quant_sidecar)
    problem = make_problem(model, build_machine(chip, shape), workload, backend="roofline", scheduler="overlap")
    got = estimate(problem, deployment)
    ops = {
        f"{i:02} {op.segment} {op.name}": {
            "kind": op.kind,
            "times": f"{op.layers} x {op.share:.6g}",
            "plan": op.plan,
            "dtype": op.dtype,
            "flops": op.flops,
            "replication": op.replication,
            **{f"{kind}_bytes": moved for kind, moved in op.traffic_bytes.items()},
            "alone_s": op.alone_s,
        }
        for i, op in enumerate(got.ops)
    }
    total = {
        "step_s": got.step_s,
        **{f"busy_{kind}_s": seconds for kind, seconds in got.busy_s.items()},
        "useful_flops": got.useful_flops,
        "weights_bytes": got.memory.weights_bytes,
        "kv_bytes_per_sequence": got.memory.kv_bytes_per_sequence,
        "residual": got.residual,
        "reasons": ", ".join(got.reasons),
    }
    return {"total": total, **ops}


def moved(old, new):
    """Return one line for each number that moved, op that came or op that went."""
    lines = [f"- {row}" for row in old if row not in new] + [f"+ {row}" for row in new if row not in old]
    for row in (row for row in new if row in old):
        for key in sorted({*old[row], *new[row]}):
            a, b = old[row].get(key), new[row].get(key)
            numbers = isinstance(a, int | float) and isinstance(b, int | float)
            if a == b or (numbers and isclose(a, b, rel_tol=1e-12)):
                continue
            change = f" ({b / a - 1:+.3%})" if numbers and a else ""
            lines.append(f"{row}: {key} {a} -> {b}{change}")
    return lines


def path_of(name):
    return HERE / f"{name}.json"


@pytest.mark.parametrize("name", CASES)
def test_no_number_moved(name):
    lines = moved(json.loads(path_of(name).read_text(encoding="utf-8")), breakdown(name))
    assert not lines, f"{name}; if this is meant, run {Path(__file__).name} as a script:\n" + "\n".join(lines)


def test_every_file_has_its_case():
    assert {path.stem for path in HERE.glob("*.json")} == set(CASES)


def test_the_diff_names_what_moved():
    old = {"a": {"flops": 100.0, "plan": "x"}, "gone": {}}
    new = {"a": {"flops": 110.0, "plan": "y"}, "came": {}}
    assert moved(old, new) == ["- gone", "+ came", "a: flops 100.0 -> 110.0 (+10.000%)", "a: plan x -> y"]
    assert moved(old, old) == []
    assert moved({"a": {"s": 1.0}}, {"a": {"s": 1.0 + 1e-15}}) == []


if __name__ == "__main__":
    for each in CASES:
        path_of(each).write_text(json.dumps(breakdown(each), indent=1) + "\n", encoding="utf-8")
