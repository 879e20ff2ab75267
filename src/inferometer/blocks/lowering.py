"""What lowering a block needs: the pass as columns, the shard counts, and helpers that emit nodes.

Letters: B sequences of a DPA rank in this pass, T tokens of a rank, S context, H hidden.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from inferometer.blocks.images import ImageCount
from inferometer.blocks.popularity import USUAL, Routing, routed, routed_tokens
from inferometer.blocks.routing import Busiest
from inferometer.blocks.tensors import Tensor, local_cols, local_rows, one_copy_bytes
from inferometer.graph.layout import Layout, Step, Tree, layout, reshard_tree, step_name
from inferometer.graph.ops import NONE, ONE, Choice, CollectiveKind, Column, Message, Node, OpKind, Plan, Traffic, Work
from inferometer.specs.block import Block
from inferometer.specs.deployment import PLAIN, Phase
from inferometer.specs.feedforward import Moe
from inferometer.specs.formats import find_format

ACTIVATION_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5625}
"""Bytes of one activation fed to a GEMM of that arithmetic type (fp4 with its scales)."""

DTYPE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes of one unpacked weight."""

SCALE_BYTES = 4.0
"""An fp32 activation scale."""

WIDE_BYTES = 2.0
"""Bytes of one activation between ops: bf16 or fp16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of one stage of one replica, as columns over rows."""

    phase: Phase
    sequences: Column
    """B: sequences of a DPA rank in the pass (one microbatch)."""
    new_tokens: int
    """Tokens each sequence brings: the prompt with its images, what is new of it, 1 in decode, 1 + k in verify."""
    contexts: tuple[tuple[float, float], ...]
    """(context, share of passes) quadrature over the KV length at the end of the pass, new tokens included."""
    all_token_logits: bool = False
    """Logits of every token, not of each sequence's last alone."""
    tp: Column
    dpa: Column
    ep: Column
    etp: Column
    dcp: Column
    replica_sequences: Column
    """Sequences of all DPA ranks of a replica in the pass; fewer than B x DPA where they do not divide."""
    dtypes: Mapping[str, str]
    """Format name -> arithmetic type on this chip."""
    unpacked: frozenset[str] = frozenset()
    """Formats the chip has no arithmetic for: their weights are unpacked to a wider type."""
    core_dtype: str
    """Arithmetic type of attention cores."""
    kv_bytes_per_element: float
    kv_format: str
    """Format of the KV cache, of which caches make their own (see `Cache`)."""
    state_bytes_per_element: float = 4.0
    """Of a recurrent state; fp32 unless told."""
    images: int = 0
    """Images a sequence brings to the pass."""
    image: ImageCount | None = None
    """What one of them is to the model's tower."""
    routing: Routing = USUAL
    """How tokens choose experts."""
    cross_tokens: int = 0
    """I: image tokens of a sequence that cross-attention sees."""
    stopped: int = 0
    """New tokens of a sequence, before those, that went through layers before this one and stopped there."""

    tokens: Column = field(init=False)
    """T: tokens of the fullest DPA rank in the pass."""
    replica_tokens: Column = field(init=False)
    """Ta: tokens of all ranks, a whole number of sequences."""
    logit_tokens: Column = field(init=False)
    """Tokens of a rank whose logits are made."""
    padding: Column = field(init=False)
    """Tokens if every rank were as full as the fullest, over tokens there are: the idle share of lock-step."""

    def __post_init__(self) -> None:
        """Count the tokens once."""
        full = self.sequences * self.dpa
        whole = np.minimum(np.ceil(self.replica_sequences), full)
        object.__setattr__(self, "tokens", self.sequences * self.new_tokens)
        object.__setattr__(self, "replica_tokens", whole * self.new_tokens)
        every = self.all_token_logits or self.generates
        object.__setattr__(self, "logit_tokens", self.sequences * (self.new_tokens if every else 1))
        object.__setattr__(self, "padding", full / self.replica_sequences)

    @property
    def generates(self) -> bool:
        """Whether the pass is a decode or a verify; only there does DCP split attention, and not the cache alone."""
        return PLAIN[self.phase] == "decode"

    @property
    def prefix(self) -> float:
        """Tokens of a sequence that are cached before a prompt."""
        return self.contexts[0][0] - self.new_tokens - self.stopped

    def busiest_rank(self, block: Moe, ranks: Column) -> Busiest:
        """Return what the busiest of `ranks` parts of the replica receives."""
        return routed(block, ranks, self.replica_tokens / self.new_tokens, self.replica_tokens, self.routing)

    def busiest_tokens(self, block: Moe, ranks: Column) -> Column:
        """Return the distinct tokens that the busiest of `ranks` parts of the replica receives."""
        return routed_tokens(block, ranks, self.replica_tokens / self.new_tokens, self.replica_tokens, self.routing)

    def tail(self, tokens: int | None) -> "Pass":
        """Return the pass as a layer sees it that takes the last `tokens` new ones of a prompt; None takes all.

        Where tokens are generated, and where logits of all are asked for, every token goes through every layer.
        """
        if tokens is None or tokens >= self.new_tokens or self.generates or self.all_token_logits:
            return self
        return replace(self, new_tokens=tokens, stopped=self.new_tokens - tokens)


@dataclass(slots=True)
class Lowering:
    """Emits nodes for one pass; equal messages and reshards are emitted once."""

    at: Pass
    hidden: int
    has_dpa: bool
    """Whether DPA is a role of this model (MoE); elsewhere it is written as R."""
    whole: "Lowering | None" = None
    """That of all tokens of the pass, where some stop before these layers."""
    shards: dict[str, Column] = field(default_factory=dict)
    _once: dict[tuple[str, int], Any] = field(default_factory=dict)
    _messages: dict[tuple[Step, float], Message] = field(default_factory=dict)
    _reshards: dict[tuple[int, float], Choice] = field(default_factory=dict)
    """Both by the bytes of one token."""
    _split_rows: Column | None = None

    def __post_init__(self) -> None:
        """Work out how many ways each shard key splits (see `Tensor`)."""
        at = self.at
        self.shards.update({"tp": at.tp, "ep": at.ep, "etp": at.etp})

    @property
    def all_tokens(self) -> "Lowering":
        """What is made of every token is lowered with this, also where some stop before the layer."""
        return self.whole or self

    def once(self, what: str, block: object, make: Callable[[], Any]) -> Any:
        """Return `make()`, done once for the pass and block, so that what uses it shares it."""
        key = (what, id(block))
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def narrow_bytes(self, fmt: str) -> float:
        """Return the bytes of one activation fed to a GEMM by weights of format `fmt`, scales included.

        Block-quantised fp8 weights take activations with one fp32 scale a block of columns (DeepSeek-V3,
        arXiv:2412.19437 section 3.3: 1 x 128 tiles).
        """
        dtype, block = self.at.dtypes[fmt], find_format(fmt).block_cols
        scales = SCALE_BYTES / block if dtype == "fp8" and block else 0.0
        return ACTIVATION_BYTES[dtype] + scales

    def gemm(
        self, name: str, tensors: tuple[Tensor, ...], rows_in: Column, useful_rows: Column | None = None
    ) -> list[Node]:
        """Return the GEMM of `rows_in` tokens by tensors that share their columns; one each where formats differ.

        flops = 2 t r c; bytes = weights + t c activations in + t r bf16 out. Replication is
        issued over useful: TP x local elements over all elements, and `rows_in` (of every TP rank) over
        `useful_rows` (of the group; the same unless told). A quantise pass comes first where the arithmetic is
        narrower than the activations.
        """
        formats = dict.fromkeys(tensor.format for tensor in tensors)
        nodes: list[Node] = []
        for fmt in formats:
            parts = tuple(tensor for tensor in tensors if tensor.format == fmt)
            own = name if len(formats) == 1 else "+".join(tensor.name for tensor in parts)
            nodes += self._gemm(own, parts, rows_in, useful_rows)
        return nodes

    def _gemm(self, name: str, tensors: tuple[Tensor, ...], rows_in: Column, useful_rows: Column | None) -> list[Node]:
        at, first = self.at, tensors[0]
        padding = at.padding if useful_rows is None else at.padding * (rows_in / useful_rows)
        narrow = self.narrow_bytes(first.format)
        cols = local_cols(first, self.shards)
        rows = np.asarray(0.0)
        weights = np.asarray(0.0)
        for tensor in tensors:
            rows = rows + local_rows(tensor, self.shards)
            weights = weights + one_copy_bytes(tensor, self.shards)
        elements = sum(t.rows * t.cols for t in tensors)
        work = Work(
            name=name,
            kind=OpKind.GEMM,
            dtype=at.dtypes[first.format],
            flops=2 * rows_in * rows * cols,
            traffic_bytes={
                Traffic.WEIGHTS: weights,
                Traffic.ACTIVATIONS: rows_in * (cols * narrow + rows * WIDE_BYTES),
            },
            replication=padding * (at.tp * rows * cols / elements),
            stored=first.format,
            rows=rows_in,
            features=rows,
            shape="[{t}, {c}] x [{r}, {c}] -> [{t}, {r}]",
            sizes={"t": rows_in, "r": rows, "c": cols},
        )
        return [*self.quantise(name, first.format, rows_in * cols), *self.unpacked((work,), first.format, rows * cols)]

    def unpacked(self, gemms: tuple[Work, ...], fmt: str, elements: Column) -> tuple[Node, ...]:
        """Return a GEMM on `elements` weights of format `fmt`, with the ways to unpack them if the chip lacks it.

        `gemms` are the one GEMM at each node of a quadrature.

        in-kernel: stored bytes are read once and unpacked in registers (Marlin, arXiv:2408.11743). apart: another
        kernel reads them and writes the wider type, which the GEMM reads.
        """
        if fmt not in self.at.unpacked:
            return gemms
        first = gemms[0]
        wide = elements * DTYPE_BYTES[first.dtype]
        traffic_bytes = {Traffic.WEIGHTS: first.traffic_bytes[Traffic.WEIGHTS], Traffic.ACTIVATIONS: wide}
        unpack = replace(self.elementwise(f"{first.name}.unpack", wide), traffic_bytes=traffic_bytes)
        after = (replace(gemm, traffic_bytes={**gemm.traffic_bytes, Traffic.WEIGHTS: wide}) for gemm in gemms)
        plans = (Plan(name="in-kernel", nodes=gemms), Plan(name="apart", nodes=(unpack, *after)))
        return (Choice(name="unpack", plans=plans),)

    def quantise(self, name: str, fmt: str, elements: Column) -> list[Node]:
        """Return the pass that narrows activations for weights of format `fmt`: read bf16, write the narrow type."""
        narrow = self.narrow_bytes(fmt)
        if narrow >= WIDE_BYTES:
            return []
        shape, sizes = "[{n}] to " + self.at.dtypes[fmt], {"n": elements}
        one = self.elementwise(f"{name}.quantise", elements * (WIDE_BYTES + narrow), shape=shape, sizes=sizes)
        return [replace(one, stored=fmt)]

    def elementwise(
        self,
        name: str,
        activations: Column,
        kv: Column | None = None,
        *,
        shape: str = "elementwise",
        sizes: Mapping[str, Column] | None = None,
    ) -> Work:
        """Return memory traffic without counted arithmetic (norm, rope, activation, copies)."""
        traffic_bytes = {Traffic.ACTIVATIONS: activations}
        if kv is not None:
            traffic_bytes[Traffic.KV] = kv
        return Work(
            name=name,
            kind=OpKind.ELEMENTWISE,
            dtype=self.at.core_dtype,
            flops=NONE,
            traffic_bytes=traffic_bytes,
            replication=ONE,
            shape=shape,
            sizes=sizes or {},
        )

    def norm(self, name: str, rows: Column, *, summed: Column | None = None) -> Work:
        """Return residual add and norm of `rows` tokens: read x and residual, write both.

        `summed`: ranks over which an all-reduce has just summed x.
        """
        shape = f"[{{t}}, {self.hidden}] + [{{t}}, {self.hidden}]"
        work = self.elementwise(name, rows * (4 * self.hidden * WIDE_BYTES), shape=shape, sizes={"t": rows})
        return work if summed is None else replace(work, summed=summed)

    def norms(self, name: str, residual: str, block: Block) -> list[Node]:
        """Return the norms of a block's input and output: the residual is added in one, another reads and writes.

        A block without norms of its own runs beside another, whose output it is added to while still a partial sum.
        """
        rows, summed = self.residual_rows(residual), self.at.tp if residual != "sequence" else None
        nodes: list[Node] = [self.norm(f"{name}.norm", rows, summed=summed)] if block.pre_norm else []
        if block.post_norm and block.pre_norm:
            size, shape = rows * (2 * self.hidden * WIDE_BYTES), f"[{{t}}, {self.hidden}]"
            nodes.append(self.elementwise(f"{name}.post-norm", size, shape=shape, sizes={"t": rows}))
        elif block.post_norm:
            nodes.append(self.norm(f"{name}.post-norm", rows))
        if block.out_conv:
            new = self.at.new_tokens
            kept = (block.out_conv - 1 + new) / new if self.at.generates else 0
            size, shape = rows * ((2 + kept) * self.hidden * WIDE_BYTES), f"[{{t}}, {self.hidden}]"
            nodes.append(self.elementwise(f"{name}.conv", size, shape=shape, sizes={"t": rows}))
        return nodes

    def message(self, name: str, kind: CollectiveKind, role: str, message_bytes: Column) -> Message:
        """Return a collective over `role`."""
        return Message(name=name, kind=kind, role=role, message_bytes=message_bytes)

    def gathered_latents(self, width: int) -> Message:
        """Return the gather of latents, `width` bf16 elements a token, whose projections TP splits."""
        return self.message("gather-latents", CollectiveKind.ALL_GATHER, "tp", self.at.tokens * (width * WIDE_BYTES))

    def layout(self, tp: str, dpa: str = "T") -> Layout:
        """Return a layout of the residual stream: what the ranks of TP (and DPA) hold."""
        return layout(tp=tp, dpa=dpa) if self.has_dpa else layout(tp=tp)

    def residual_layout(self, residual: str) -> Layout:
        """Return the layout a residual choice names: `replicated` over TP, or `sequence` split."""
        return self.layout(tp="T" if residual == "sequence" else "R")

    def reshard(self, source: Layout, target: Layout, element_bytes: float = WIDE_BYTES, width: int = 0) -> Choice:
        """Return the Choice of every plan between two layouts of [tokens of the replica, `width`]; 0 is H."""
        return self._reshard(reshard_tree(source, target, "stage"), (width or self.hidden) * element_bytes)

    def _reshard(self, tree: Tree, row_bytes: float) -> Choice:
        key = (id(tree), row_bytes)
        if key not in self._reshards:
            plans: list[Plan] = []
            for step, rest in tree:
                after = (self._reshard(rest, row_bytes),) if rest else ()
                nodes = (self._step(step, row_bytes), *after) if step else ()
                plans.append(Plan(name=_told_apart(step, plans), nodes=nodes))
            self._reshards[key] = Choice(name="reshard", plans=tuple(plans))
        return self._reshards[key]

    def _step(self, step: Step, row_bytes: float) -> Message:
        key = (step, row_bytes)
        if key not in self._messages:
            size = self.at.tokens * row_bytes
            if self.has_dpa and "dpa" not in step.divisor:
                size = size * self.at.dpa
            if "tp" in step.divisor:
                size = size / self.at.tp
            self._messages[key] = Message(name=step_name(step), kind=step.kind, role=step.role, message_bytes=size)
        return self._messages[key]

    def edges(
        self, name: str, residual: str, fmt: str, block: Block, came: "Lowering | None" = None
    ) -> tuple[Node, ...]:
        """Return what surrounds a block whose output is a partial sum over TP: norms, way in, way out.

        Tokens are gathered in what the block's first GEMM takes, by weights of format `fmt`; `came` lowers the way in
        where more tokens come in than go out.
        """
        here, out = self.residual_layout(residual), self.layout(tp="P")
        return (*(came or self).way_in(name, residual, fmt, block), self.reshard(out, here))

    def way_in(self, name: str, residual: str, fmt: str, block: Block) -> tuple[Node, ...]:
        """Return the norms of a block and the gather of its input."""
        here, inside = self.residual_layout(residual), self.layout(tp="R")
        gather = (self.reshard(here, inside, self.narrow_bytes(fmt)),) if here != inside else ()
        return (*self.norms(name, residual, block), *gather)

    def residual_rows(self, residual: str) -> Column:
        """Return the tokens of the residual stream that a chip holds."""
        if residual != "sequence":
            return self.at.tokens
        if self._split_rows is None:
            self._split_rows = np.ceil(self.at.tokens / self.at.tp)
        return self._split_rows


def _told_apart(step: Step | None, plans: list[Plan]) -> str:
    """Return a step's name, with the roles that slice its message where another first step has the same name."""
    name = step_name(step)
    if step is None or all(plan.name != name for plan in plans):
        return name
    return f"{name}/{'+'.join(sorted(step.divisor))}"
