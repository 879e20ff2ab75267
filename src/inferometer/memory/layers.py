"""The caches of a stage's layers, as an engine sees them: so many bytes a token and layer, or a state.

Letters: S context, W window.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from inferometer.memory.asked import Asked, columns_of
from inferometer.memory.weights import cache_format, layer_caches, layer_shards


class Kind(NamedTuple):
    """Caches that are kept alike."""

    entry_bytes: float
    """Of one entry of one layer on a chip; of a state, all of it."""
    tokens: int = 1
    """Tokens an entry stands for."""
    most: int | None = None
    """Entries kept at most."""
    fixed: bool = False
    latent: bool = False
    """One head for all TP ranks, in blocks of its own size."""


def kinds_by_layer(asked: Asked) -> list[list[Kind]]:
    """Return what each layer keeps, on a chip: a kind for each cache that grows, and one for all its states.

    A layer keeps them once for each visit.
    """
    sizes = columns_of(asked)
    known: dict[object, list[Kind]] = {}
    found = []
    for layer in asked.model.layers:
        if layer not in known:
            shards, kept, state = layer_shards(asked.model, layer, sizes), [], 0.0
            for cache in layer_caches(asked.model, layer, expanded=asked.rules.expands_latents):
                size = float(cache.local_bytes(shards, np.ones(1), cache_format(cache, asked.model)).item())
                if cache.fixed:
                    state += size
                elif cache.images:
                    continue  # not of its text: `image_bytes`
                else:
                    kept.append(Kind(size, cache.tokens, cache.most, latent=not cache.split))
            known[layer] = [*kept, *([Kind(state, fixed=True)] if state else [])] * layer.visits
        found.append(known[layer])
    return found


def image_bytes(asked: Asked, stage: range) -> float:
    """Return what the layers of a stage keep of a sequence's images for cross-attention."""
    sizes, total = columns_of(asked), 0.0
    for layer in asked.model.layers[stage.start : stage.stop] if asked.cross_tokens else ():
        shards = layer_shards(asked.model, layer, sizes)
        for cache in layer_caches(asked.model, layer):
            if cache.images:
                size = cache.local_bytes(shards, sizes["dcp"], cache_format(cache, asked.model)).item()
                total += layer.visits * size * cache.entries(0.0, asked.cross_tokens)
    return float(total)


def stage_slices(splits: Sequence[int]) -> list[range]:
    """Return the layers of each stage.

    >>> stage_slices((3, 2))
    [range(0, 3), range(3, 5)]
    """
    bounds = [0]
    for layers in splits:
        bounds.append(bounds[-1] + layers)
    return [range(a, b) for a, b in pairwise(bounds)]


def kept_tokens(kind: Kind, asked: Asked, length: int) -> int:
    """Return the tokens of a sequence of `length` that a chip keeps: ceil(S / DCP), or a window and a pass of tokens.

    A window is kept whole on every DCP rank. A pass writes before it forgets: W - 1 + tokens in flight.
    """
    if kind.most is None:
        return -(-length // asked.sizes.dcp)
    window = kind.most * kind.tokens
    return min(window - 1 + asked.rules.in_flight_passes * asked.pass_tokens, length)
