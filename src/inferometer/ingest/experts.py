"""Which layers have routed experts, and what they are, from a config read through its dialect."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from inferometer.ingest.bounds import MAX_EXPERTS, MAX_HIDDEN, MAX_LAYERS, MAX_TOKENS, MAX_VOCAB, MAX_WIDTH
from inferometer.ingest.dialect import MoeRule
from inferometer.ingest.norms import flag
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.feedforward import Moe

GROUPED_TOPK = ("group_limited_greedy", "noaux_tc")
"""`topk_method` values that choose groups of experts first."""
TOPK_METHODS = ("greedy", "gready", *GROUPED_TOPK)
"""`gready` is DeepSeek-V2's own spelling of its default."""


def per_layer(reader: ConfigReader, name: str, layers: int, *, low: int = 1, high: int) -> tuple[int, ...]:
    """Return an integer for each layer: one for all of them, or a list of as many.

    Raises InferometerError as `ConfigReader.integer`, and for a list of another length.
    """
    if not isinstance(reader.find(name)[1], list):
        return (reader.integer(name, low=low, high=high),) * layers
    listed = reader.integers(name, low=low, high=high) or ()
    if len(listed) != layers:
        allowed = f"an integer from {low} to {high}, or num_hidden_layers = {layers} of them"
        raise reader.wrong(reader.find(name)[0], list(listed), allowed)
    return listed


def moe_layers(reader: ConfigReader, rule: MoeRule | None, layers: int) -> list[bool]:
    """Return for each layer whether its feed-forward is routed."""
    if rule is None or not _has_experts(reader, rule):
        return [False] * layers
    return _ROUTED[rule.layers](reader, layers)


def _every(reader: ConfigReader, layers: int) -> list[bool]:
    del reader
    return [True] * layers


def _sparse_step(reader: ConfigReader, layers: int) -> list[bool]:
    """Return every so many layers, counted from one, but for those that are listed as dense."""
    step = reader.integer("decoder_sparse_step", high=MAX_LAYERS)
    dense = set(reader.integers("mlp_only_layers", low=0, high=MAX_TOKENS) or ())
    return [(layer + 1) % step == 0 and layer not in dense for layer in range(layers)]


def _interleaved(reader: ConfigReader, layers: int) -> list[bool]:
    """Return every so many layers, counted from one, or those listed."""
    step = reader.integer("interleave_moe_layer_step", high=MAX_LAYERS)
    routed = reader.integers("moe_layers", low=0, high=MAX_TOKENS)
    return [(layer + 1) % step == 0 if routed is None else layer in routed for layer in range(layers)]


def _listed(reader: ConfigReader, layers: int) -> list[bool]:
    """Return the layers of a list of numbers with commas between (Step 3.5); absent: all but the first three."""
    text = reader.text("moe_layers_enum")
    if text is None:
        reader.remark("moe_layers_enum is absent: all layers but the first three have experts")
        return [layer >= 3 for layer in range(layers)]  # noqa: PLR2004 (the class's own default)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() and len(word) <= 5 for word in words):  # noqa: PLR2004 (digits of a layer's number)
        raise reader.wrong("moe_layers_enum", text, "numbers of layers with commas between")
    numbers = {int(word) for word in words}
    return [layer in numbers for layer in range(layers)]


def _has_experts(reader: ConfigReader, rule: MoeRule) -> bool:
    """Return whether the model has experts at all: its flag says so, and they are as many as make a router."""
    if rule.switch and not reader.flag(rule.switch.name, default=rule.switch.default):
        reader.skip("num_experts", "num_experts_per_tok", *_widths(rule))
        return False
    if rule.least and reader.integer("num_experts", low=0, high=MAX_EXPERTS) < rule.least:
        reader.skip("num_experts_per_tok", "expert_layer_period", "expert_layer_offset", *_widths(rule))
        return False
    return True


def _period(reader: ConfigReader, layers: int) -> list[bool]:
    """Return one layer of each period, at an offset (Jamba)."""
    every = reader.integer("expert_layer_period", high=MAX_LAYERS)
    offset = reader.integer("expert_layer_offset", low=0, high=every - 1)
    return [layer % every == offset for layer in range(layers)]


def _span(reader: ConfigReader, layers: int) -> list[bool]:
    """Return the layers from a first to a last one, each so many (ERNIE 4.5: counted from one)."""
    first = reader.integer("moe_layer_start_index", low=0, high=MAX_LAYERS)
    last = reader.integer_or_none("moe_layer_end_index", low=-1, high=MAX_LAYERS)
    every = reader.integer("moe_layer_interval", high=MAX_LAYERS)
    end = layers - 1 if last is None or last < 0 else last
    return [first <= layer <= end and (layer + 1) % every == 0 for layer in range(layers)]


def _after_dense(reader: ConfigReader, layers: int) -> list[bool]:
    """Return all but the first layers, each so many, or as a list says."""
    if reader.integer_or_none("num_experts", high=MAX_EXPERTS) is None and reader.has("num_experts"):
        return [False] * layers
    first = reader.integer("first_k_dense_replace", low=0, high=MAX_LAYERS)
    if not reader.has("moe_layer_freq") and "moe_layer_freq" not in reader.defaults:
        return [layer >= first for layer in range(layers)]
    if isinstance(reader.find("moe_layer_freq")[1], list):
        listed = reader.integers("moe_layer_freq", low=0, high=1) or ()
        if len(listed) != layers:
            raise reader.error("moe_layer_freq", f"has {len(listed)} entries; allowed: num_hidden_layers = {layers}")
        return [layer >= first and listed[layer] == 1 for layer in range(layers)]
    every = reader.integer("moe_layer_freq", high=MAX_LAYERS)
    return [layer >= first and layer % every == 0 for layer in range(layers)]


def _typed(reader: ConfigReader, layers: int) -> list[bool]:
    """Return the layers that a list of words calls sparse; without it those after the dense ones."""
    words = reader.texts("mlp_layer_types")
    if not words:
        return _after_dense(reader, layers)
    reader.skip("first_k_dense_replace")
    if len(words) != layers:
        raise reader.error("mlp_layer_types", f"has {len(words)} entries; allowed: num_hidden_layers = {layers}")
    for word in words:
        if word not in ("dense", "sparse"):
            raise reader.wrong("mlp_layer_types", word, "dense or sparse")
    return [word == "sparse" for word in words]


_ROUTED: Mapping[str, Callable[[ConfigReader, int], list[bool]]] = {
    "every": _every,
    "sparse_step": _sparse_step,
    "interleaved": _interleaved,
    "span": _span,
    "listed": _listed,
    "period": _period,
    "after_dense": _after_dense,
    "typed": _typed,
}
"""`MoeRule.layers` -> what tells routed layers, of (reader, layers)."""


def moe_blocks(
    reader: ConfigReader, rule: MoeRule, around: Mapping[str, Any], sparse: Sequence[bool]
) -> list[Moe | None]:
    """Return the experts of each routed layer, None for the others; sizes may be one a layer."""
    layers = len(sparse)
    experts = per_layer(reader, "num_experts", layers, high=MAX_EXPERTS)
    top_k = per_layer(reader, "num_experts_per_tok", layers, high=MAX_EXPERTS)
    width = per_layer(reader, _stated_width(reader, rule), layers, high=MAX_WIDTH)
    shared = _shared_widths(reader, rule, width)
    hashed = _hashed(reader, rule, layers)
    made: dict[tuple[int, ...], Moe] = {}
    found: list[Moe | None] = []
    for layer, sizes in enumerate(zip(experts, top_k, width, shared, hashed, strict=True)):
        if sparse[layer] and sizes not in made:
            made[sizes] = _moe(reader, rule, around, _Sizes(*sizes))
        found.append(made[sizes] if sparse[layer] else None)
    return found


class _Sizes(NamedTuple):
    experts: int
    top_k: int
    width: int
    shared: int
    hash_vocab: int


def _hashed(reader: ConfigReader, rule: MoeRule, layers: int) -> list[int]:
    """Return for each layer the rows of its table of experts by token id; 0 where the router chooses."""
    if rule.hashed is None:
        return [0] * layers
    first = reader.integer_or_none(rule.hashed, low=0, high=MAX_LAYERS) or 0
    vocab = reader.integer("vocab_size", high=MAX_VOCAB)
    return [vocab if layer < first else 0 for layer in range(layers)]


def _widths(rule: MoeRule) -> tuple[str, ...]:
    return (rule.width,) if isinstance(rule.width, str) else rule.width


def _stated_width(reader: ConfigReader, rule: MoeRule) -> str:
    """Return the first of the rule's fields that the config has; the first of all where it has none."""
    names = _widths(rule)
    given = [name for name in names if reader.has(name) and reader.find(name)[1] is not None]
    return given[0] if given else names[0]


def _shared_widths(reader: ConfigReader, rule: MoeRule, width: tuple[int, ...]) -> tuple[int, ...]:
    """Return the width of what every token takes beside its experts, for each layer."""
    layers = len(width)
    key = rule.shared_width or rule.shared_count
    if key is None:
        return tuple(rule.shared_experts * each for each in width)
    if not reader.has(key) and key not in reader.defaults:
        reader.remark(f"{key} is absent: no shared experts")
        return (0,) * layers
    if reader.find(key)[1] is None:
        return (0,) * layers
    sizes = per_layer(reader, key, layers, low=0, high=MAX_WIDTH if rule.shared_width else MAX_EXPERTS)
    return sizes if rule.shared_width else tuple(size * each for size, each in zip(sizes, width, strict=True))


def _moe(reader: ConfigReader, rule: MoeRule, around: Mapping[str, Any], sizes: _Sizes) -> Moe:
    if sizes.top_k > sizes.experts:
        raise reader.wrong("num_experts_per_tok", sizes.top_k, f"at most the {sizes.experts} experts")
    groups, top_groups, bias = _routing(reader, rule, sizes.experts, sizes.top_k)
    latent = (reader.integer_or_none(rule.latent, high=MAX_HIDDEN) or 0) if rule.latent else 0
    counted = rule.shared_count if rule.routed_shared else None
    return Moe(
        experts=sizes.experts,
        top_k=sizes.top_k,
        width=sizes.width,
        gated=rule.gated,
        bias=rule.bias,
        shared_width=sizes.shared,
        shared_gate=rule.shared_gate and sizes.shared > 0,
        groups=groups,
        top_groups=top_groups,
        router_bias=bias and not sizes.hash_vocab,
        router_linear_bias=rule.router_linear_bias,
        router_scales=rule.router_scales,
        branch_norms=rule.branch_norms,
        latent_width=latent,
        latent_norm=latent > 0 and flag(reader, rule.latent_norm),
        zero_experts=reader.integer(rule.zero, low=0, high=MAX_EXPERTS) if rule.zero else 0,
        hash_vocab=sizes.hash_vocab,
        routed_shared=reader.integer(counted, low=0, high=MAX_EXPERTS) if counted else 0,
        **(dict(around) | ({"pre_norm": False} if rule.beside else {})),
    )


def _routing(reader: ConfigReader, rule: MoeRule, experts: int, top_k: int) -> tuple[int, int, bool]:
    """Return (groups, groups a token may choose from, whether each expert has a correction bias)."""
    fixed = rule.router_bias
    bias = fixed if isinstance(fixed, bool) else reader.flag(fixed.name, default=fixed.default)
    grouped = rule.grouped
    if rule.topk_method is not None:
        method = reader.text("topk_method")
        if method is None:
            method = reader.taken_from_class["topk_method"] = rule.topk_method
        if method not in TOPK_METHODS:
            raise reader.wrong("topk_method", method, ", ".join(TOPK_METHODS))
        bias = bias or method == "noaux_tc"
        grouped = method in GROUPED_TOPK
    if not grouped:
        if rule.topk_method is not None:
            reader.skip("n_group", "topk_group")
        return 1, 1, bias
    return *_groups(reader, experts, top_k), bias


def _groups(reader: ConfigReader, experts: int, top_k: int) -> tuple[int, int]:
    """Return (groups, groups a token may choose from)."""
    groups = reader.integer_or_none("n_group", high=MAX_EXPERTS) or 1
    top_groups = reader.integer_or_none("topk_group", high=MAX_EXPERTS) or groups
    if experts % groups:
        raise reader.wrong("n_group", groups, f"a divisor of the {experts} experts")
    if top_groups > groups:
        raise reader.wrong("topk_group", top_groups, f"at most n_group = {groups}")
    if top_k > top_groups * (experts // groups):
        held = top_groups * (experts // groups)
        raise reader.wrong("num_experts_per_tok", top_k, f"at most the {held} experts of topk_group = {top_groups}")
    return groups, top_groups
