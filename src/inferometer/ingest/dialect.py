"""What a row of the dialect table can say: how a family spells its config, and what its class takes for granted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from inferometer.ingest.modules import Modules
from inferometer.ingest.reader import Default
from inferometer.ingest.small_rules import CompressRule, DrafterRule, LatentRule, TokenRule
from inferometer.specs.block import Block


@dataclass(frozen=True, slots=True)
class Key:
    """A flag that the config states, and what the class has where it is absent."""

    name: str
    default: bool = False


Flag = bool | Key
"""A fact of the family, or a flag of the config."""

ATTENTION_BIAS = Key("attention_bias")
MLP_BIAS = Key("mlp_bias")


@dataclass(frozen=True, slots=True)
class NormRule:
    """The norms of a layer and at the ends of the model."""

    pre: bool = True
    post: bool = False
    weight: bool = True
    bias: Flag = False
    """LayerNorms with a bias, where others have RMS norms."""
    parallel: Flag = False
    """Attention and feed-forward run beside each other."""
    second: Flag = True
    """The feed-forward has its own input norm; asked only where it runs beside attention."""
    count: str | None = None
    """Field with the number of those norms, which says more than `second` unless it is null."""
    sub: bool = False
    """Norms before the last projection of attention and feed-forward."""
    embedding: bool = False


@dataclass(frozen=True, slots=True)
class WindowRule:
    """When a window (or chunk) limits attention. Layers count from zero."""

    key: str = "sliding_window"
    chunk: bool = False
    """The limit is a chunk, not a window."""
    switch: Key | None = None
    """Flag that must be true; None: the window holds whenever it is not null."""
    first_layer: str | None = None
    """Field with the first windowed layer (below it attention is full)."""
    layer_types: bool = False
    """Whether a `layer_types` list overrides everything else."""
    listed_only: bool = False
    """Without that list nothing is known."""
    every: int | None = None
    """Each such layer, counted from one, is full and the others windowed."""
    last_full: bool = False
    """The last layer is full whatever the list or the period says."""
    every_key: str | None = None
    """Field that overrides `every`: a number, or one letter a layer of the period (L local, G global)."""
    listed: str | None = None
    """Field with a list, 1 where a layer is windowed."""
    numbered: str | None = None
    """Field with the numbers of the windowed layers, from zero."""
    drafted: bool = False
    """`layer_types` may go on with the layers of the drafter."""


@dataclass(frozen=True, slots=True)
class MoeRule:
    """How a family spells its experts."""

    layers: Literal["every", "sparse_step", "after_dense", "interleaved", "span", "listed", "period", "typed"]
    """every; `decoder_sparse_step` and `mlp_only_layers`; `first_k_dense_replace` and `moe_layer_freq`;
    `interleave_moe_layer_step`; `moe_layer_start_index`, `_end_index` and `moe_layer_interval`;
    `moe_layers_enum`, numbers with commas between; `expert_layer_period` and `_offset`; `mlp_layer_types`."""
    width: str | tuple[str, ...]
    """Fields with the width of one routed expert, the first that is given."""
    shared_count: str | None = None
    """Field with the number of shared experts, each as wide as a routed one."""
    shared_width: str | None = None
    """Field with the width of what every token takes."""
    shared_gate: bool = False
    shared_experts: int = 0
    """Shared experts that the class always has, each as wide as a routed one."""
    grouped: bool = False
    """Tokens choose groups of experts first, whatever `topk_method` says."""
    topk_method: str | None = None
    """`topk_method` where the key is absent; None: the family has no such key."""
    router_bias: Flag = False
    """`e_score_correction_bias` exists whatever `topk_method` says."""
    gated: bool = True
    beside: bool = False
    """Experts take the normed input of the block before, and are added at the end of the layer."""
    bias: bool = False
    router_linear_bias: bool = False
    router_scales: bool = False
    branch_norms: int = 0
    latent: str | None = None
    """Field with the width that routed experts work on; absent or null: the hidden size."""
    latent_norm: Flag = False
    zero: str | None = None
    """Field with the number of experts that return their input."""
    hashed: str | None = None
    """Field with how many of the first layers look experts up by token id."""
    routed_shared: bool = False
    """The router weighs the shared experts too."""
    switch: Key | None = None
    """Flag that must be true for there to be experts."""
    least: int = 0
    """With fewer experts the class has a dense feed-forward; 0: it always has experts."""


NOAUX_MOE = MoeRule(
    layers="after_dense",
    width="moe_intermediate_size",
    shared_count="n_shared_experts",
    topk_method="noaux_tc",
    router_bias=True,
)
"""DeepSeek-V3 and who copied it: `topk_method` names the routing."""

GROUPED_MOE = replace(NOAUX_MOE, topk_method=None, grouped=True)
"""The same experts in families that route so without saying it."""

NO_BLOCK = "none"
"""A layer without a mixer, or without a feed-forward."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """What one layer has; empty is what every layer of the dialect has."""

    mixer: str = ""
    """Kind of mixer; several that run beside each other with `+` between."""
    ffn: Literal["", "dense", "moe", "matrix", "none"] = ""


@dataclass(frozen=True, slots=True)
class LayerRule:
    """How a family tells kinds of layers apart: by a word a layer, by lists of layers, or by a period."""

    key: str = ""
    """Field with a list, an entry a layer, or a string, a letter a layer; empty: there is none."""
    words: Mapping[str, Kinds] = field(default_factory=dict)
    lists: Mapping[str, Kinds] = field(default_factory=dict)
    """Field with the numbers of layers -> what those are, read where `key` is absent; layers that no list has are
    `between`."""
    first: int = 0
    """Number of the first layer in `lists`."""
    period: str | None = None
    """Field with a period, read where there are no lists: layers that are a multiple of it, counted from one, are
    `at_period`, others `between`."""
    offset: str | None = None
    """Field with the layer of each period, counted from zero, that is `at_period`; None: its last."""
    at_period: Kinds = field(default_factory=Kinds)
    between: Kinds | None = field(default_factory=Kinds)
    """None: lists leave no layer out."""
    optional: bool = False
    """Without any of these every layer is as other fields say."""


@dataclass(frozen=True, slots=True)
class WidthRule:
    """A stated width of the feed-forward that the class changes: 2/3 of it, a factor, rounded up (LFM2)."""

    switch: Key
    factor: str
    """Field with a factor."""
    multiple_of: str
    """Field with what the width is rounded up to a multiple of."""


@dataclass(frozen=True, slots=True)
class RecurrentRule:
    """What the classes of recurrent mixers do that their configs do not say the same way."""

    low_rank: tuple[Literal["decay", "gate"], ...] = ()
    """Gates of KDA that go through a latent as wide as a head."""
    qk_norm: Flag = False
    norm: Flag = True
    """Mamba-2 has a norm of its gated output."""
    in_bias: Flag = False
    out_bias: Flag = False
    inner_norms: bool = False
    """Mamba-1 has norms of the time step, B and C."""


@dataclass(frozen=True, slots=True)
class BlockRule:
    """A list with an object a layer, which holds one of its mixer and one of its feed-forward (Puzzle, DeciLM).

    It is read as the words `mixer/ffn` of a LayerRule of the same key, kv heads a layer and a width a layer.
    """

    key: str
    mixer: str
    ffn: str
    none: str
    """Flag of a block that is not there."""
    matrix: str
    """Flag of a block that is one matrix."""
    group: str
    """Query heads to a kv head."""
    multiple: str
    """m of the width: 2/3 m H, cut to a whole number, up to the next multiple of `round_to`."""
    round_to: int
    never: tuple[str, ...] = ()
    """Fields that must be null or false."""
    inert: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateRule:
    """The gate on the output of attention, where the config names it."""

    key: str
    kinds: Mapping[bool | str, Literal["head", "wide"]]
    """Value of the field -> the gate it means."""


@dataclass(frozen=True, slots=True)
class InputsRule:
    """What a token brings to each layer beside its embedding."""

    width: str
    """Field with the features a layer; 0 or null: none."""
    rows: str
    """Field with the rows of their table."""


@dataclass(frozen=True, slots=True)
class KvRule:
    """Which layers use the keys and values of a layer before."""

    switch: Key | None = None
    """Flag that must be true."""
    factor: str | None = None
    """Field with a period: only the first layer of each has its own (Hunyuan's CLA)."""
    last: str | None = None
    """Field with how many of the last layers have none of their own."""
    k_norm: bool = True
    """Layers that share still have a norm of k."""
    doubled: Key | None = None
    """Flag under which dense feed-forwards of layers that share are twice as wide."""


@dataclass(frozen=True, slots=True)
class IndexRule:
    """How a family spells the indexer of its sparse attention, and what its class takes for granted."""

    heads: str = "index_n_heads"
    dim: str = "index_head_dim"
    top_k: str = "index_topk"
    """Field with the tokens a query reads, or with the blocks where there are some."""
    block: str | None = None
    """Field with the keys chosen together."""
    pool: str | None = None
    """Field with the tokens a key stands for."""
    pool_gate: bool = False
    lists: bool = False
    """Each index head makes a choice of its own."""
    weighted: bool = True
    q_norm: bool = False
    k_norm: Literal["none", "rms", "layer"] = "layer"
    input_norm: bool = False
    head_scales: bool = False
    key_format: str | None = "fp8-g128"
    switch: Key | None = None
    """Flag that must be true for there to be any."""
    listed: str | None = None
    """Field with a list, 1 where a layer has one; the others read everything."""
    shares: bool = False
    """Layers may use the choice of one before: `indexer_types`, `index_topk_pattern`, else each `index_topk_freq`-th
    from layer `index_skip_topk_offset` on makes its own."""
    every: int = 1
    """`index_topk_freq` where the key is absent."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One family's spelling and class defaults."""

    mixer: str = "attention"
    """Kind of mixer, as `ingest.mixers` reads them, of layers that `layers` says nothing of."""
    ffn: Literal["", "none"] = ""
    """The same of the feed-forward; empty is dense, or experts where `moe` says so."""
    layers: LayerRule | None = None
    recurrent: RecurrentRule = field(default_factory=RecurrentRule)
    gate: GateRule | Literal["none", "head", "wide"] = "none"
    """Gate on the output of attention: what it is, or how the config names it."""
    blocks: BlockRule | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    """Field -> the field that stands for it unless null: a list for a number, a padded size."""
    cross_gates: int = 0
    """Scalars of a layer of cross-attention."""
    layer_inputs: InputsRule | None = None
    more_rows: int | str = 0
    """Rows of the embedding beyond the vocabulary, or the field with the rows of the head, which are fewer."""
    unit: tuple[Kinds, ...] = ()
    """What one layer of the config is made of, in order, where it is several of ours: a stage takes them together."""
    drafter: DrafterRule = field(default_factory=DrafterRule)
    plain: tuple[str, ...] = ()
    """Tensors that a blanket quantisation leaves in the model's dtype, although it does not say so."""
    residual: Literal["hyper", "independent", "headless", "gated", "attention", "sourced"] | None = None
    """Residual scheme, as `ingest.residuals` reads it; None: a plain sum."""
    conv: str | None = None
    """Field with the taps of short convolutions: of k, of v, and of what attention and feed-forward give."""
    relative: tuple[str, str] | None = None
    """Fields with the width of a head's relative state, and with the distances it gives logits for: on windowed layers
    the window's."""
    out_scale: bool = False
    """Each feed-forward has a learned scale."""
    lookups: Literal["ngram", "engram", "ple"] | None = None
    """Kind of memory tables, as `ingest.lookups` reads them."""
    qkv_bias: Flag = False
    out_bias: Flag = False
    ffn_bias: Flag = False
    head_bias: Flag = False
    qk_norm: Flag = False
    qk_norm_over: Literal["head", "heads", "all"] = "head"
    qk_norm_bias: bool = False
    norm: NormRule = field(default_factory=NormRule)
    sinks: Flag = False
    """A sink a head: on all layers, or where the dialect has `windowed` keys on windowed ones."""
    window: WindowRule | None = None
    windowed: Mapping[str, str] = field(default_factory=dict)
    """Field -> the field that stands for it on windowed layers."""
    unwindowed: Mapping[str, str] = field(default_factory=dict)
    """Field -> the field that stands for it, unless null, on layers without a window."""
    v_from_k: Flag = False
    """Layers without a window have no v projection."""
    kv_shared: KvRule | None = None
    index: IndexRule | None = None
    """The indexer of layers without a window."""
    latent: LatentRule = field(default_factory=LatentRule)
    compress: CompressRule = field(default_factory=CompressRule)
    token: TokenRule = field(default_factory=TokenRule)
    multi_query: Key | None = None
    """Flag that means one kv head."""
    multi_query_unless: Key | None = None
    """Flag under which `multi_query` means nothing."""
    gated: bool = True
    dense_width: str = "intermediate_size"
    width_divisor: int = 1
    """What the stated dense width is a multiple of: 2 where it is of gate and up together."""
    width: WidthRule | None = None
    """How the stated width is changed."""
    width_factor: int | None = None
    """Times hidden_size is the dense width where none is stated."""
    moe: MoeRule | None = None
    tied: bool = False
    """`tie_word_embeddings` where the key is absent."""
    positions: str | None = None
    """Field with the rows of the table of learned positions."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Canonical field -> spellings of this family only."""
    defaults: Mapping[str, Default] = field(default_factory=dict)
    """Class defaults of fields that a real config may leave out."""
    inert: tuple[str, ...] = ()
    """Fields this family's code does not use, although others do."""
    modules: Mapping[type[Block], Modules] = field(default_factory=dict)
    """Kind of block -> its modules, where they are not those of MODULES."""
    quant_keys: tuple[str, ...] = ()
    """Fields beside `quantization_config` that belong in it."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Format of a quantisation -> the format this family stores it as."""
    kv_format: str | None = None
    """Format of the KV cache that engines give it, where no quantisation says; None: the model's dtype."""
    nested: tuple[str, ...] = ()
    """Objects of the config whose fields stand for the config's own."""
    dotted: tuple[str, ...] = ()
    """Objects of the config whose fields are read as `object.field`."""
    without: tuple[str, str] | None = None
    """(field, dialect): a config without the field is of that dialect."""
    unbounded: bool = False
    """Nothing limits a sequence's length, and the config states no longest one."""
    mtp: bool = True
    """Multi-token-prediction layers are like the last layer; else they are not counted."""
    only: Mapping[str, Default] = field(default_factory=dict)
    """Fields of which one value is understood, and any other refused."""
    says: tuple[str, ...] = ()
    """What is assumed of every model of the family."""
    from_code_alone: bool = False
    """No published config was at hand: the row rests on the modelling code and on made-up configs, and says so."""


FROM_CODE_ALONE = "No published config of this family was at hand: it rests on the public modelling code alone"
