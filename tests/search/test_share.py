"""A search in two processes gives what one gives, to the last bit; a child that fails costs nothing but time."""

import subprocess
import sys

SCRIPT = """
import sys
from dataclasses import replace
from inferometer.catalog.loader import build_machine, preset_config
from inferometer.estimate.estimate import make_problem
from inferometer.ingest.config import model_from_config
import inferometer.search.search
from inferometer.specs.deployment import Workload

module = sys.modules["inferometer.search.search"]
preset = preset_config("qwen3-30b-a3b")
model = model_from_config(preset.config, name=preset.id, source=preset.source, sidecar=preset.quant_sidecar)
problem = make_problem(model, build_machine("h200", "8x2"), Workload())
slo = module.Slo(tpot_s=0.02)
module.can_share = lambda: False
alone = module.search(problem, slo=slo, top=50)
module.can_share, module.WORTH_SHARING = (lambda: True), 0
if sys.argv[1] == "failing":
    take = module.Search.take
    parent = __import__("os").getpid()

    def dies(self, block):
        if __import__("os").getpid() != parent:
            raise MemoryError
        take(self, block)

    module.Search.take = dies
shared = module.search(problem, slo=slo, top=50)
assert replace(shared, wall_s=0, workers=0) == replace(alone, wall_s=0, workers=0)
print(alone.workers, shared.workers)
"""


def workers(how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, how], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_two_processes_find_what_one_finds():
    assert workers("working") == "1 2" if sys.platform == "linux" else "1 1"


def test_a_child_that_fails_is_made_up_for():
    assert workers("failing") == "1 1"
