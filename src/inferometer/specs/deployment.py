"""How a model is spread over a machine, and what it is asked to do."""

from collections.abc import Mapping
from typing import Literal

from inferometer.specs.block import Spec

Phase = Literal["prefill", "extend", "decode", "verify"]
"""prefill: whole prompts; extend: new tokens behind a cached prefix; decode: a token a sequence; verify: k drafted
tokens a sequence and the one after them."""

PLAIN: Mapping[Phase, Phase] = {"prefill": "prefill", "extend": "prefill", "decode": "decode", "verify": "decode"}
"""Phase -> its plain case: an extend of no prefix is a prefill, a verify of no draft a decode."""

ROLES = ("r", "pp", "dpa", "tp", "ep", "etp", "dcp")
"""R replicas, PP stages, DPA data-parallel attention, TP, EP experts, ETP inside an expert, DCP."""


class Sizes(Spec, frozen=True, kw_only=True):
    """Role sizes. R x PP x DPA x TP = R x PP x EP x ETP = chips for MoE; DCP divides TP.

    For dense models DPA = EP = ETP = 1 and the expert product is not checked.
    """

    r: int = 1
    pp: int = 1
    dpa: int = 1
    tp: int = 1
    ep: int = 1
    etp: int = 1
    dcp: int = 1

    @property
    def n_chips(self) -> int:
        """Chips the attention side spans."""
        return self.r * self.pp * self.dpa * self.tp

    @property
    def stage(self) -> int:
        """Chips of one pipeline stage of one replica."""
        return self.dpa * self.tp


class RolePlacement(Spec, frozen=True, kw_only=True):
    """Where one role lies: a factor and a stride on each axis of the fabric."""

    factors: tuple[int, ...]
    strides: tuple[int, ...]


class Placement(Spec, frozen=True, kw_only=True):
    """Where every role lies. Roles of size 1 may be left out."""

    roles: dict[str, RolePlacement]


class Deployment(Spec, frozen=True, kw_only=True):
    """Sizes, and (once found or given) the placement and the sequences in flight."""

    sizes: Sizes
    placement: Placement | None = None
    batch: int | None = None
    """Sequences in flight over the whole deployment."""


class Workload(Spec, frozen=True, kw_only=True):
    """What each request asks for. Lengths in tokens."""

    isl: int = 8192
    """Tokens of a prompt; in extend those that are new."""
    osl: int = 1024
    phase: Phase = "decode"
    context: int | None = None
    """In decode one KV length at the end of the pass, instead of the mean over isl..isl+osl; in extend and verify the
    tokens cached before it, without which a verify starts where a decode would."""
    draft_tokens: int = 0
    """k: drafted tokens of a sequence that a verify checks."""
    all_token_logits: bool = False
    """Logits of every prompt token, not of each prompt's last alone; a verify makes all of its rows' anyway."""
    images: int = 0
    """Images of a request, in front of its `isl` tokens of text."""
    image_width: int = 1024
    """Pixels."""
    image_height: int = 1024
    image_tokens: int = 0
    """Tokens of all images of a request; whoever knows the model fills it in."""
    expert_skew: float = 0.0
    """Exponent of the power law that experts are popular by; 0: all alike."""
    distinct_prompts: int | None = None
    """Different prompts in flight at a replica: sequences that share one choose the same experts; None: all differ."""
    redundant_experts: int = 0
    """Copies of experts that every layer holds beside its own, spread over the ranks of EP."""
    cross_tokens: int = 0
    """Tokens of all images of a request that cross-attention sees, none of them in the prompt."""

    def __post_init__(self) -> None:
        """Check that an extend says its prefix, and that only a verify has a draft."""
        if self.phase == "extend" and self.context is None:
            raise ValueError("an extend needs a context: the tokens cached before it")
        if self.draft_tokens and self.phase != "verify":
            raise ValueError(f"a {self.phase} has no drafted tokens")

    @property
    def generates(self) -> bool:
        """Whether the pass gives output tokens (decode, verify), not a prompt's KV."""
        return PLAIN[self.phase] == "decode"

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a request's prompt: text and images."""
        return self.isl + self.image_tokens

    @property
    def new_tokens(self) -> int:
        """Rows of a sequence in the pass: the prompt, or 1 + k."""
        return 1 + self.draft_tokens if self.generates else self.prompt_tokens

    @property
    def ends(self) -> tuple[int, int]:
        """Least and greatest KV length at the end of a pass, between which passes are spread evenly."""
        before = self.new_tokens - 1 if self.phase == "decode" else self.new_tokens
        if self.phase == "prefill":
            return self.prompt_tokens, self.prompt_tokens
        if self.context is not None:
            return self.context + before, self.context + before
        return self.prompt_tokens + self.draft_tokens, self.prompt_tokens + self.osl + self.draft_tokens


class Kernels(Spec, frozen=True, kw_only=True):
    """Which kernels an engine runs. Names are those of timed families and of ops; knows no chip."""

    families: tuple[str, ...] = ()
    """Of several that do one thing the first that was timed; none: whichever is timed first."""
    launches: dict[str, float] = {}
    """Op, or op@FORMAT of its weights -> kernels launched for it; 0: a part of the one before. Else as lowered."""
    reduced: tuple[str, ...] = ()
    """Ops that the all-reduce does whose sums they take in, where several ranks sum: no kernel of their own."""


NO_KERNELS = Kernels()
"""None in particular: whatever is timed."""


class EngineSpec(Spec, frozen=True, kw_only=True):
    """What an engine can run. Masks the Choices; knows no chip."""

    name: str
    version: str
    allows: dict[str, tuple[str, ...]] = {}
    """Choice name -> alternatives it can run; a Choice not named is free."""
    partition: Literal["even", "vllm"] = "even"
    """How layers split over stages."""
    whole_experts: bool = False
    """EP must divide the experts."""
    block_aligned: bool = False
    """Shards of a block-quantised weight must end on a block."""
    vocab_multiple: int = 0
    """TP must divide the vocabulary padded to a multiple of this; 0: any TP."""
    dcp_within_replication: bool = False
    """DCP may only use the ranks that would else hold copies of a kv head."""
    ep_spans_stage: bool = False
    """EP is 1 or the whole stage (ETP = 1)."""
    whole_latents: bool = False
    """Projections to latents are whole on every TP rank."""
    unpacks_to_16_bits: bool = False
    """Weights of a format the chip lacks are multiplied in bf16 or fp16, never in an 8-bit type."""
    kernels: Kernels = NO_KERNELS
    sources: dict[str, str] = {}

    def in_phase(self, phase: Phase) -> dict[str, tuple[str, ...]]:
        """Return what a phase allows: `choice.phase` wins over the plain phase's, and that over `choice`."""
        found = {k: v for k, v in self.allows.items() if "." not in k}
        for name in (PLAIN[phase], phase):
            suffix = f".{name}"
            found |= {k.removesuffix(suffix): v for k, v in self.allows.items() if k.endswith(suffix)}
        return found

    @property
    def id(self) -> str:
        """Name and version, as printed with every row."""
        return f"{self.name}@{self.version}" if self.version else self.name
