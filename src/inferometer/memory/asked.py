"""What a question about memory says: the deployment, the lengths, and the engine's settings."""

from dataclasses import dataclass

import numpy as np

from inferometer.graph.ops import Column
from inferometer.specs.deployment import ROLES, Sizes
from inferometer.specs.memory import Defaults, EngineMemory, ReservedShare, TowerShare
from inferometer.specs.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question. None is what the engine takes where nobody says."""

    model: ModelSpec
    chip: str
    """Id of the chip: some defaults are by product."""
    visible_bytes: float
    sizes: Sizes
    splits: tuple[int, ...]
    """Layers of each pipeline stage."""
    rules: EngineMemory
    context: int
    """Tokens that each sequence in flight holds."""
    max_model_len: int
    """Tokens that a sequence may hold: what the engine makes room for."""
    cross_tokens: int = 0
    """Image tokens of each sequence that cross-attention keeps beside its own."""
    batch: int = 1
    """Sequences in flight over the whole deployment."""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    share: float | None = None
    reserve_bytes: float | None = None
    """Instead of the share: bytes that weights and KV leave alone, whatever for."""
    eager: bool = False
    """No captured graphs."""
    gpu_layers: int | None = None
    """The last so many layers are on the chip, and with one more the head; None: all. The others are the host's."""
    offload_bytes: float = 0.0
    """Weights that the host keeps for each chip."""
    host_tier_bytes: float = 0.0
    """Host memory of each chip for prefixes that its pool has no room for."""
    disk_tier_bytes: float = 0.0
    """The same, on disk."""
    adapters: int = 0
    """LoRA adapters held at once."""
    adapter_rank: int = 0
    state_slots: int | None = None
    """Copies of its states that a sequence holds; None: as the engine keeps them."""
    unified: bool = False
    """The chip shares the host's memory."""
    cached_prefixes: bool = False
    """Prefixes are kept for later requests."""

    @property
    def ranks(self) -> int:
        """Attention ranks that each hold their own sequences: R x DPA."""
        return self.sizes.r * self.sizes.dpa

    @property
    def sequences(self) -> int:
        """B: sequences of a rank."""
        return -(-self.batch // self.ranks)

    @property
    def slots(self) -> int:
        """Copies of its states that a sequence holds."""
        if self.state_slots is not None:
            return self.state_slots
        return self.rules.cached_state_blocks if self.cached_prefixes else self.rules.state_blocks

    @property
    def first_layer(self) -> int:
        """The first layer that is on the chip."""
        return 0 if self.gpu_layers is None else max(len(self.model.layers) - self.gpu_layers, 0)

    @property
    def holds_head(self) -> bool:
        """Whether the chip holds the head."""
        return self.gpu_layers is None or self.gpu_layers > len(self.model.layers)

    @property
    def defaults(self) -> Defaults:
        """The row of defaults for this chip and TP."""
        for row in self.rules.defaults:
            fits = self.visible_bytes >= row.least_memory_bytes and self.sizes.tp >= row.least_tp
            if fits and not self.chip.startswith(row.not_chips):
                return row
        return self.rules.defaults[-1]

    @property
    def seqs(self) -> int:
        """Sequences at once that a rank is started for: as told, the default, or as many as are in flight."""
        if self.max_num_seqs is not None:
            return self.max_num_seqs
        return max(self.defaults.max_num_seqs or 0, self.sequences)

    @property
    def pass_tokens(self) -> int:
        """Tokens of a rank's largest pass; of an engine that states none, one of each sequence of a microbatch."""
        if self.max_num_batched_tokens is not None:
            return self.max_num_batched_tokens
        stated = self.defaults.max_num_batched_tokens
        return -(-self.sequences // min(self.sizes.pp, self.sequences)) if stated is None else stated

    @property
    def logit_rows(self) -> int:
        """Rows of the largest pass whose logits are made."""
        tokens, kind = self.pass_tokens, self.rules.logit_rows
        if kind == "prompts":
            return -(-tokens // min(tokens, self.model.max_context))
        return tokens if kind == "tokens" else min(self.seqs, tokens)

    @property
    def used_share(self) -> float:
        """The share of memory that the engine takes."""
        if self.reserve_bytes is not None:
            return 1 - self.reserve_bytes / self.visible_bytes
        if self.share is not None:
            return self.share
        rule = self.rules.share
        share = reserved_share(rule, self) if isinstance(rule, ReservedShare) else rule
        return share * tower_factor(self.rules.tower_share, self.model)


def reserved_share(rule: ReservedShare, asked: Asked) -> float:
    """Return (memory - reserved) / memory, as SGLang rounds it.

    reserved = fixed + a token of the largest pass + a sequence of the largest graph + a chip, DPA ranks apart; large
    chips reserve at least `least_bytes`.
    """
    sizes, graph = asked.sizes, asked.defaults.max_num_seqs or 1
    reserved = rule.fixed_bytes + rule.bytes_per_token * max(asked.pass_tokens, rule.least_tokens)
    reserved += rule.bytes_per_sequence * graph + rule.bytes_per_chip * sizes.tp * sizes.dpa * sizes.pp
    if sizes.dpa > 1:
        each = rule.dpa_bytes_per_sequence * (1.5 if graph > rule.large_graph else 1.0)
        reserved += each * graph * sizes.dpa
    if asked.visible_bytes >= rule.large_memory_bytes:
        reserved = max(reserved, rule.least_bytes)
    return max(round((asked.visible_bytes - reserved) / asked.visible_bytes, 3), 0.0)


def tower_factor(rule: TowerShare | None, model: ModelSpec) -> float:
    """Return what a share is multiplied by for the model's vision tower; 1 without one."""
    found = [tower for tower in model.towers if tower.image is not None]
    if rule is None or not found:
        return 1.0
    layers = [part for part in found[0].parts if part.heads]
    size = sum(part.layers * part.width**2 for part in layers) / (rule.layers * rule.width**2)
    return rule.base_share * min(max(1 - rule.slope_share * (size - 1), rule.least_share), rule.most_share)


def columns_of(asked: Asked) -> dict[str, Column]:
    """Return the role sizes as columns of one sharding."""
    return {role: np.array([float(getattr(asked.sizes, role))]) for role in ROLES}
