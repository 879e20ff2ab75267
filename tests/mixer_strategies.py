"""Hypothesis strategies of mixers, and of the formats of any block's weights."""

import msgspec
from hypothesis import strategies as st

from inferometer.specs.indexer import Indexer
from inferometer.specs.matrix import Matrix
from inferometer.specs.mixers import Attention, Beside, Compressed, CrossAttention, Mla
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv

WEIGHT_FORMATS = ("bf16", "fp8", "fp8-block", "fp8-channel", "int4-g128", "mxfp4", "nvfp4")


def formats(*names):
    """Return a dictionary of weight formats for some of `names`."""
    return st.dictionaries(st.sampled_from(names), st.sampled_from(WEIGHT_FORMATS))


@st.composite
def indexers(draw):
    """Index heads of any kind, with pools and blocks, or another layer's choice."""
    pool = draw(st.sampled_from((1, 1, 4)))
    block = draw(st.sampled_from((1, 16)))
    heads = draw(st.sampled_from((2, 4)))
    return Indexer(
        heads=heads,
        dim=draw(st.sampled_from((32, 128))),
        top_k=pool * block * draw(st.integers(1, 100)),
        pool=pool,
        pool_gate=pool > 1 and draw(st.booleans()),
        block=block,
        lists=draw(st.sampled_from((1, heads))),
        weighted=draw(st.booleans()),
        q_norm=draw(st.booleans()),
        k_norm=draw(st.sampled_from(("none", "rms", "layer"))),
        input_norm=draw(st.booleans()),
        head_scales=draw(st.booleans()),
        shared=draw(st.booleans()),
        key_format=draw(st.sampled_from((None, "fp8-g128"))),
    )


def limits():
    """Return what limits the tokens a query reads: nothing, a window, or an indexer."""
    window = st.integers(1, 3000).map(lambda tokens: {"window": tokens})
    return st.one_of(st.just({}), window, indexers().map(lambda own: {"indexer": own}))


@st.composite
def compressed(draw):
    """A window alone, or with entries that are all read or chosen from, its own or another layer's."""
    ratio, own = draw(st.sampled_from((0, 1, 4, 128))), None
    keys = draw(st.sampled_from(("latent" if ratio == 1 else "compressed", "shared")))
    if ratio and draw(st.booleans()):
        top_k = draw(st.integers(1, 300))
        among = draw(st.sampled_from((None, 400)))
        norm = draw(st.sampled_from(("none", "rms")))
        own = Indexer(heads=4, dim=64, top_k=top_k, pool=ratio, k_norm=norm, key_format=None, among=among)
    return Compressed(
        heads=16,
        head_dim=draw(st.sampled_from((64, 128))),
        rope_dim=32,
        q_rank=96,
        out_groups=draw(st.sampled_from((4, 8))),
        out_rank=64,
        window=draw(st.sampled_from((16, 128))),
        ratio=ratio,
        overlap=ratio > 1 and draw(st.booleans()),
        gated=ratio != 1,
        gate_bias=draw(st.booleans()),
        entries_shared=ratio > 0 and draw(st.booleans()),
        indexer=own,
        index_keys=keys,
        formats=draw(formats("q_a", "q_b", "kv", "out_a", "out_b")),
    )


@st.composite
def attentions(draw):
    """MHA, GQA or MQA, with or without a window or an indexer."""
    heads = draw(st.sampled_from((4, 8, 16)))
    return Attention(
        heads=heads,
        kv_heads=draw(st.sampled_from([k for k in (1, 2, 4, 8, 16) if k <= heads])),
        head_dim=draw(st.sampled_from((32, 64, 128))),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        formats=draw(formats("q", "k", "v", "o", "index_q", "index_k")) if draw(st.booleans()) else {},
        **draw(limits()),
        **draw(st.one_of(st.just({}), st.just({}), of_token())),
    )


@st.composite
def of_token(draw):
    """What attention makes of its input beside q, k and v: sinks, taps, inputs, messages."""
    conv = draw(st.sampled_from((0, 4)))
    return {
        "conv": conv,
        "token_taps": conv > 0 and draw(st.booleans()),
        "token_sinks": draw(st.booleans()),
        "inputs": draw(st.sampled_from((1, 3))),
        "message_rank": draw(st.sampled_from((0, 16))),
    }


@st.composite
def mlas(draw):
    """Latent attention, with or without a q latent, a gate, a window or an indexer.

    The latent may be another layer's where there are index keys to keep: a model that keeps nothing is none.
    """
    most = draw(limits())
    keeps_keys = "indexer" in most and not most["indexer"].shared
    return Mla(
        heads=draw(st.sampled_from((4, 8, 16))),
        q_rank=draw(st.sampled_from((None, 96, 128))),
        kv_rank=draw(st.sampled_from((64, 128))),
        nope_dim=draw(st.sampled_from((32, 64))),
        rope_dim=draw(st.sampled_from((16, 32))),
        v_dim=draw(st.sampled_from((32, 64))),
        bias=draw(st.booleans()),
        gate=draw(st.sampled_from(("none", "none", "head", "wide"))),
        sinks=draw(st.booleans()),
        kv_shared=keeps_keys and draw(st.booleans()),
        formats=draw(formats("q", "q_a", "q_b", "kv_a", "kv_b", "gate", "o", "index_q", "index_k")),
        **most,
    )


@st.composite
def linears(draw):
    """Linear attention: any decay, with and without the delta rule, a convolution and latents of its gates."""
    heads = draw(st.sampled_from((4, 8, 16)))
    return LinearAttention(
        heads=heads,
        key_heads=draw(st.sampled_from([k for k in (1, 2, 4, 8, 16) if k <= heads])),
        key_dim=draw(st.sampled_from((16, 32))),
        value_dim=draw(st.sampled_from((16, 64))),
        decay=draw(st.sampled_from(("fixed", "head", "channel"))),
        delta=draw(st.booleans()),
        decay_rank=draw(st.sampled_from((None, 16))),
        gate=draw(st.sampled_from(("none", "head", "wide"))),
        gate_rank=draw(st.sampled_from((None, 16))),
        conv=draw(st.sampled_from((0, 4))),
        qk_norm=draw(st.booleans()),
        out_norm_groups=draw(st.sampled_from((None, 1, 4))),
        formats=draw(formats("q", "k", "v", "decay_b", "gate", "o")) if draw(st.booleans()) else {},
    )


@st.composite
def mambas(draw):
    """Mamba-2, Mamba, or a gated short convolution."""
    kind = draw(st.sampled_from(("mamba2", "mamba1", "short-conv")))
    bias, span = draw(st.booleans()), draw(st.sampled_from((2, 4)))
    if kind == "short-conv":
        return ShortConv(width=draw(st.sampled_from((256, 512))), conv=span, bias=bias)
    state, conv_bias = draw(st.sampled_from((16, 64))), draw(st.booleans())
    if kind == "mamba1":
        inner, rank = draw(st.sampled_from((256, 512))), draw(st.sampled_from((8, 16)))
        norms = draw(st.booleans())
        return Mamba1(
            inner=inner, state=state, dt_rank=rank, conv=span, conv_bias=conv_bias, bias=bias, inner_norms=norms
        )
    return Mamba2(
        heads=draw(st.sampled_from((8, 16))),
        head_dim=draw(st.sampled_from((16, 64))),
        groups=draw(st.sampled_from((1, 2, 8))),
        state=state,
        conv=span,
        conv_bias=conv_bias,
        in_bias=bias,
        out_bias=bias,
        gated_norm=draw(st.booleans()),
        formats=draw(formats("z", "b", "o")) if draw(st.booleans()) else {},
    )


@st.composite
def besides(draw):
    """Attention beside a recurrent mixer, without norms of their own."""
    parts = (draw(attentions()), draw(st.one_of(linears(), mambas())))
    return Beside(parts=tuple(msgspec.structs.replace(part, pre_norm=False) for part in parts))


def mixers_of_text():
    """Any kind of mixer that a pass without images runs."""
    return st.one_of(attentions(), mlas(), linears(), mambas(), besides())


@st.composite
def crosses(draw):
    """Attention over images; its layers are skipped without them."""
    heads = draw(st.sampled_from((4, 8, 16)))
    return CrossAttention(
        heads=heads,
        kv_heads=draw(st.sampled_from([k for k in (1, 2, 4, 8, 16) if k <= heads])),
        head_dim=draw(st.sampled_from((32, 64))),
        qk_norm=draw(st.booleans()),
        gates=draw(st.integers(0, 2)),
        formats=draw(formats("q", "k", "v", "o")) if draw(st.booleans()) else {},
    )


def matrices(hidden):
    """One matrix in place of a block."""
    return st.builds(Matrix, width=st.just(hidden), bias=st.booleans(), formats=formats("matrix"))
