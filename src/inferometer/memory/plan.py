"""A chip's memory line by line, as an engine divides it, and whether what is asked for fits.

pool = share x (visible - parts before) - parts charged; what lies outside must fit in what is left. The lines of the
fullest stage sum to its visible bytes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from inferometer.blocks.model import layer_kinds
from inferometer.blocks.params import layer_tensors
from inferometer.blocks.tensors import local_cols, local_rows
from inferometer.memory.activations import activation_bytes
from inferometer.memory.asked import Asked, columns_of
from inferometer.memory.layers import Kind, kinds_by_layer, stage_slices
from inferometer.memory.pools import Pools, pools_of
from inferometer.memory.weights import layer_shards, weights_by_kind
from inferometer.specs.model import Layer

GIB = 2.0**30

ADAPTED = ("attention", "ffn", "shared-experts")
"""Kinds of tensors that adapters are for."""

ADAPTER_BYTES = 2.0
"""bf16."""

TEXT = {
    "activations": "activations of the largest pass",
    "graphs": "captured graphs",
    "runtime": "runtime and collectives",
    "context": "driver context",
}
"""Part -> what its line says."""

BASIS_FIELDS = {
    "activations": ("activation_ratio", "expert_workspace", "logit_bytes", "score_bytes", "latent_score_bytes"),
    "graphs": ("graph_bytes_per_layer",),
    "runtime": ("runtime_bytes", "collective_bytes"),
    "context": ("context_bytes",),
}
"""Part -> rules that it follows from."""


class Line(NamedTuple):
    """One line of a chip's memory."""

    name: str
    bytes: float
    basis: str
    """analytic, or assumed."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: its parts, and the room for caches."""

    weights_bytes: Mapping[str, float]
    """Kind of tensor -> bytes."""
    parts_bytes: Mapping[str, float]
    """Part -> bytes; `weights` is the sum of the kinds."""
    pools: Pools
    room_bytes: float
    """For caches; below 0 there is none."""
    left_bytes: float
    """Of what lies outside the share, beside the parts there; below 0 they do not fit."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer to one question."""

    asked: Asked
    stages: tuple[Stage, ...]
    """One for each pipeline stage."""

    @cached_property
    def tightest(self) -> Stage:
        """The stage that holds the fewest sequences at full length; with equals, that with least room."""
        length = self.asked.max_model_len
        return min(self.stages, key=lambda s: (s.pools.sequences(s.room_bytes, length), s.room_bytes))

    @property
    def concurrency(self) -> float:
        """Sequences of full length that a rank holds, as a fraction."""
        stage = self.tightest
        return stage.pools.sequences(stage.room_bytes, self.asked.max_model_len)

    @property
    def resident(self) -> float:
        """Sequences of the context asked for that run at once over the deployment, whatever is in flight."""
        return self.asked.ranks * min(s.pools.hold(s.room_bytes, self.asked.context) for s in self.stages)

    @property
    def blocks(self) -> int:
        """Blocks of the tightest stage; 0 where the engine has none."""
        pools = self.tightest.pools
        return round(pools.whole(self.tightest.room_bytes) / pools.unit_bytes) if pools.unit_bytes else 0

    @property
    def kv_tokens(self) -> float:
        """Tokens of a rank's cache as the engine counts them."""
        asked, pools = self.asked, self.tightest.pools
        if asked.rules.tokens_by == "blocks" and pools.unit_bytes:
            return float(self.blocks // pools.groups * pools.block_size * asked.sizes.dcp)
        tokens = self.concurrency * asked.max_model_len
        return math.floor(tokens + 1e-6) if math.isfinite(tokens) else tokens

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not fit; empty where it does."""
        return tuple(dict.fromkeys(reason for stage in self.stages for reason in _reasons(self.asked, stage)))

    @property
    def fits(self) -> bool:
        """Whether the engine starts, and holds what is asked for."""
        return not self.reasons

    @property
    def deficit_bytes(self) -> float:
        """Bytes that a chip lacks; 0 where it fits."""
        return max(_deficit(self.asked, stage) for stage in self.stages)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of one more token of a long sequence on a chip of the tightest stage, windows full."""
        return self.tightest.pools.bytes_per_token

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the tightest stage; they sum to the visible bytes."""
        return tuple(_lines(self.asked, self.tightest))


def plan(asked: Asked) -> Plan:
    """Return how memory is divided for one question."""
    layers = kinds_by_layer(asked)
    weights = _weights(asked)
    slices = stage_slices(asked.splits)
    last = len(slices) - 1
    stages = [_stage(asked, layers, stage, weights[i], last=i == last) for i, stage in enumerate(slices)]
    return Plan(asked=asked, stages=tuple(stages))


def _weights(asked: Asked) -> list[dict[str, float]]:
    """Return kind -> bytes of each stage; the embedding is on the first, the head on the last."""
    sizes = columns_of(asked)
    kinds = layer_kinds(asked.model)
    slices = stage_slices(asked.splits)
    found = []
    for index, stage in enumerate(slices):
        layers = asked.model.layers[max(stage.start, asked.first_layer) : stage.stop]
        first, last = index == 0, index == len(slices) - 1
        ends = (float(first), float(last and asked.holds_head), float(not last))
        times = [*(float(kind.visits * layers.count(kind)) for kind in kinds), *ends]
        by_kind = weights_by_kind(asked.model, sizes, np.array(times)[None, :, None], asked.rules.pads)
        away = () if asked.unified else asked.rules.host_kinds
        held = {k: float(column[0, 0]) for k, column in by_kind.items() if column[0, 0] and k not in away}
        found.append(held | _beside_weights(asked, layers, sum(held.values())))
    return found


def _beside_weights(asked: Asked, layers: Sequence[Layer], weights_bytes: float) -> dict[str, float]:
    """Return adapters, and what the host keeps of the weights, below 0."""
    found = {}
    if asked.adapters:
        found["LoRA adapters"] = adapter_bytes(asked, layers)
    if asked.offload_bytes:
        found["kept on the host"] = -min(asked.offload_bytes, weights_bytes)
    return found


def adapter_bytes(asked: Asked, layers: Sequence[Layer]) -> float:
    """Return N adapters of rank R: R (rows + columns) of a chip's shard of each linear layer but routed experts, bf16.

    A tensor that TP cuts keeps the other side of its adapter whole (vLLM without fully_sharded_loras).
    """
    sizes, total = columns_of(asked), 0.0
    for kind in layer_kinds(asked.model):
        shards = layer_shards(asked.model, kind, sizes)
        for tensor in layer_tensors(asked.model, kind):
            if tensor.cols > 1 and tensor.kind in ADAPTED:
                sides = float(local_rows(tensor, shards).item() + local_cols(tensor, shards).item())
                total += layers.count(kind) * asked.adapter_rank * sides * ADAPTER_BYTES
    return asked.adapters * total


def _stage(asked: Asked, layers: list[list[Kind]], stage: range, weights: Mapping[str, float], *, last: bool) -> Stage:
    rules = asked.rules
    stage = range(max(stage.start, asked.first_layer), stage.stop)
    parts = {"weights": sum(weights.values()), **_beside(asked, len(stage), last=last)}
    if asked.reserve_bytes is not None:
        # Reserved bytes stand for all that is not weights: nothing else is charged.
        room = asked.visible_bytes - asked.reserve_bytes - parts["weights"]
        return Stage(
            weights_bytes=weights,
            parts_bytes=parts,
            pools=pools_of(asked, layers, stage),
            room_bytes=room,
            left_bytes=0,
        )
    base = asked.visible_bytes - sum(parts[part] for part in rules.before)
    room = asked.used_share * base - sum(parts[part] for part in rules.charged)
    left = (1 - asked.used_share) * base - sum(parts[part] for part in rules.outside)
    return Stage(
        weights_bytes=weights, parts_bytes=parts, pools=pools_of(asked, layers, stage), room_bytes=room, left_bytes=left
    )


def _beside(asked: Asked, layers: int, *, last: bool) -> dict[str, float]:
    """Return the parts beside the weights, those that the engine's rules name."""
    rules = asked.rules
    found = {
        "activations": activation_bytes(asked, last=last),
        "graphs": 0.0 if asked.eager else rules.graph_bytes_per_layer * layers,
        "runtime": rules.runtime_bytes + (rules.collective_bytes if asked.sizes.tp > 1 else 0.0),
        "context": rules.context_bytes,
    }
    named = {*rules.before, *rules.charged, *rules.outside}
    return {part: size if part in named else 0.0 for part, size in found.items()}


def _reasons(asked: Asked, stage: Stage) -> Iterator[str]:
    pools, room = stage.pools, stage.room_bytes
    longest = asked.model.max_context
    if asked.rules.refuses_beyond_context and asked.max_model_len > longest:
        yield f"beyond-context: {asked.max_model_len} tokens, {asked.model.name} states {longest}"
    if asked.context > asked.max_model_len:
        yield f"beyond-max-model-len: sequences of {asked.context} tokens, the engine takes {asked.max_model_len}"
    if asked.rules.tokens_cover_sequences and (asked.max_num_seqs or 0) > asked.pass_tokens:
        yield f"max-num-batched-tokens: {asked.pass_tokens} tokens a pass, fewer than {asked.max_num_seqs} sequences"
    if asked.sequences > asked.seqs:
        yield f"max-num-seqs: {asked.sequences} sequences a rank, the engine takes {asked.seqs} at once"
    if stage.left_bytes < 0:
        yield f"reserve-too-small: {-stage.left_bytes / GIB:.2f} GiB a chip too little is left outside the share"
    if room < 0:
        yield f"weights-do-not-fit: {-room / GIB:.2f} GiB a chip too many, weights and reserves alone"
    elif pools.hold(room, asked.max_model_len) < 1:
        lacks = pools.room_for(1, asked.max_model_len) - room
        yield f"no-room-for-kv: one sequence of {asked.max_model_len} tokens lacks {lacks / GIB:.2f} GiB a chip"
    elif (most := pools.hold(room, asked.context)) < asked.sequences:
        yield f"batch-does-not-fit: {asked.sequences} sequences of {asked.context} tokens a rank, room for {most:.0f}"


def _deficit(asked: Asked, stage: Stage) -> float:
    pools = stage.pools
    wanted = max(pools.room_for(1, asked.max_model_len), pools.room_for(asked.sequences, asked.context))
    unit = pools.unit_bytes
    short = max(wanted - pools.whole(stage.room_bytes), 0.0) if stage.room_bytes >= 0 else wanted - stage.room_bytes
    holds = min(pools.hold(stage.room_bytes, asked.max_model_len), 1) >= 1
    enough = pools.hold(stage.room_bytes, asked.context) >= asked.sequences
    fits = stage.room_bytes >= 0 and holds and enough
    return (0.0 if fits else max(short, unit, 1.0)) + max(-stage.left_bytes, 0.0)


def _lines(asked: Asked, stage: Stage) -> Iterator[Line]:
    """Yield the lines: weights by kind, the other parts, caches in use, what is free of the pool, and the rest."""
    rules = asked.rules
    for kind, size in sorted(stage.weights_bytes.items(), key=lambda item: -item[1]):
        basis = "assumed" if kind == "LoRA adapters" else "analytic"
        yield Line(f"weights: {kind}", size, basis)
    parts = stage.parts_bytes if asked.reserve_bytes is None else {}
    for part, text in TEXT.items():
        if parts.get(part):
            basis = "assumed" if {*BASIS_FIELDS[part]} & {*rules.assumed} else "analytic"
            yield Line(text, parts[part], basis, _part_note(asked, part))
    used = asked.sequences * sum(stage.pools.needs_bytes(asked.context))
    state = asked.sequences * stage.pools.state_bytes
    what = f"{asked.sequences:,} sequence{'s' * (asked.sequences > 1)}"
    yield Line("KV", used - state, "analytic", f"{what} of {asked.context:,} tokens")
    if state:
        yield Line("state", state, "analytic", what)
    if asked.reserve_bytes is not None:
        yield Line("reserve", asked.reserve_bytes, "assumed", "as given")
    elif asked.used_share < 1 or stage.left_bytes:
        note = f"outside {asked.used_share:.4g} of memory"
        yield Line("reserve", stage.left_bytes, "assumed", note)
    yield Line("free", stage.room_bytes - used, "analytic", "of the pool")


def _part_note(asked: Asked, part: str) -> str:
    if part == "activations":
        tokens = f"{asked.pass_tokens:,} token{'s' * (asked.pass_tokens != 1)}"
        if not asked.rules.logit_bytes:
            return tokens
        if asked.rules.logit_rows == "tokens":
            return f"{tokens}, logits of each"
        return f"{tokens}, logits of {asked.seqs:,} sequence{'s' * (asked.seqs != 1)}"
    return ""
