"""Prints a JSON line a case: how many candidates and rows a search prices in a second.

The clock runs from loaded specs to ranked rows: enumeration, collective tables, footprints, pricing, refinement and
the ten winners worked out in full. Every cache is emptied before each run. One warm-up, then the median of five. Each
case runs in a process of its own; peak memory is summed over it and its workers.

    python benchmarks/run.py                 all cases
    python benchmarks/run.py --case NAME     one, in this process
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

from inferometer.catalog.loader import build_machine, find_engine, preset_config
from inferometer.estimate.estimate import make_problem
from inferometer.ingest.config import model_from_config
from inferometer.search.search import search
from inferometer.specs.deployment import Workload

CASES = {
    "llama-3.1-70b h100 8x8": ("llama-3.1-70b", "h100", "8x8"),
    "deepseek-v3 h200 8x8": ("deepseek-v3", "h200", "8x8"),
    "deepseek-v3 tpu-v7 4x4x8": ("deepseek-v3", "tpu-v7", "4x4x8"),
    "deepseek-v3 h200 8x512": ("deepseek-v3", "h200", "8x512"),
    "deepseek-v3 tpu-v7 16x16x16": ("deepseek-v3", "tpu-v7", "16x16x16"),
}
RUNS = 5


def empty_caches() -> None:
    """Forget every memoised result of inferometer, so that tables are built inside the clock."""
    for name, module in list(sys.modules.items()):
        if name.startswith("inferometer."):
            for value in vars(module).values():
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()


def run_case(name: str) -> dict[str, object]:
    """Return the figures of one case, measured in this process."""
    model_name, chip, machine_text = CASES[name]
    preset = preset_config(model_name)
    model = model_from_config(preset.config, name=preset.id, source=preset.source, sidecar=preset.quant_sidecar)
    machine = build_machine(chip, machine_text)
    engine = find_engine("ideal")
    walls = []
    for _ in range(RUNS + 1):
        empty_caches()
        started = time.perf_counter()
        result = search(make_problem(model, machine, Workload(), engine=engine))
        walls.append(time.perf_counter() - started)
    wall_s = statistics.median(walls[1:])
    unit = 1 if sys.platform == "darwin" else 1024
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "case": name,
        "priced_per_s": round(result.candidates / wall_s),
        "rows_per_s": round(result.rows / wall_s),
        "wall_s": round(wall_s, 4),
        "peak_rss_bytes": peak * unit,
        "workers": result.workers,
        "candidates": result.candidates,
        "rows": result.rows,
    }


def main() -> None:
    """Run one case here, or each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=sorted(CASES))
    chosen = parser.parse_args().case
    if chosen:
        print(json.dumps(run_case(chosen)))
        return
    for name in CASES:
        subprocess.run([sys.executable, __file__, "--case", name], check=True)  # noqa: S603 (this very script)


if __name__ == "__main__":
    main()
