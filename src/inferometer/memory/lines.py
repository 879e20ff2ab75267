"""A chip's memory line by line: what a stage's parts are called, and what they follow from."""

from collections.abc import Iterator
from typing import NamedTuple

from inferometer.memory.asked import Asked
from inferometer.memory.stage import Stage

TEXT = {
    "activations": "activations of the largest pass",
    "graphs": "captured graphs",
    "runtime": "runtime and collectives",
    "context": "driver context",
}
"""Part -> what its line says."""

BASIS_FIELDS = {
    "activations": (
        "activation_ratio",
        "encoder_ratio",
        "expert_workspace",
        "logit_bytes",
        "score_bytes",
        "latent_score_bytes",
    ),
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


def lines_of(asked: Asked, stage: Stage) -> Iterator[Line]:
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
        rows, whose = asked.logit_rows, "prompt" if asked.rules.logit_rows == "prompts" else "sequence"
        return f"{tokens}, logits of {rows:,} {whose}{'s' * (rows != 1)}"
    return ""
