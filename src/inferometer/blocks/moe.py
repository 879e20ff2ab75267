"""Mixture of experts: router, routed experts behind a dispatch Choice, shared experts beside.

Letters: T tokens of a DPA rank, Ta = T DPA tokens of the replica, H hidden, Hl what experts take (H, or a latent's
width), F expert width, E experts, k a token.
EP spreads the experts, ETP splits each one's width. EP x ETP = DPA x TP: the same chips seen another way, so
a partial sum over EP x ETP is a partial sum over DPA x TP.

Ways to bring tokens to experts (dispatch) and results back (combine):
  gather      every rank gets every token, runs its experts on them, outputs are partial sums
  exchange    each rank takes a slice of the tokens and sends them to their experts by all-to-all:
    expanded      a copy for each chosen expert
    coalesced     a copy for each distinct rank
    merged        a copy for each distinct part beyond the outermost axis, spread to its ranks inside
    *-etp-first   the same, but tokens are gathered over ETP before the all-to-all instead of after
Tokens travel as the experts take them, quantised before they are sent. Shared experts run on a rank's own tokens,
split over TP. After a gather their partial sums are added to the routed ones at once (a rank has none for other
ranks' tokens) and are reduced with them; after an exchange they join at the layout where that is cheapest.

Experts behind a latent: TP splits the features of the projection to Hl, which are gathered before tokens are sent, and
those that the projection back to H takes, whose partial sums are reduced with the shared experts'. (SGLang 0.5.23 and
vLLM hold both projections whole on every rank: more memory, less traffic.) Shared experts take H.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from inferometer.blocks.ffn import dense
from inferometer.blocks.lowering import WIDE_BYTES, Lowering
from inferometer.blocks.moe_tensors import HASH_ENTRY, tensors
from inferometer.blocks.routing import Busiest, experts_a_token
from inferometer.blocks.tensors import Tensor, local_rows, one_copy_bytes
from inferometer.graph.layout import Layout
from inferometer.graph.ops import (
    Branch,
    Choice,
    CollectiveKind,
    Column,
    Item,
    Message,
    Node,
    OpKind,
    Plan,
    Traffic,
    Work,
)
from inferometer.specs.feedforward import Moe
from inferometer.specs.formats import bytes_per_element, find_format


def lower(block: Moe, low: Lowering, dtype: str) -> list[Item]:
    """Return the ops that no residual layout changes: experts and, on a branch of their own, shared experts."""
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    busiest = busiest_of(block, low)
    nodes = _routed_side(block, _routed(block, low, by_name, busiest))
    if block.shared_width:
        ins = tuple(by_name[n] for n in ("shared_gate_proj", "shared_up") if n in by_name)
        nodes += (_shared_side(dense(low, "shared.", ins, by_name["shared_down"])),)
    return list(nodes)


def _routed_side(block: Moe, nodes: Iterable[Node]) -> tuple[Item, ...]:
    """Return nodes as what runs beside the shared experts, where there are any."""
    return (Branch(side="left", nodes=tuple(nodes)),) if block.shared_width else tuple(nodes)


def _shared_side(nodes: Iterable[Node]) -> Branch:
    return Branch(side="right", nodes=tuple(nodes))


def busiest_of(block: Moe, low: Lowering) -> Busiest:
    """Return what the busiest rank receives in this pass; worked out once a block."""
    busiest: Busiest = low.once("busiest", block, lambda: low.at.busiest_rank(block, low.at.ep))
    return busiest


def _routed(block: Moe, low: Lowering, by_name: dict[str, Tensor], busiest: Busiest) -> list[Node]:
    ins = tuple(by_name[n] for n in ("gate", "up") if n in by_name)
    down = by_name["down"]
    width = local_rows(ins[0], low.shards)
    copies, inner = busiest.copies, block.latent_width or low.hidden
    row, sizes = f"[{{t}}, {inner}]", {"t": copies, "i": width * len(ins), "o": width}
    sent, acted = 2 * inner * low.narrow_bytes(ins[0].format), width * ((len(ins) + 1) * WIDE_BYTES)
    return [
        low.elementwise("experts.permute", copies * sent, shape=row, sizes=sizes),
        *_grouped(block, low, "experts." + "+".join(t.name for t in ins), ins, busiest),
        low.elementwise("experts.activation", copies * acted, shape="[{t}, {i}] -> [{t}, {o}]", sizes=sizes),
        *low.quantise("experts.down", down.format, copies * width),
        *_grouped(block, low, "experts.down", (down,), busiest),
        low.elementwise("experts.unpermute", copies * (2 * inner * WIDE_BYTES), shape=row, sizes=sizes),
    ]


def _grouped(block: Moe, low: Lowering, name: str, parts: tuple[Tensor, ...], busiest: Busiest) -> tuple[Node, ...]:
    """Return a grouped GEMM on the busiest rank: flops of its copies, weights of its distinct experts."""
    at = low.at
    rows = np.asarray(0.0)
    weights = np.asarray(0.0)
    for tensor in parts:
        rows = rows + local_rows(tensor, low.shards)
        weights = weights + one_copy_bytes(tensor, low.shards)
    cols = np.ceil(parts[0].cols / (at.etp if parts[0].split_cols else 1.0))
    mean = at.replica_sequences * at.new_tokens * (experts_a_token(block) / at.ep)
    elements = sum(t.rows * t.cols for t in parts)
    work = Work(
        name=name,
        kind=OpKind.GROUPED_GEMM,
        dtype=at.dtypes[parts[0].format],
        flops=busiest.copies * (2 * rows * cols),
        traffic_bytes={
            Traffic.WEIGHTS: busiest.distinct * weights,
            Traffic.ACTIVATIONS: busiest.copies * (cols * low.narrow_bytes(parts[0].format) + rows * WIDE_BYTES),
        },
        replication=busiest.copies / mean * (at.etp * rows * cols / elements),
        stored=parts[0].format,
        rows=busiest.copies / busiest.distinct,
        features=rows,
        items=busiest.distinct,
        shape="[{t}, {c}] x {e} of [{r}, {c}] -> [{t}, {r}]",
        sizes={"t": busiest.copies, "c": cols, "e": busiest.distinct, "r": rows},
    )
    return low.unpacked((work,), parts[0].format, busiest.distinct * (rows * cols))


def edges(block: Moe, low: Lowering, residual: str, dtype: str) -> tuple[Item, ...]:
    """Return what surrounds the experts under one residual layout: norm, router, latent, dispatch and combine.

    Shared experts wait for the norm (and for the router where it also gates them), routed ones for router, quantise
    and dispatch; both are done before they are added.
    """
    fmt = block.formats.get("up", dtype)
    rows = low.residual_rows(residual)
    by_name = {t.name: t for t in tensors(block, low.hidden, dtype)}
    gates = tuple(by_name[n] for n in ("router", "shared_gate") if n in by_name)
    scores = low.gemm("+".join(gate.name for gate in gates), gates, rows, low.at.tokens)
    weighed = block.shared_gate or block.routed_shared
    dispatches = _latent_dispatches if block.latent_width else _dispatches
    return (
        *low.norms("ffn", residual, block),
        *_kept(block, low, rows),
        *(scores if weighed else _routed_side(block, scores)),
        *_routed_side(block, _hash_lookup(block, low, rows)),
        *_branch_norms(block, low, rows),
        *dispatches(block, low, residual, by_name, fmt),
    )


def _kept(block: Moe, low: Lowering, rows: Column) -> list[Node]:
    """Return what experts beside other blocks cost (LongCat's shortcut): their sum is kept until it is added."""
    if block.pre_norm or block.post_norm:
        return []
    return [low.elementwise("experts.kept", rows * (2 * low.hidden * WIDE_BYTES))]


def _dispatches(block: Moe, low: Lowering, residual: str, by_name: dict[str, Tensor], fmt: str) -> tuple[Item, ...]:
    """Return the two ways to bring tokens to experts and results back, both ending at the residual layout."""
    del by_name
    sent, rows = low.narrow_bytes(fmt), low.residual_rows(residual)
    here = low.residual_layout(residual)
    whole, own, split = low.layout(tp="R", dpa="R"), low.layout(tp="R"), low.layout(tp="T")
    partial = low.layout(tp="P", dpa="P")
    shared_in = (_shared_side([low.reshard(here, own, sent)]),) if block.shared_width and here != own else ()
    gathered = _between(low, here, whole, sent)
    gather = Plan(name="gather", nodes=(*_routed_side(block, gathered), low.reshard(partial, here)))
    exchanged = (
        *_between(low, here, split, sent),
        low.once("exchange", block, lambda: _exchanges(block, low, sent)),
    )
    exchange = Plan(
        name="exchange",
        nodes=(*shared_in, *_routed_side(block, exchanged), _join(block, low, split, here)),
    )
    return (
        *_routed_side(block, low.quantise("dispatch", fmt, rows * low.hidden)),
        Choice(name="moe-dispatch", plans=(gather, exchange)),
    )


def _latent_dispatches(
    block: Moe, low: Lowering, residual: str, by_name: dict[str, Tensor], fmt: str
) -> tuple[Item, ...]:
    """Return the same for experts behind a latent: tokens and results are Hl wide, and every rank of TP has them."""
    at, inner, sent = low.at, block.latent_width, low.narrow_bytes(fmt)
    here = low.residual_layout(residual)
    whole, own, split = low.layout(tp="R", dpa="R"), low.layout(tp="R"), low.layout(tp="T")
    down = (
        *low.gemm("latent_down", (by_name["latent_down"],), at.tokens),
        *low.quantise("dispatch", fmt, at.tokens * np.ceil(inner / at.tp)),
        low.message("gather-latent", CollectiveKind.ALL_GATHER, "tp", at.tokens * (inner * sent)),
    )
    norm = [low.elementwise("latent-norm", at.tokens * (2 * inner * WIDE_BYTES))] if block.latent_norm else []
    up = (*norm, *low.gemm("latent_up", (by_name["latent_up"],), at.tokens))
    gather = (*_between(low, own, whole, sent, inner), low.reshard(low.layout(tp="P", dpa="P"), own, width=inner))
    exchange = (
        *_between(low, own, split, sent, inner),
        low.once("exchange", block, lambda: _exchanges(block, low, sent)),
        *_between(low, split, own, WIDE_BYTES, inner),
    )
    plans = (Plan(name="gather", nodes=gather), Plan(name="exchange", nodes=exchange))
    return (
        *_between(low, here, own, low.narrow_bytes(by_name["latent_down"].format)),
        *_routed_side(block, (*down, Choice(name="moe-dispatch", plans=plans), *up)),
        low.reshard(low.layout(tp="P"), here),
    )


def _hash_lookup(block: Moe, low: Lowering, rows: Column) -> list[Node]:
    """Return the lookup of each token's experts in a table, k numbers a token."""
    if not block.hash_vocab:
        return []
    return [low.elementwise("hash-lookup", rows * (block.top_k * bytes_per_element(find_format(HASH_ENTRY))))]


def _branch_norms(block: Moe, low: Lowering, rows: Column) -> list[Node]:
    """Return the norms at the ends of the branches: read and write each."""
    if not block.branch_norms:
        return []
    return [low.elementwise("ffn.branch-norms", rows * (block.branch_norms * 2 * low.hidden * WIDE_BYTES))]


def _between(low: Lowering, source: Layout, target: Layout, element_bytes: float, width: int = 0) -> tuple[Node, ...]:
    return () if source == target else (low.reshard(source, target, element_bytes, width),)


FEWER = {"expanded": "coalesced", "expanded-etp-first": "coalesced-etp-first"}
"""Exchange -> the one that sends no more: a rank has no more distinct tokens than copies."""


def _exchanges(block: Moe, low: Lowering, sent: float) -> Choice:
    """Return the Choice of ways to send tokens to their experts and results back."""
    inner = block.latent_width or low.hidden
    there = _one_way(block, low, inner * sent, combine=False)
    back = _one_way(block, low, inner * WIDE_BYTES, combine=True)
    plans = (
        Plan(name=name, nodes=(*there[name], *back[name][::-1]), never_beats=FEWER.get(name, "")) for name in there
    )
    return Choice(name="moe-exchange", plans=tuple(plans))


def _one_way(block: Moe, low: Lowering, row: float, *, combine: bool) -> dict[str, tuple[Message, Message]]:
    """Return each exchange's two messages out, by name: all-to-all over EP and gather over ETP, as they run.

    `combine` gives those back, last first: a scatter, and the all-to-all. A rank's ETP peers take 1/ETP of its copies
    each when the gather comes after; all of them when before, and then only own tokens (T / TP of them) were gathered.
    `row` is the bytes of one token. Message of the busiest rank.
    """
    at, busiest = low.at, busiest_of(block, low)

    def over_ep(message_bytes: Column) -> Message:
        return low.message("combine" if combine else "dispatch", CollectiveKind.ALL_TO_ALL, "ep", message_bytes)

    def over_etp(message_bytes: Column) -> Message:
        kind = CollectiveKind.REDUCE_SCATTER if combine else CollectiveKind.ALL_GATHER
        return low.message("scatter-etp" if combine else "gather-etp", kind, "etp", message_bytes)

    first = over_etp(np.ceil(at.tokens / at.tp) * at.etp * row)
    ways: dict[str, tuple[Message, Message]] = {}
    for name, copies in (("expanded", busiest.copies), ("coalesced", busiest.tokens)):
        ways[name] = over_ep(copies / at.etp * row), over_etp(copies * row)
        ways[f"{name}-etp-first"] = first, over_ep(copies * row)
    across, spread = ways["coalesced"]
    return ways | {"merged": (_merged(across, block, low, row), spread)}


def _merged(across: Message, block: Moe, low: Lowering, row: float) -> Message:
    """Return the all-to-all that merges copies on their way out: DeepEP's normal kernels.

    Of n ranks in p parts, a part takes a token once if any of its experts are chosen; its n / p ranks share what
    arrives. Inside a part a token goes to each distinct rank, as coalesced.
    """
    at = low.at
    known: dict[int, tuple[Column, Column]] = low.once("merged", block, dict)

    def sized(parts: Column) -> Column:
        """Return bytes a rank takes in from beyond its part, were the role cut into `parts`."""
        if id(parts) not in known:
            per_part = at.busiest_tokens(block, parts)
            known[id(parts)] = parts, per_part / (np.maximum(at.ep / parts, 1.0) * at.etp)
        return known[id(parts)][1] * row

    return replace(across, merged_bytes=sized)


def _join(block: Moe, low: Lowering, routed: Layout, target: Layout) -> Node:
    """Return the Choice of layouts at which routed and shared outputs are added, then brought to `target`."""
    if not block.shared_width:
        return low.reshard(routed, target)
    shared = low.layout(tp="P")
    plans = []
    for name, layout in (("split", low.layout(tp="T")), ("target", target)):
        nodes = (
            *_routed_side(block, _between(low, routed, layout, WIDE_BYTES)),
            _shared_side(_between(low, shared, layout, WIDE_BYTES)),
            *_between(low, layout, target, WIDE_BYTES),
        )
        plans.append(Plan(name=f"add-{name}", nodes=nodes))
    return Choice(name="join-shared", plans=tuple(plans))
