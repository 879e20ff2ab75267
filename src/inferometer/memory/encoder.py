"""What the tower of a model takes in the pass that an engine sizes itself by.

Letters: T tokens of the pass, H hidden, I tokens of an item.
"""

from inferometer.blocks.images import ImageCount, largest_image
from inferometer.memory.asked import Asked
from inferometer.memory.footprint import ACTIVATION_BYTES
from inferometer.specs.tower import Tower, TowerPart


def encoder_cache_bytes(asked: Asked) -> float:
    """Return 2 H max(T, I): outputs of the tower that are held while the largest pass runs, whole on every TP rank.

    vLLM holds its encoder cache, budget max(max_num_batched_tokens, an item at its largest), through the profile run.
    Left out: videos, whose items may be larger. Qwen2.5-VL-7B: 16384 x 3584 x 2 = 112 MiB.
    """
    if not (asked.rules.encoder_cache and asked.model.towers):
        return 0.0
    return ACTIVATION_BYTES * asked.model.hidden * _budget(asked)


def encoder_pass_bytes(asked: Asked) -> float:
    """Return the activations of the tower over as many items as the budget holds, at least one.

    ratio x positions x (what a position carries, its normed copy, and the outputs of the widest part), bf16; TP cuts
    the linears that it splits.
    """
    if not asked.rules.encoder_cache:
        return 0.0
    return max((_pass_bytes(asked, tower) for tower in asked.model.towers), default=0.0)


def _pass_bytes(asked: Asked, tower: Tower) -> float:
    item = None if tower.image is None else largest_image(tower.image)
    if item is None:
        return 0.0
    items = max(_budget(asked) // item.tokens, 1)
    widest = max(
        (_over(item, part) * _width(part, asked.sizes.tp) for part in tower.parts if part.running), default=0.0
    )
    return asked.rules.encoder_ratio * ACTIVATION_BYTES * items * widest


def _over(item: ImageCount, part: TowerPart) -> int:
    return 0 if part.over is None else item.over(part.over)


def _width(part: TowerPart, tp: int) -> float:
    """Return the elements of a position: carried, normed, and the outputs of all linears of the part at once."""
    rows = sum(one.rows / (tp if one.split == "rows" else 1) for one in part.linears.values())
    return 2.0 * part.width + rows


def _budget(asked: Asked) -> int:
    """Return max(T, I), in tokens."""
    items = [largest_image(tower.image).tokens for tower in asked.model.towers if tower.image is not None]
    return max([asked.pass_tokens, *items])
