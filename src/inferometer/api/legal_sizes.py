"""Sizes that are left out, as the model allows them."""

from collections.abc import Mapping

import numpy as np

from inferometer.api.sizes import fill_sizes
from inferometer.blocks.kinds import is_moe
from inferometer.estimate.estimate import IDEAL
from inferometer.estimate.legality import Rule, broken_rules
from inferometer.specs.deployment import ROLES, Sizes
from inferometer.specs.model import ModelSpec


def broken_by(model: ModelSpec, sizes: Sizes) -> list[Rule]:
    """Return the rules of the model that a sharding breaks."""
    columns = {role: np.array([float(getattr(sizes, role))]) for role in ROLES}
    return [rule for rule in broken_rules(model, IDEAL, columns) if bool(rule.broken[0])]


def legal_sizes(model: ModelSpec, given: Mapping[str, int], n_chips: int) -> Sizes:
    """Return `fill_sizes`; where TP over all the model's heads is too much, the largest TP it allows.

    The rest is DPA of an MoE model, R of a dense one.

    >>> from inferometer.api.load import load_model
    >>> legal_sizes(load_model("deepseek-v3"), {}, 72)
    Sizes(r=1, pp=1, dpa=9, tp=8, ep=72, etp=1, dcp=1)
    """
    moe = is_moe(model)
    filled = fill_sizes(given, n_chips, moe=moe)
    rest = "dpa" if moe else "r"
    if "tp" in given or rest in given or not broken_by(model, filled):
        return filled
    for tp in range(filled.tp - 1, 0, -1):
        if filled.tp % tp == 0:
            tried = fill_sizes({**given, rest: filled.tp // tp}, n_chips, moe=moe)
            if not broken_by(model, tried):
                return tried
    return filled
