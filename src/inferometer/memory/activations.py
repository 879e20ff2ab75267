"""What a pass needs beside weights and caches, by the engine's rule.

Letters: T tokens of the pass, H hidden, V vocabulary, N query heads, S cells of a sequence, k experts a token, F width.
"""

from collections.abc import Sequence
from typing import NamedTuple

from inferometer.blocks.kinds import caches, expanded_caches, ffn_tensors, heads
from inferometer.memory.asked import Asked
from inferometer.memory.encoder import encoder_cache_bytes, encoder_pass_bytes
from inferometer.memory.footprint import ACTIVATION_BYTES
from inferometer.specs.feedforward import Moe


class Experts(NamedTuple):
    """One kind of routed experts whose kernels have a workspace."""

    inner: int
    """Rows of what goes in: gate and up."""
    width: int
    copies: int
    """k."""


def activation_bytes(
    asked: Asked, bytes_per_token: float, experts: Sequence[Experts], *, first: bool = True, last: bool
) -> float:
    """Return the peak of the largest pass on a chip of the first stage, the last, or another.

    `bytes_per_token` are the outputs of the widest block (`activation_bytes_per_token`), `experts` of `experts_of`.

    max(forward + scores, hidden states + experts' workspace + logits). forward = T x the widest block's outputs x a
    ratio. Logits count `logit_bytes` for each of V and each row that has them: sampling makes copies of them; they are
    whole on every TP rank. On the first stage a tower's outputs are held beside. Scores, where the core is not
    fused, are N S T of one sequence. Source: the rules' own.
    """
    rules, tokens = asked.rules, asked.pass_tokens
    forward = tokens * bytes_per_token * rules.activation_ratio
    logits = rules.logit_bytes * asked.logit_rows * asked.model.vocab if last else 0.0
    hidden = ACTIVATION_BYTES * tokens * asked.model.hidden
    peak = max(forward + _scores(asked, tokens), hidden + _workspace(asked, tokens, experts) + logits)
    return max(encoder_cache_bytes(asked) + peak, encoder_pass_bytes(asked)) if first else peak


def experts_of(asked: Asked) -> tuple[Experts, ...]:
    """Return the kinds of experts with a workspace; formats that the engine pads have kernels without one."""
    model, found = asked.model, []
    for block in model.ffns if asked.rules.expert_workspace else ():
        if isinstance(block, Moe):
            own = [x for x in ffn_tensors(block, model.hidden, model.dtype) if x.kind == "experts" and x.cols > 1]
            if not {x.format for x in own} & set(asked.rules.pads):
                found.append(Experts(sum(x.rows for x in own if x.split_rows), block.width, block.top_k))
    return tuple(found)


def _workspace(asked: Asked, tokens: int, experts: Sequence[Experts]) -> float:
    """Return k DPA / EP copies of each token, once through the wider of the experts' inner sides and once through F."""
    sizes, hidden, widest = asked.sizes, float(asked.model.hidden), 0.0
    for one in experts:
        copies = one.copies * sizes.dpa / sizes.ep
        widest = max(widest, copies * (max(one.inner / sizes.etp, hidden) + one.width / sizes.etp))
    return ACTIVATION_BYTES * tokens * widest


def _scores(asked: Asked, tokens: int) -> float:
    rules, widest = asked.rules, 0.0
    if not (rules.score_bytes or rules.mask_bytes or rules.latent_score_bytes):
        return 0.0
    cells = -(-asked.context // rules.block_size) * rules.block_size
    for mixer in asked.model.mixers:
        each = rules.latent_score_bytes if expanded_caches(mixer) != caches(mixer) else rules.score_bytes
        widest = max([widest, *(each * -(-part.query // asked.sizes.tp) for part in heads(mixer))])
    return (widest + rules.mask_bytes) * cells * tokens
