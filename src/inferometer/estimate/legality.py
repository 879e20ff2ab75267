"""Which shardings a model and an engine allow, by named rule, as columns."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from inferometer.blocks.kinds import cuts_latents, grows
from inferometer.blocks.kinds import heads as block_heads
from inferometer.blocks.model import unit_count
from inferometer.blocks.tensors import Heads
from inferometer.graph.ops import Column, Mask
from inferometer.specs.deployment import EngineSpec
from inferometer.specs.feedforward import FeedForward, Moe
from inferometer.specs.formats import find_format
from inferometer.specs.lookup import Lookup
from inferometer.specs.model import ModelSpec


class Rule(NamedTuple):
    """A rule of the model or the engine: where it is broken, and what to change."""

    name: str
    broken: Mask
    advice: str


Sizes = Mapping[str, Column]


def broken_rules(model: ModelSpec, engine: EngineSpec, sizes: Sizes) -> list[Rule]:
    """Return every rule with the shardings that break it; `sizes` are columns of one shape."""
    rules = [
        Rule(
            "stages-exceed-layers",
            sizes["pp"] > unit_count(model),
            f"PP must be at most {unit_count(model)}, the layers of {model.name}",
        ),
        Rule("dcp-not-divisor", sizes["tp"] % sizes["dcp"] != 0, "DCP must divide TP"),
    ]
    if engine.vocab_multiple:
        padded = -(-model.vocab // engine.vocab_multiple) * engine.vocab_multiple
        advice = f"{engine.id} wants TP to divide the vocabulary of {model.vocab}, padded to {padded}"
        rules.append(Rule("vocabulary-not-divisible", padded % sizes["tp"] != 0, advice))
    if not grows(model):
        advice = f"{model.name} caches nothing along the sequence: DCP must be 1"
        rules.append(Rule("dcp-without-kv", sizes["dcp"] > 1, advice))
    for mixer in model.mixers:
        for held in block_heads(mixer):
            rules += _mixer_rules(held, engine, sizes)
    if engine.whole_latents and cuts_latents(model):
        advice = f"{engine.id} keeps the projections to latents whole on every rank: leave --cut-latents out"
        rules.append(Rule("engine-refuses-cut-latents", sizes["tp"] > 1, advice))
    for ffn in model.ffns:
        if isinstance(ffn, Lookup):
            continue
        rules += _moe_rules(ffn, engine, sizes) if isinstance(ffn, Moe) else [_width_rule(ffn.width, sizes)]
        if engine.block_aligned:
            rules += _block_rules(ffn, engine, sizes)
    return rules


def _mixer_rules(held: Heads, engine: EngineSpec, sizes: Sizes) -> list[Rule]:
    tp, (heads, kv_heads, groups, what) = sizes["tp"], held
    rules = [
        Rule("tp-exceeds-heads", tp > heads, f"TP must be at most {heads}, the {what}"),
        Rule("heads-not-divisible", heads % tp != 0, f"TP must divide the {heads} {what}"),
    ]
    if groups:
        advice = f"TP must divide the {groups} groups of a recurrent state, or be a multiple of them"
        rules.append(Rule("groups-not-divisible", (groups % tp != 0) & (tp % groups != 0), advice))
    return rules + (_kv_rules(kv_heads, engine, sizes) if kv_heads else [])


def _kv_rules(kv_heads: int, engine: EngineSpec, sizes: Sizes) -> list[Rule]:
    tp, dcp = sizes["tp"], sizes["dcp"]
    ranks = tp / dcp
    rules = [
        Rule(
            "kv-heads-not-divisible",
            (kv_heads % np.maximum(ranks, 1.0) != 0) & (ranks % kv_heads != 0),
            f"TP/DCP must divide the {kv_heads} kv heads, or be a multiple of them",
        ),
    ]
    if engine.dcp_within_replication:
        rules.append(
            Rule(
                "engine-refuses-dcp",
                (dcp > 1) & (dcp > np.floor(tp / kv_heads)),
                f"{engine.id} takes DCP only up to TP / kv heads ({kv_heads})",
            )
        )
    return rules


def _width_rule(width: int, sizes: Sizes) -> Rule:
    return Rule("width-not-divisible", width % sizes["tp"] != 0, f"TP must divide the FFN width {width}")


def _moe_rules(moe: Moe, engine: EngineSpec, sizes: Sizes) -> list[Rule]:
    ep, etp, tp = sizes["ep"], sizes["etp"], sizes["tp"]
    held = moe.experts + moe.redundant
    rules = [
        Rule("ep-exceeds-experts", ep > held, f"EP must be at most {held}, the experts"),
        Rule("width-not-divisible", moe.width % etp != 0, f"ETP must divide the expert width {moe.width}"),
    ]
    if moe.shared_width:
        advice = f"TP must divide the shared expert width {moe.shared_width}"
        rules.append(Rule("width-not-divisible", moe.shared_width % tp != 0, advice))
    if engine.whole_experts:
        advice = f"{engine.id} wants EP to divide the {held} experts"
        rules.append(Rule("experts-not-divisible", held % ep != 0, advice))
    if engine.ep_spans_stage:
        advice = f"{engine.id} has EP = 1 or the whole stage"
        rules.append(Rule("engine-refuses-ep", (ep > 1) & (etp > 1), advice))
    return rules


def _block_rules(ffn: FeedForward, engine: EngineSpec, sizes: Sizes) -> list[Rule]:
    """Return the rule that a shard of a block-quantised weight ends on a block (vllm issue 17569)."""
    role = "etp" if isinstance(ffn, Moe) else "tp"
    block = max((find_format(f).block_rows for f in ffn.formats.values()), default=0)
    if block <= 1:
        return []
    advice = f"{engine.id} wants width / {role.upper()} a multiple of the {block}-wide quantisation block"
    return [Rule("block-not-divisible", (ffn.width / sizes[role]) % block != 0, advice)]


def legal_mask(model: ModelSpec, engine: EngineSpec, sizes: Sizes) -> Mask:
    """Return where no rule is broken."""
    legal = np.ones(sizes["tp"].shape, dtype=np.bool_)
    for rule in broken_rules(model, engine, sizes):
        legal &= ~rule.broken
    return legal
