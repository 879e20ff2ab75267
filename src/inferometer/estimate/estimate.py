"""The public estimate: one model on one machine, sharded one way, under one workload.

The same columns and functions that search runs on a hundred thousand candidates, on a block of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from inferometer.blocks.kinds import is_moe
from inferometer.blocks.model import unit_count
from inferometer.cost.backend import Band, CostBackend, band_of, basis_of, running
from inferometer.cost.collectives import collective_lines, lower_envelope
from inferometer.cost.registry import create_backend, usual_scheduler
from inferometer.cost.schedulers import Overlap, find_scheduler
from inferometer.errors import InferometerError
from inferometer.estimate.candidates import GROUP_OF, Block, Placements, make_shardings, pairs_of
from inferometer.estimate.diagnose import diagnose
from inferometer.estimate.legality import Rule, broken_rules
from inferometer.estimate.passes import of_model, with_copies
from inferometer.estimate.pick import Rows, pick
from inferometer.estimate.precision import resolve_precision
from inferometer.estimate.pricer import LinkTables
from inferometer.estimate.record import Reader, Record
from inferometer.estimate.result import ChoiceRow, Estimate, OpRow
from inferometer.estimate.room import Candidates, Held, divide, memory_of
from inferometer.estimate.space import enumerate_space
from inferometer.estimate.step import Problem, Step, StepModel, Way
from inferometer.graph.ops import Column, OpKind
from inferometer.memory.footprint import Reserve, footprint
from inferometer.specs.deployment import Deployment, EngineSpec, Placement, RolePlacement, Sizes, Workload
from inferometer.specs.hardware import Axis, Fabric, Machine
from inferometer.specs.model import ModelSpec

IDEAL = EngineSpec(name="ideal", version="")


def make_problem(
    model: ModelSpec,
    machine: Machine,
    workload: Workload,
    *,
    engine: EngineSpec = IDEAL,
    backend: CostBackend | str = "roofline",
    scheduler: str | None = None,
    overlap: Overlap | None = None,
    reserve: Reserve | None = None,
    state_slots: int = 1,
) -> Problem:
    """Return everything about an estimate but the candidates; the scheduler is the backend's usual one unless told.

    Raises InferometerError where the backend cannot price the chip, the chip has no arithmetic for a format, or the
    workload has images and the model no tower for them.
    """
    chosen = create_backend(backend) if isinstance(backend, str) else backend
    for kind in OpKind:
        support = chosen.supports(kind, machine.chip)
        if not support.ok:
            raise InferometerError(f"backend {chosen.name} cannot price {kind} on {machine.chip.id}: {support.reason}")
    model, (workload, image) = with_copies(model, workload.redundant_experts), of_model(workload, model)
    visible, kept = float(machine.chip.memory_bytes), reserve or Reserve()
    return Problem(
        model=model,
        machine=machine,
        workload=workload,
        engine=engine,
        backend=running(chosen, engine.kernels),
        scheduler=find_scheduler(scheduler or usual_scheduler(chosen.name)),
        overlap=overlap or Overlap(),
        precision=resolve_precision(model, machine.chip, engine),
        room_bytes=visible - kept.of(visible),
        state_slots=state_slots,
        activation_room_bytes=kept.for_activations(visible),
        image=image,
    )


def find_candidates(problem: Problem, fixed: Mapping[str, int] | None = None) -> tuple[Candidates, list[Rule]]:
    """Return every sharding of the machine with the sizes in `fixed`, and the rules with where they are broken.

    Footprints and stages of shardings that break a rule are of one chip: nothing else can be said of them.
    Raises InferometerError where the sizes fixed multiply to no sharding.
    """
    model = problem.model
    fabric = problem.machine.fabric
    rates = [problem.backend.link(axis) for axis in fabric.axes]
    sizes, placements = enumerate_space(
        fabric,
        moe=is_moe(model),
        fixed=fixed,
        lines=lambda kind, signature: lower_envelope(collective_lines(kind, signature, fabric, rates)),
    )
    if not len(sizes["tp"]):
        wanted = ",".join(f"{role.upper()}={size}" for role, size in (fixed or {}).items())
        raise InferometerError(f"no sharding with {wanted} spans the chips of {problem.machine.label}")
    rules = broken_rules(model, problem.engine, sizes)
    broken, illegal = (np.zeros(sizes["tp"].shape, dtype=np.bool_) for _ in range(2))
    for rule in rules:
        broken |= rule.broken if rule.name == "stages-exceed-layers" else False
        illegal |= rule.broken
    safe = {name: np.where(broken, 1.0, column) for name, column in sizes.items()}
    shardings = make_shardings(model, safe, problem.engine.partition)
    held = footprint(
        model,
        safe,
        shardings.multiplicities,
        length=problem.max_length,
        room_bytes=problem.room_bytes,
        state_slots=problem.state_slots,
        cross_tokens=problem.workload.cross_tokens,
        all_token_logits=problem.workload.all_token_logits and not problem.workload.generates,
    )
    if problem.asked is not None:
        divided, most = divide(problem, problem.asked, safe, ~illegal)
        return Candidates(replace(shardings, sizes=sizes), placements, held, most, divided), rules
    tokens = held.tokens_per_pass(problem.activation_room_bytes)
    passes = problem.microbatches(safe["pp"], np.full(len(tokens), np.inf))
    a_pass = np.maximum(np.floor(tokens / problem.new_tokens), 1.0) * passes
    most = np.minimum(held.sequences(), a_pass)
    return Candidates(replace(shardings, sizes=sizes), placements, held, most), rules


class Row(NamedTuple):
    """One sharding by index, with sequences in flight over the deployment."""

    sharding: int
    batch: int


def estimate(problem: Problem, deployment: Deployment) -> Estimate:
    """Return the estimate of one deployment.

    `deployment.placement` None takes the cheapest placement, `deployment.batch` None the most that fits (1 where
    nothing does). What is illegal or does not fit is still priced where it can be, with `reasons`.

    Raises InferometerError where the sizes do not multiply to the machine's chips or a placement does not exist.
    """
    found, row = _one(problem, deployment)
    pair = None if deployment.placement is None else _matching(found.placements, deployment.placement)
    return estimate_rows(problem, found, [row], pair)[0]


def placement_steps(problem: Problem, deployment: Deployment) -> list[tuple[Placement, float]]:
    """Return every placement of one deployment with its step time in seconds, fastest first.

    The sizes and batch are those `estimate` takes; raises what it raises.
    """
    found, row = _one(problem, deployment)
    step_s = _priced(problem, found, [row], None).step.step_s
    pairs = range(int(found.placements.start[1]))
    timed = [(placement_of(found.placements, 0, pair), pick(step_s, 0, pair)) for pair in pairs]
    return sorted(timed, key=lambda each: each[1])


def _one(problem: Problem, deployment: Deployment) -> tuple[Candidates, Row]:
    """Return a deployment's sharding with all its placements, and its sequences in flight."""
    sizes = deployment.sizes
    moe = is_moe(problem.model)
    _check_products(sizes, problem.machine.fabric.n_chips, moe=moe)
    units = unit_count(problem.model)
    if sizes.pp > units:
        raise InferometerError(f"PP={sizes.pp} exceeds the {units} layers of {problem.model.name}")
    names = ("r", "pp", "dpa", "tp", "dcp", "ep", "etp") if moe else ("r", "pp", "dpa", "tp", "dcp")
    found, _ = find_candidates(problem, {name: getattr(sizes, name) for name in names})
    if not len(found.shardings):
        raise InferometerError(f"sizes {_spelled(sizes)} cannot be placed on {problem.machine.label}")
    most = max(float(found.most[0]), 1.0)
    batch = deployment.batch if deployment.batch is not None else int(min(most, 1 << 24)) * sizes.r * sizes.dpa
    if batch < 1:
        raise InferometerError(f"batch {batch}: at least 1 sequence must be in flight")
    return found, Row(0, batch)


class _Block(NamedTuple):
    """Rows priced in one block, with what they were priced from."""

    model: StepModel
    step: Step
    found: Candidates
    block: Block
    at: Rows
    """Each row, at the placement asked for or its cheapest."""
    reader: Reader
    rules: list[Rule]
    told: dict[tuple[Axis, ...], tuple[Band, str]]
    """Band and basis by the axes that messages cross, as they come up."""

    def band(self, problem: Problem, crossed: tuple[Axis, ...]) -> tuple[Band, str]:
        """Return how far the truth may lie from a step, and on what basis."""
        if crossed not in self.told:
            chip, backend = problem.machine.chip, problem.backend
            self.told[crossed] = band_of(backend, chip, crossed), basis_of(backend, chip, crossed)
        return self.told[crossed]


def _priced(
    problem: Problem, found: Candidates, rows: Sequence[Row], pair: int | None, links: LinkTables | None = None
) -> _Block:
    at = np.array([row.sharding for row in rows], dtype=np.intp)
    batch = np.array([float(row.batch) for row in rows])
    sizes = {name: column[at] for name, column in found.shardings.sizes.items()}
    sequences, in_flight = np.ceil(batch / (sizes["r"] * sizes["dpa"])), np.ceil(batch / sizes["r"])
    pairs = pairs_of(at, found.placements) if pair is None else np.full((1, len(at)), pair, dtype=np.intp)
    model = StepModel(problem=problem, shardings=found.shardings, placements=found.placements, record=True, known=links)
    block = Block(at, sequences[:, None], pairs, in_flight[:, None])
    step = model.price(block)
    if model.graph is None or model.pricer is None:
        raise AssertionError("nothing was recorded")
    cheapest = np.broadcast_to(step.step_s, (len(pairs), len(rows), 1)).argmin(axis=0)[:, 0]
    picked = Rows(np.arange(len(rows)), cheapest)
    reader = Reader(model.pricer, model.graph, picked)
    return _Block(model, step, found, block, picked, reader, broken_rules(problem.model, problem.engine, sizes), {})


def estimate_rows(
    problem: Problem,
    found: Candidates,
    rows: Sequence[Row],
    pair: int | None = None,
    *,
    links: LinkTables | None = None,
) -> list[Estimate]:
    """Return the estimate of each row at its cheapest placement, or at `pair`: all rows priced as one block.

    `links` are the tables of a search through the same candidates.
    """
    if not rows:
        return []
    priced = _priced(problem, found, rows, pair, links)
    return [_result(problem, _Priced(priced, i, row.batch)) for i, row in enumerate(rows)]


def _spelled(sizes: Sizes) -> str:
    return ",".join(f"{k.upper()}={getattr(sizes, k)}" for k in ("r", "pp", "dpa", "tp", "ep", "etp", "dcp"))


def _check_products(sizes: Sizes, n_chips: int, *, moe: bool) -> None:
    attention = sizes.r * sizes.pp * sizes.dpa * sizes.tp
    if attention != n_chips:
        raise InferometerError(
            f"R x PP x DPA x TP = {sizes.r} x {sizes.pp} x {sizes.dpa} x {sizes.tp} = {attention}, "
            f"but the machine has {n_chips} chips"
        )
    experts = sizes.r * sizes.pp * sizes.ep * sizes.etp
    if moe and experts != n_chips:
        raise InferometerError(
            f"R x PP x EP x ETP = {sizes.r} x {sizes.pp} x {sizes.ep} x {sizes.etp} = {experts}, "
            f"but the machine has {n_chips} chips"
        )
    if not moe and (sizes.dpa, sizes.ep, sizes.etp) != (1, 1, 1):
        raise InferometerError("a dense model has DPA = EP = ETP = 1; write data parallel replicas as R")
    if sizes.tp % sizes.dcp:
        raise InferometerError(f"DCP={sizes.dcp} must divide TP={sizes.tp}")


def placement_of(placements: Placements, sharding: int, pair: int) -> Placement:
    """Return where the roles of a pair lie, as a spec."""
    roles = {}
    for role in GROUP_OF:
        spans = placements.signature(role, sharding, pair)
        if any(factor > 1 for factor, _ in spans):
            roles[role] = RolePlacement(factors=tuple(f for f, _ in spans), strides=tuple(s for _, s in spans))
    return Placement(roles=roles)


def crossed_axes(fabric: Fabric, placement: Placement) -> tuple[Axis, ...]:
    """Return the axes that messages cross: those along which a role extends whose ranks talk to each other."""
    talking = [where.factors for role, where in placement.roles.items() if role != "r"]
    return tuple(axis for i, axis in enumerate(fabric.axes) if any(factors[i] > 1 for factors in talking))


def _matching(placements: Placements, wanted: Placement) -> int:
    """Return the first pair whose roles have the factors wanted; roles not named are free."""
    for pair in range(int(placements.start[1])):
        have = placement_of(placements, 0, pair).roles
        if all(_same(have.get(role), place) for role, place in wanted.roles.items()):
            return pair
    raise InferometerError("no placement of these sizes has the factors asked for")


def _same(have: RolePlacement | None, want: RolePlacement) -> bool:
    factors = have.factors if have else tuple(1 for _ in want.factors)
    return factors == want.factors


class _Priced(NamedTuple):
    """One row of a priced block, at one placement."""

    of: _Block
    row: int
    batch: int

    @property
    def sharding(self) -> int:
        """Index of the sharding."""
        return int(self.of.block.sharding[self.row])

    def at(self, column: Column) -> float:
        """Return the candidate's value of a column."""
        return pick(column, self.row, self.placement)

    @property
    def placement(self) -> int:
        """Index of the placement among those priced."""
        return int(self.of.at.placements[self.row])

    def record(self, residual: str) -> Record:
        """Return the ops and choices under a residual layout."""
        model = self.of.model
        counts = model.shardings.stage_counts[:, self.sharding]
        times = (model.shardings.multiplicities[:, :, self.sharding] * counts[:, None]).sum(axis=0)
        return self.of.reader.read(self.row, times.tolist(), residual)


def _result(problem: Problem, priced: _Priced) -> Estimate:
    found, step, block, index = priced.of.found, priced.of.step, priced.of.block, priced.sharding
    sizes = found.shardings.at(index)
    layouts = {name: priced.at(way.step_s) for name, way in step.ways.items()}
    residual = min(layouts, key=lambda name: layouts[name])
    way = step.ways[residual]
    record = priced.record(residual)
    sequences = int(block.sequences[priced.row, 0])
    micro = int(problem.microbatches(np.array(float(sizes.pp)), np.array(float(sequences))))
    step_s = priced.at(step.step_s)
    placement = placement_of(found.placements, index, int(block.pairs[priced.placement, priced.row]))
    band, basis = priced.of.band(problem, crossed_axes(problem.machine.fabric, placement))
    memory, lacking = memory_of(problem, found, Held(index, priced.batch, sequences))
    rules = [f"{rule.name}: {rule.advice}" for rule in priced.of.rules if rule.broken[priced.row]]
    reasons = [*rules, *lacking]
    useful_compute, useful_memory, flops = _useful(problem, record.ops)
    available = sizes.pp * step_s
    return Estimate(
        sizes=sizes,
        placement=placement,
        placements_priced=int(found.placements.start[index + 1] - found.placements.start[index]),
        batch=priced.batch,
        sequences=sequences,
        microbatches=micro,
        step_s=step_s,
        low_s=step_s * band.low,
        high_s=step_s * band.high,
        alike=band.alike,
        basis=basis,
        band_source=band.source,
        busy_s=_busiest_stage(priced, way, micro),
        mfu=micro * useful_compute / available,
        mbu=micro * useful_memory / available,
        useful_flops=micro * flops * sizes.dpa * sizes.tp,
        memory=memory,
        widened=tuple(f"{n}->{d}" for n, d in problem.precision.widened.items()),
        diagnostics=diagnose(problem, sizes, memory, micro),
        reasons=tuple(dict.fromkeys(reasons)),
        residual=residual,
        ops=record.ops,
        choices=(_residual_row(layouts, residual), *record.choices),
    )


def _residual_row(layouts: dict[str, float], residual: str) -> ChoiceRow:
    """Return the choice of the residual layout, priced by the step it gives."""
    others = {name: seconds for name, seconds in layouts.items() if name != residual}
    return ChoiceRow(name="residual", segment="step", plan=residual, alone_s=layouts[residual], beaten_s=others)


def _busiest_stage(priced: _Priced, way: Way, micro: int) -> dict[str, float]:
    index = max(range(len(way.stages)), key=lambda i: priced.at(way.stage_s[i]))
    busy = way.stages[index]
    parts = {"compute": busy.compute_s, "memory": busy.memory_s, "network": busy.network_s}
    return {name: micro * priced.at(column) for name, column in parts.items()} | {"overhead": 0.0}


def _useful(problem: Problem, ops: tuple[OpRow, ...]) -> tuple[float, float, float]:
    """Return of all stages, for one microbatch and a chip: useful compute s, weight, KV and state s, useful flops."""
    chip = problem.machine.chip
    compute = moved = flops = 0.0
    for op in ops:
        times = op.layers * op.share
        if op.flops:
            useful = op.flops / op.replication * times
            flops += useful
            compute += useful / chip.peak_flops_per_s[op.dtype]
        traffic = op.traffic_bytes
        moved += (traffic.get("weights", 0.0) + traffic.get("kv", 0.0) + traffic.get("state", 0.0)) * times
    return compute, moved / chip.memory_bytes_per_s, flops
