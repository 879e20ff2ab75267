"""The mixer and the feed-forward of every layer, from a config read through its dialect."""

from inferometer.ingest.dialects import GROUPED_TOPK, TOPK_METHODS, Dialect, MoeRule
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.model import Attention, FeedForward, Ffn, Mixer, Mla, Moe

MAX_HIDDEN = 10**7
MAX_WIDTH = 10**8
MAX_HEADS = 10**5
MAX_LAYERS = 10_000
MAX_EXPERTS = 100_000
MAX_TOKENS = 10**9
"""Limits of sanity, far above any model."""

LAYER_TYPES = ("full_attention", "sliding_attention")


def mixers(reader: ConfigReader, dialect: Dialect, *, hidden: int, layers: int) -> list[Mixer]:
    """Return the mixer of each layer, unquantised.

    Raises InferometerError for shapes that are missing, out of range, or do not divide.
    """
    if dialect.mixer == "mla":
        return [_mla(reader)] * layers
    full = _attention(reader, dialect, hidden=hidden)
    windows = _windows(reader, dialect, layers)
    by_window = {window: full if window is None else _windowed(full, window) for window in set(windows)}
    return [by_window[window] for window in windows]


def feed_forwards(reader: ConfigReader, dialect: Dialect, *, layers: int) -> list[FeedForward]:
    """Return the feed-forward of each layer, unquantised.

    Raises InferometerError for shapes that are missing or out of range, or routing that cannot be.
    """
    sparse = _moe_layers(reader, dialect.moe, layers)
    dense: FeedForward | None = None
    if not all(sparse):
        bias = _bias(reader, dialect.ffn_bias, "mlp_bias")
        dense = Ffn(width=reader.integer("intermediate_size", high=MAX_WIDTH), bias=bias)
    else:
        reader.skip("intermediate_size")
    experts: FeedForward | None = _moe(reader, dialect.moe) if dialect.moe is not None and any(sparse) else None
    chosen = [experts if is_sparse else dense for is_sparse in sparse]
    return [block for block in chosen if block is not None]


def _bias(reader: ConfigReader, fixed: bool | None, key: str) -> bool:
    return reader.flag(key, default=False) if fixed is None else fixed


def _attention(reader: ConfigReader, dialect: Dialect, *, hidden: int) -> Attention:
    heads = reader.integer("num_attention_heads", high=MAX_HEADS)
    kv_heads = reader.integer_or_none("num_key_value_heads", high=MAX_HEADS)
    if kv_heads is None:
        if not reader.has("num_key_value_heads"):
            reader.remarks.append(f"num_key_value_heads is absent: one KV head a query head ({heads})")
        kv_heads = heads
    if heads % kv_heads:
        raise reader.wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads = {heads}")
    head_dim = reader.integer_or_none("head_dim", high=MAX_HEADS)
    if head_dim is None:
        if hidden % heads:
            raise reader.wrong("num_attention_heads", heads, f"a divisor of hidden_size = {hidden}, or a head_dim")
        head_dim = hidden // heads
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv_bias=_bias(reader, dialect.qkv_bias, "attention_bias"),
        out_bias=_bias(reader, dialect.out_bias, "attention_bias"),
        qk_norm=dialect.qk_norm,
    )


def _windowed(full: Attention, window: int) -> Attention:
    return Attention(
        heads=full.heads,
        kv_heads=full.kv_heads,
        head_dim=full.head_dim,
        qkv_bias=full.qkv_bias,
        out_bias=full.out_bias,
        qk_norm=full.qk_norm,
        window=window,
    )


def _windows(reader: ConfigReader, dialect: Dialect, layers: int) -> list[int | None]:
    """Return the sliding window of each layer in tokens, None where attention is full."""
    rule = dialect.window
    if rule is None:
        return [None] * layers
    if rule.layer_types:
        reader.skip("layer_types")
    if not (rule.switch is None or _switched_on(reader, rule.switch)):
        reader.skip("sliding_window", rule.switch or "", rule.first_layer or "")
        return [None] * layers
    window = reader.integer_or_none("sliding_window", high=MAX_TOKENS)
    first = 0 if rule.first_layer is None else reader.integer(rule.first_layer, low=0, high=MAX_TOKENS)
    kinds = reader.texts("layer_types") if rule.layer_types else ()
    if not kinds:
        return [window if layer >= first else None for layer in range(layers)]
    if len(kinds) != layers:
        raise reader.error("layer_types", f"has {len(kinds)} entries; allowed: num_hidden_layers = {layers}")
    for kind in kinds:
        if kind not in LAYER_TYPES:
            raise reader.wrong("layer_types", kind, " or ".join(LAYER_TYPES))
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _switched_on(reader: ConfigReader, switch: str) -> bool:
    """Return the flag; where it is absent, say so only if a window is given that it would turn on."""
    given = reader.has("sliding_window") and reader.find("sliding_window")[1] is not None
    return (reader.has(switch) or given) and reader.flag(switch, default=False)


def _mla(reader: ConfigReader) -> Mla:
    return Mla(
        heads=reader.integer("num_attention_heads", high=MAX_HEADS),
        q_rank=reader.integer_or_none("q_lora_rank", high=MAX_HIDDEN),
        kv_rank=reader.integer("kv_lora_rank", high=MAX_HIDDEN),
        nope_dim=reader.integer("qk_nope_head_dim", high=MAX_HEADS),
        rope_dim=reader.integer("qk_rope_head_dim", high=MAX_HEADS),
        v_dim=reader.integer("v_head_dim", high=MAX_HEADS),
        bias=reader.flag("attention_bias", default=False),
    )


def _moe_layers(reader: ConfigReader, rule: MoeRule | None, layers: int) -> list[bool]:
    """Return for each layer whether its feed-forward is routed."""
    if rule is None:
        return [False] * layers
    if rule.layers == "every":
        return [True] * layers
    if rule.layers == "sparse_step":
        step = reader.integer("decoder_sparse_step", high=MAX_LAYERS)
        dense = set(reader.integers("mlp_only_layers", low=0, high=MAX_TOKENS) or ())
        return [(layer + 1) % step == 0 and layer not in dense for layer in range(layers)]
    if reader.integer_or_none("num_experts", high=MAX_EXPERTS) is None and reader.has("num_experts"):
        return [False] * layers
    first = reader.integer("first_k_dense_replace", low=0, high=MAX_LAYERS)
    if isinstance(reader.find("moe_layer_freq")[1], list):
        listed = reader.integers("moe_layer_freq", low=0, high=1) or ()
        if len(listed) != layers:
            raise reader.error("moe_layer_freq", f"has {len(listed)} entries; allowed: num_hidden_layers = {layers}")
        return [layer >= first and listed[layer] == 1 for layer in range(layers)]
    every = reader.integer("moe_layer_freq", high=MAX_LAYERS)
    return [layer >= first and layer % every == 0 for layer in range(layers)]


def _moe(reader: ConfigReader, rule: MoeRule) -> Moe:
    experts = reader.integer("num_experts", high=MAX_EXPERTS)
    top_k = reader.integer("num_experts_per_tok", high=MAX_EXPERTS)
    if top_k > experts:
        raise reader.wrong("num_experts_per_tok", top_k, f"at most the {experts} experts")
    width = reader.integer(rule.width, high=MAX_WIDTH)
    shared = 0
    if rule.shared_count is not None:
        shared = reader.integer_or_none(rule.shared_count, low=0, high=MAX_EXPERTS) or 0
        if not reader.has(rule.shared_count) and rule.shared_count not in reader.defaults:
            reader.remarks.append(f"{rule.shared_count} is absent: no shared experts")
    groups, top_groups, bias = _routing(reader, rule, experts, top_k)
    return Moe(
        experts=experts,
        top_k=top_k,
        width=width,
        shared_width=shared * width,
        groups=groups,
        top_groups=top_groups,
        router_bias=bias,
    )


def _routing(reader: ConfigReader, rule: MoeRule, experts: int, top_k: int) -> tuple[int, int, bool]:
    """Return (groups, groups a token may choose from, whether each expert has a correction bias)."""
    if rule.topk_method is None:
        return 1, 1, rule.router_bias
    method = reader.text("topk_method")
    if method is None:
        method = reader.taken_from_class["topk_method"] = rule.topk_method
    if method not in TOPK_METHODS:
        raise reader.wrong("topk_method", method, ", ".join(TOPK_METHODS))
    bias = rule.router_bias or method == "noaux_tc"
    if method not in GROUPED_TOPK:
        reader.skip("n_group", "topk_group")
        return 1, 1, bias
    groups = reader.integer_or_none("n_group", high=MAX_EXPERTS) or 1
    top_groups = reader.integer_or_none("topk_group", high=MAX_EXPERTS) or groups
    if experts % groups:
        raise reader.wrong("n_group", groups, f"a divisor of the {experts} experts")
    if top_groups > groups:
        raise reader.wrong("topk_group", top_groups, f"at most n_group = {groups}")
    if top_k > top_groups * (experts // groups):
        held = top_groups * (experts // groups)
        raise reader.wrong("num_experts_per_tok", top_k, f"at most the {held} experts of topk_group = {top_groups}")
    return groups, top_groups, bias
