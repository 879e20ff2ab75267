"""Recurrent mixers, from a config read through its dialect: a reader a kind, one block for every layer.

Letters: H hidden, N heads of the state, G groups.
"""

from collections.abc import Callable, Mapping, Sequence

from inferometer.ingest.bounds import MAX_HEADS, MAX_HIDDEN, MAX_TOKENS
from inferometer.ingest.dialect import Dialect
from inferometer.ingest.norms import flag, norms
from inferometer.ingest.reader import ConfigReader
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv

MAX_SPAN = 1000
"""Tokens of a short convolution."""

AUTO = "auto"
"""A size that the class works out."""

Recurrent = LinearAttention | Mamba1 | Mamba2 | ShortConv


def _gated_deltas(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> Sequence[Recurrent]:
    """Return the gated delta net of Qwen3-Next: heads of v share those of q and k."""
    del hidden
    heads = reader.integer("linear_num_value_heads", high=MAX_HEADS)
    key_heads = reader.integer("linear_num_key_heads", high=MAX_HEADS)
    if heads % key_heads:
        raise reader.wrong("linear_num_key_heads", key_heads, f"a divisor of linear_num_value_heads = {heads}")
    block = LinearAttention(
        heads=heads,
        key_heads=key_heads,
        key_dim=reader.integer("linear_key_head_dim", high=MAX_HEADS),
        value_dim=reader.integer("linear_value_head_dim", high=MAX_HEADS),
        decay="head",
        conv=reader.integer("linear_conv_kernel_dim", high=MAX_SPAN),
        **norms(reader, dialect),
    )
    return [block] * layers


def _kdas(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> Sequence[Recurrent]:
    """Return Kimi delta attention: a decay a key channel, as many heads of q and k as of v."""
    del hidden
    heads = reader.integer("linear_num_heads", high=MAX_HEADS)
    dim = reader.integer("linear_head_dim", high=MAX_HEADS)
    low_rank = dialect.recurrent.low_rank
    _as_many_kv_heads(reader, heads)
    block = LinearAttention(
        heads=heads,
        key_heads=heads,
        key_dim=dim,
        value_dim=dim,
        decay="channel",
        decay_rank=dim if "decay" in low_rank else None,
        gate_rank=dim if "gate" in low_rank else None,
        conv=reader.integer("linear_conv_kernel_dim", high=MAX_SPAN),
        **norms(reader, dialect),
    )
    return [block] * layers


def _lightnings(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> Sequence[Recurrent]:
    """Return lightning attention: a fixed decay a head, no delta rule, a norm over groups of heads."""
    heads = reader.integer("num_attention_heads", high=MAX_HEADS)
    dim = reader.integer_or_none("head_dim", high=MAX_HEADS)
    if dim is None and hidden % heads:
        raise reader.wrong("num_attention_heads", heads, f"a divisor of hidden_size = {hidden}, or a head_dim")
    _as_many_kv_heads(reader, heads)
    dim = dim or hidden // heads
    block = LinearAttention(
        heads=heads,
        key_heads=heads,
        key_dim=dim,
        value_dim=dim,
        decay="fixed",
        delta=False,
        qk_norm=flag(reader, dialect.recurrent.qk_norm),
        out_norm_groups=reader.integer("group_norm_size", high=heads),
        chunk=reader.integer("block_size", high=MAX_TOKENS),
        **norms(reader, dialect),
    )
    return [block] * layers


def _as_many_kv_heads(reader: ConfigReader, heads: int) -> None:
    """Refuse heads of k and v that are fewer than those of q; 0 is as many."""
    name = "num_kv_heads_for_linear_attn"
    stated = reader.integer_or_none(name, low=0, high=MAX_HEADS)
    if stated not in (None, 0, heads):
        raise reader.wrong(name, stated, f"0 or num_attention_heads = {heads}")


def _mamba2s(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> Sequence[Recurrent]:
    """Return Mamba-2; where the width of a head is to be worked out, the inner width is `mamba_expand` H."""
    heads = reader.integer("mamba_n_heads", high=MAX_HEADS)
    groups = reader.integer("mamba_n_groups", high=MAX_HEADS)
    if heads % groups:
        raise reader.wrong("mamba_n_groups", groups, f"a divisor of the {heads} heads of Mamba")
    rule = dialect.recurrent
    block = Mamba2(
        heads=heads,
        head_dim=_head_dim(reader, hidden, heads),
        groups=groups,
        state=reader.integer("mamba_d_state", high=MAX_HEADS),
        conv=reader.integer("mamba_d_conv", high=MAX_SPAN),
        conv_bias=reader.flag("mamba_conv_bias", default=True),
        in_bias=flag(reader, rule.in_bias),
        out_bias=flag(reader, rule.out_bias),
        gated_norm=flag(reader, rule.norm),
        chunk=reader.integer("mamba_chunk_size", high=MAX_TOKENS),
        **norms(reader, dialect),
    )
    return [block] * layers


def _head_dim(reader: ConfigReader, hidden: int, heads: int) -> int:
    """Return the width of a head: stated, or the inner width (stated, or `mamba_expand` H) over the heads."""
    inner = reader.integer_or_none("mamba_d_ssm", high=MAX_HIDDEN)
    key, value = reader.find("mamba_d_head")
    reader.skip("mamba_expand")
    if value != AUTO:
        dim = reader.integer("mamba_d_head", high=MAX_HEADS)
        if inner is not None and inner != dim * heads:
            raise reader.wrong("mamba_d_ssm", inner, f"{heads} heads of {key} = {dim}")
        return dim
    wide = reader.integer("mamba_expand", high=MAX_HEADS) * hidden if inner is None else inner
    if wide % heads:
        raise reader.wrong("mamba_n_heads", heads, f"a divisor of the inner width {wide}")
    return wide // heads


def _mamba1s(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> Sequence[Recurrent]:
    """Return Mamba; where the rank of the time step is to be worked out, it is H / 16, rounded up."""
    _, rank = reader.find("mamba_dt_rank")
    block = Mamba1(
        inner=reader.integer("mamba_expand", high=MAX_HEADS) * hidden,
        state=reader.integer("mamba_d_state", high=MAX_HEADS),
        dt_rank=-(-hidden // 16) if rank == AUTO else reader.integer("mamba_dt_rank", high=MAX_HIDDEN),
        conv=reader.integer("mamba_d_conv", high=MAX_SPAN),
        conv_bias=reader.flag("mamba_conv_bias", default=True),
        bias=flag(reader, dialect.recurrent.in_bias),
        inner_norms=dialect.recurrent.inner_norms,
        **norms(reader, dialect),
    )
    return [block] * layers


def _short_convs(reader: ConfigReader, dialect: Dialect, hidden: int, layers: int) -> Sequence[Recurrent]:
    """Return LFM2's gated short convolution, as wide as the residual stream."""
    span = reader.integer("conv_L_cache", high=MAX_SPAN)
    block = ShortConv(width=hidden, conv=span, bias=reader.flag("conv_bias", default=False), **norms(reader, dialect))
    return [block] * layers


READERS: Mapping[str, Callable[[ConfigReader, Dialect, int, int], Sequence[Recurrent]]] = {
    "gdn": _gated_deltas,
    "kda": _kdas,
    "lightning": _lightnings,
    "mamba2": _mamba2s,
    "mamba1": _mamba1s,
    "short-conv": _short_convs,
}
"""Kind of mixer -> what reads one for every layer, of (reader, dialect, H, layers)."""
