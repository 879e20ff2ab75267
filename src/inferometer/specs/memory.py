"""How an engine divides a chip's memory: numbers and rules, no arithmetic.

Parts that a rule names: `weights`; `activations` of the pass it sizes itself by; `graphs`, captured; `runtime`, what
libraries take once it runs (collectives); `context`, what the driver takes before.

pool = share x (visible - parts `before`) - parts `charged`; parts `outside` must fit in what is left.
"""

from typing import Literal

from inferometer.specs.block import Spec

Part = Literal["weights", "activations", "graphs", "runtime", "context"]


class Defaults(Spec, frozen=True, kw_only=True):
    """What an engine takes where nobody says, by chip and TP; the first row that applies counts."""

    least_memory_bytes: float = 0.0
    """Chips with at least so much visible memory."""
    least_tp: int = 1
    not_chips: tuple[str, ...] = ()
    """Beginnings of the ids of chips that it is not for."""
    max_num_batched_tokens: int | None = None
    """Tokens of the largest pass; None: the sequences in flight, a decode step."""
    max_num_seqs: int | None = None
    """Sequences at once; None: as many as are asked for."""


class ReservedShare(Spec, frozen=True, kw_only=True):
    """A share that follows from what is reserved: (memory - reserved) / memory, to three digits. Bytes."""

    fixed_bytes: float
    bytes_per_token: float
    """For each token of the largest pass."""
    least_tokens: int
    bytes_per_sequence: float
    """For each sequence of the largest graph."""
    bytes_per_chip: float
    """For each chip of TP x PP."""
    dpa_bytes_per_sequence: float
    """For each sequence of the largest graph and DPA rank, where DPA > 1."""
    large_graph: int
    """Sequences above which DPA ranks take half as much again."""
    large_memory_bytes: float
    """Chips from this size on reserve `least_bytes`."""
    least_bytes: float


class TowerShare(Spec, frozen=True, kw_only=True):
    """What is left of the share of models with a vision tower: base x (1 - slope (c - 1)), c the tower's size.

    c = layers x width^2 over those of a tower of reference; the second factor lies in least .. most.
    """

    base_share: float
    slope_share: float
    layers: int
    width: int
    least_share: float
    most_share: float


class Tier(Spec, frozen=True, kw_only=True):
    """A tier of the prefix cache beside the chip's pool, and how the engine is told its size."""

    where: Literal["host", "disk"]
    flag: str
    """With {gib}, {gb} or {bytes} of a chip, or {total_gib} of the TP x PP chips of an engine, in braces."""
    through: str = ""
    """What keeps it, where that is not the engine itself."""
    counts_bytes: int = 1
    """What the option counts in: sizes are whole multiples."""
    chunk_tokens: int = 0
    """Tokens of what is kept at once; 0: the engine's block."""
    shared: bool = False
    """One pool for the TP x PP chips, in which a block of all of them lies together; else each chip has its own."""
    align_bytes: int = 1
    """Of a shared pool: blocks begin at multiples of it."""
    one_copy: bool = False
    """Latents, of which every TP rank has a copy, are kept once."""
    every: bool = False
    """All blocks of a prefix are kept, those behind a window and states at the end of each block too; else those alone
    that bring it back."""
    alike: bool = False
    """Only of models whose caches all keep the same tokens."""


class LogLine(Spec, frozen=True, kw_only=True):
    """A line of the engine's start-up log, with the names of `report.memory.log_values` in braces."""

    text: str
    when: Literal["always", "states", "graphs", "refused"] = "always"
    """states: only of models that keep states. graphs: where they are charged. refused: one sequence lacks room."""


class EngineMemory(Spec, frozen=True, kw_only=True):
    """Memory rules of an engine from version `since` on."""

    name: str
    since: str = ""
    share: float | ReservedShare
    """What it takes where nobody says (`--gpu-memory-utilization`)."""
    before: tuple[Part, ...] = ()
    charged: tuple[Part, ...] = ("weights",)
    outside: tuple[Part, ...] = ()
    caches: Literal["exact", "grouped", "pools", "dense"] = "exact"
    """exact: entries as they are. grouped: one pool of equal pages that layers of all kinds share (vLLM). pools: a pool
    for each kind of cache. dense: cells for every slot, taken at once (llama.cpp)."""
    block_size: int = 1
    """Tokens of a block; cells are padded to it."""
    latent_block_size: int = 0
    """Tokens of a block of latents; 0: as other blocks."""
    state_multiple: int = 0
    """A block grows in steps of so many tokens until its page holds a state; 0: states have their own pages."""
    state_blocks: int = 1
    """Blocks of a state that a sequence holds."""
    cached_state_blocks: int = 1
    """The same where prefixes are cached."""
    group_ratio: float = 0.0
    """Groups take the size of the largest kind while it is less than so many times the smallest; 0: the smallest."""
    null_blocks: int = 0
    """Blocks that no sequence gets."""
    in_flight_passes: int = 1
    """Largest passes whose tokens a window keeps beside itself."""
    window_ratio: float = 0.0
    """Tokens of the pool of windows over those of the full pool; 0: what a sequence needs of each."""
    state_ratio: float = 0.0
    """Bytes of the pool of states over those of the other pools; 0: what a sequence needs of each."""
    expands_latents: bool = False
    """Latents are cached as K and V of every head."""
    cache_format: str | None = None
    """Format of the cache where nobody says; None: the checkpoint's."""
    tokens_cover_sequences: bool = False
    """Fewer tokens of a pass than sequences at once are refused."""
    refuses_beyond_context: bool = False
    """Lengths beyond what the model states are refused."""
    tokens_by: Literal["blocks", "concurrency"] = "blocks"
    """What its token count is: blocks x tokens a block, or sequences at full length x that length."""
    activation_ratio: float = 1.0
    """Bytes of a forward pass over the outputs of its widest block."""
    expert_workspace: bool = False
    """Inputs and outputs of the experts stay held beside the logits."""
    logit_bytes: float = 0.0
    """For each logit of the largest pass: copies that sampling makes."""
    logit_rows: Literal["sequences", "tokens", "prompts"] = "sequences"
    """Whose logits the largest pass makes: every sequence's, every token's, or of the longest prompts that fill it."""
    score_bytes: float = 0.0
    """For each attention score of the largest pass, where the core is not fused."""
    mask_bytes: float = 0.0
    """For each cell and token of the pass."""
    latent_score_bytes: float = 0.0
    """The same where latents are expanded to heads."""
    encoder_cache: bool = False
    """Of models with a tower: its outputs are held through the largest pass, as many tokens as a pass has or one item
    at its largest; and before it the tower runs over so many."""
    encoder_ratio: float = 1.0
    """Bytes of a pass of the tower over the outputs of its widest part."""
    tower_share: TowerShare | None = None
    """How much less a share that nobody gave is for models with a vision tower."""
    graph_bytes_per_layer: float = 0.0
    runtime_bytes: float = 0.0
    collective_bytes: float = 0.0
    """More runtime where TP > 1."""
    context_bytes: float = 0.0
    log: tuple[LogLine, ...] = ()
    tiers: tuple[Tier, ...] = ()
    """Of the prefix cache, beside the chip's pool."""
    host_kinds: tuple[str, ...] = ()
    """Kinds of tensors that stay in the host's memory, which is the chip's where memory is unified."""
    runs_on: tuple[str, ...] = ()
    """Makers of chips that it runs on by itself; none: all."""
    plugs_in: dict[str, str] = {}
    """Maker of chips, or how their ids begin -> what it runs there through: a plug-in, a branch."""
    splits_layers: bool = False
    """The last layers may be on the chip and the first on the host (`--n-gpu-layers`)."""
    schemes: tuple[str, ...] = ("fp8", "int8", "int4")
    """Quantisation schemes to offer where it does not fit, widest first."""
    pads: dict[str, int] = {}
    """Format -> multiple to which the width of routed experts is padded."""
    defaults: tuple[Defaults, ...] = (Defaults(),)
    assumed: tuple[str, ...] = ()
    """Rules whose numbers no source gives exactly."""
    sources: dict[str, str] = {}

    def through(self, vendor: str, chip: str) -> str:
        """Return what it runs on a chip through; empty where it runs there by itself, or not at all.

        >>> rules = EngineMemory(name="one", share=1.0, runs_on=("A",), plugs_in={"B": "b-plug", "a9": "a9-plug"})
        >>> rules.through("A", "a8"), rules.through("A", "a9-x"), rules.through("B", "b1"), rules.through("C", "c1")
        ('', 'a9-plug', 'b-plug', '')
        """
        begins = [what for name, what in self.plugs_in.items() if chip.startswith(name)]
        return begins[0] if begins else self.plugs_in.get(vendor, "")

    def supports(self, vendor: str, chip: str) -> bool:
        """Return whether it runs on a chip at all; of a chip without a maker nobody knows."""
        return not (self.runs_on and vendor) or vendor in self.runs_on or bool(self.through(vendor, chip))

    @property
    def id(self) -> str:
        """Name and first version, as printed."""
        return f"{self.name}@{self.since}" if self.since else self.name
