"""What a pass needs beside weights and caches, by the engine's rule.

Letters: T tokens of the pass, H hidden, V vocabulary, N query heads, S cells of a sequence, k experts a token, F width.
"""

from inferometer.blocks.kinds import ffn_tensors, heads
from inferometer.memory.asked import Asked, columns_of
from inferometer.memory.footprint import ACTIVATION_BYTES, activation_bytes_per_token
from inferometer.specs.feedforward import Moe


def activation_bytes(asked: Asked, *, last: bool) -> float:
    """Return the peak of the largest pass on a chip of the last stage, or of another.

    max(forward, hidden states + experts' workspace + logits) + scores. forward = T x the widest block's outputs x
    copies. Logits count `logit_bytes` for each of V and each sequence (or token): sampling makes copies of them; they
    are whole on every TP rank. Scores, where the core is not fused, are N S T of one sequence. Source: the rules' own.
    """
    rules, tokens = asked.rules, asked.pass_tokens
    sizes = columns_of(asked)
    forward = tokens * float(activation_bytes_per_token(asked.model, sizes)[0]) * rules.activation_ratio
    rows = tokens if rules.logit_rows == "tokens" else min(asked.seqs, tokens)
    logits = rules.logit_bytes * rows * asked.model.vocab if last else 0.0
    hidden = ACTIVATION_BYTES * tokens * asked.model.hidden
    return max(forward, hidden + _workspace(asked, tokens) + logits) + _scores(asked, tokens)


def _workspace(asked: Asked, tokens: int) -> float:
    """Return k DPA / EP copies of each token, once through the wider of the experts' inner sides and once through F.

    Formats that the engine pads have kernels of their own, without it.
    """
    if not asked.rules.expert_workspace:
        return 0.0
    model, sizes = asked.model, asked.sizes
    widest = 0.0
    for block in model.ffns:
        if isinstance(block, Moe):
            own = [x for x in ffn_tensors(block, model.hidden, model.dtype) if x.kind == "experts" and x.cols > 1]
            if not {x.format for x in own} & set(asked.rules.pads):
                into = sum(x.rows for x in own if x.split_rows) / sizes.etp
                copies = block.top_k * sizes.dpa / sizes.ep
                widest = max(widest, copies * (max(into, float(model.hidden)) + block.width / sizes.etp))
    return ACTIVATION_BYTES * tokens * widest


def _scores(asked: Asked, tokens: int) -> float:
    if not asked.rules.score_bytes:
        return 0.0
    most = max((part.query for mixer in asked.model.mixers for part in heads(mixer)), default=0)
    cells = -(-asked.context // asked.rules.block_size) * asked.rules.block_size
    return asked.rules.score_bytes * -(-most // asked.sizes.tp) * cells * tokens
