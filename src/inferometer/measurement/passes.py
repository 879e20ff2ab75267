"""Seconds of the passes that questions need, many batches at once.

Questions that differ in batch alone share one lowering: the batches are the columns of a block.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from inferometer.blocks.kinds import is_moe
from inferometer.blocks.model import unit_count
from inferometer.catalog.engine_kernels import kernels_of
from inferometer.catalog.loader import build_machine
from inferometer.cost.backend import CostBackend
from inferometer.errors import InferometerError
from inferometer.estimate.candidates import Block, Placements, make_shardings
from inferometer.estimate.estimate import make_problem
from inferometer.estimate.legality import broken_rules
from inferometer.estimate.space import enumerate_space
from inferometer.estimate.step import Problem, StepModel
from inferometer.graph.ops import Column
from inferometer.measurement.models import chip_of, stored_model
from inferometer.measurement.questions import Question, Setup
from inferometer.measurement.rooms import admitted, divider_of
from inferometer.memory.plan import Divider
from inferometer.specs.deployment import EngineSpec, Workload
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec

PUBLISHED = EngineSpec(name="ideal", version="", unpacks_to_16_bits=True)
"""Engine that rows are priced with: free, but that weights of a format the chip has no arithmetic for (MXFP4 and NVFP4
on Hopper, FP8 on A100) are multiplied in 16 bits. That is common to what published rows ran; source: the catalogue's
engines, field `unpacks_to_16_bits`."""


class Pass(NamedTuple):
    """One kind of pass of one setup, at any batch."""

    setup: Setup
    workload: Workload


def prefill_of(question: Question) -> Pass:
    """Return the prefill of all prompts."""
    return Pass(question.setup, Workload(phase="prefill", isl=question.isl_tok, osl=1))


def decode_of(question: Question) -> Pass:
    """Return the mean decode step of a question, over the contexts its steps see.

    Steps j = 1..n see c = I + j, so the range is I + 1 .. I + n, both ends seen. The estimate takes the mean over
    isl..isl + osl by quadrature, which is the mean of a straight line at the middle of the range, I + (n + 1) / 2:
    exactly what the n steps average to where a step's time is linear in c. So isl = I + 1 and osl = n - 1.
    """
    if question.osl_tok is None:
        return Pass(question.setup, Workload(phase="decode", isl=question.isl_tok, osl=0, context=question.isl_tok))
    return Pass(question.setup, Workload(phase="decode", isl=question.isl_tok + 1, osl=question.decode_steps - 1))


class Priced(NamedTuple):
    """What was priced."""

    step_s: dict[tuple[Pass, int], float]
    refused: dict[Pass, str]
    """Pass -> why it cannot be priced."""


class Known(NamedTuple):
    """Models and machines of one's own."""

    models: Mapping[str, ModelSpec]
    """Name of a setup's model -> the model, in the formats it is stored in."""
    machines: Mapping[tuple[str, int], Machine]
    """Name of a setup's chip and number of chips -> machine."""


class Pricer:
    """Prices passes with one backend, and keeps what it priced."""

    def __init__(self, backend: CostBackend, known: "Known | None" = None) -> None:
        """Start with nothing priced; `known` are models and machines that setups name beside the published ones."""
        self.backend = backend
        self._known = known or Known({}, {})
        self.refused: dict[Pass, str] = {}
        """Pass -> why it cannot be priced."""
        self._priced: dict[tuple[Pass, int], float] = {}
        self._machines: dict[tuple[str, int], Machine] = dict(self._known.machines)
        self._spaces: dict[Setup, tuple[dict[str, Column], Placements]] = {}
        self._problems: dict[Pass, Problem] = {}
        self._dividers: dict[Setup, Divider] = {}
        self._rooms: dict[tuple[Setup, int, int], int] = {}
        self._once: dict[Hashable, Any] = {}

    def price(self, wanted: Iterable[tuple[Pass, int]]) -> None:
        """Price (pass, batch) pairs, each pass once with all its batches; what cannot be priced goes to `refused`."""
        batches: dict[Pass, set[int]] = {}
        for one, batch in wanted:
            if (one, batch) not in self._priced:
                batches.setdefault(one, set()).add(batch)
        for one, several in batches.items():
            try:
                self._price(one, sorted(several))
            except InferometerError as error:
                self.refused[one] = str(error)

    def priced(self, wanted: Iterable[tuple[Pass, int]]) -> Priced:
        """Price pairs, and return all that is priced."""
        self.price(wanted)
        return Priced(self._priced, self.refused)

    def take(self, found: Priced) -> None:
        """Take over what a pricer of the same backend priced."""
        self._priced |= found.step_s
        self.refused |= found.refused

    def step_s(self, one: Pass, batch: int) -> float:
        """Return the seconds of a priced pass at a batch, sequences over all chips."""
        return self._priced[one, batch]

    def fits(self, one: Pass, batch: int) -> bool:
        """Return whether weights and the KV of all sequences of a pass fit."""
        sizes = one.setup.sizes
        each = -(-batch // (sizes.r * sizes.dpa))
        return each <= self.room(one, self._problem(one).max_length, each)

    def _price(self, one: Pass, batches: list[int]) -> None:
        setup, sizes = one.setup, one.setup.sizes
        problem = self._problem(one)
        if sizes.pp > unit_count(problem.model):
            raise InferometerError(f"PP={sizes.pp} exceeds the layers of {setup.model}")
        columns, placements = self._space(setup, problem)
        if not len(columns["tp"]):
            raise InferometerError(f"sizes cannot be placed on {setup.n_chips} x {setup.chip}")
        for rule in broken_rules(problem.model, problem.engine, columns):
            if bool(np.asarray(rule.broken).any()):
                raise InferometerError(f"{rule.name}: {rule.advice}")
        shardings = make_shardings(problem.model, columns, problem.engine.partition)
        ranks = sizes.r * sizes.dpa
        sequences = np.array([[float(-(-batch // ranks)) for batch in batches]])
        pairs = np.arange(placements.start[1])[:, None]
        block = Block(np.zeros(1, dtype=np.intp), sequences, pairs)
        step_s = StepModel(problem=problem, shardings=shardings, placements=placements).price(block).step_s
        best = np.broadcast_to(step_s, (len(pairs), 1, len(batches))).min(axis=0)[0]
        for i, batch in enumerate(batches):
            self._priced[one, batch] = float(best[i])

    def _problem(self, one: Pass) -> Problem:
        if one not in self._problems:
            self._problems[one] = self._made(one)
        return self._problems[one]

    def _made(self, one: Pass) -> Problem:
        setup = one.setup
        key = (setup.chip, setup.n_chips)
        if key not in self._machines:
            chip = chip_of(setup.chip)
            if chip is None:
                raise AssertionError(f"{setup.chip} is not known")
            self._machines[key] = build_machine(chip.id, n_chips=setup.n_chips)
        own = self._known.models.get(setup.model)
        model = own or stored_model(setup.model, setup.weights, setup.kv, head=setup.head)
        engine = msgspec.structs.replace(PUBLISHED, kernels=kernels_of(setup.engine))
        return make_problem(model, self._machines[key], one.workload, engine=engine, backend=self.backend)

    def _space(self, setup: Setup, problem: Problem) -> tuple[dict[str, Column], Placements]:
        if setup not in self._spaces:
            moe = is_moe(problem.model)
            fixed = {role: getattr(setup.sizes, role) for role in ("r", "pp", "dpa", "tp", "dcp")}
            fixed |= {"ep": setup.sizes.ep, "etp": setup.sizes.etp} if moe else {}
            self._spaces[setup] = enumerate_space(problem.machine.fabric, moe=moe, fixed=fixed)
        return self._spaces[setup]

    def room(self, one: Pass, length: int, most: int) -> int:
        """Return the sequences of an attention rank that fit at `length` tokens each, by the engine's own division.

        No more than `most` are asked for.
        """
        key = (one.setup, length, most)
        if key not in self._rooms:
            if one.setup not in self._dividers:
                self._dividers[one.setup] = divider_of(self._problem(one), one.setup)
            self._rooms[key] = admitted(self._dividers[one.setup], length, most)
        return self._rooms[key]

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return `make()`, made once for `key`: what several metrics of one question share."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def layers(self, one: Pass) -> int:
        """Return the layers of a pass's model."""
        return len(self._problem(one).model.layers)
