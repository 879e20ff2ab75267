"""Models that use every kind of norm, bias, window and sharing the blocks know, drawn at random."""

from hypothesis import strategies as st
from mixer_strategies import besides, formats, linears, mambas, matrices

from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Attention
from inferometer.specs.model import Layer, LayerInputs, ModelSpec


@st.composite
def norms(draw):
    """Return the fields that say which norms are around a block; at least one is."""
    pre = draw(st.booleans())
    post = not pre or draw(st.booleans())
    return {"pre_norm": pre, "post_norm": post, "norm_weight": draw(st.booleans()), "norm_bias": draw(st.booleans())}


@st.composite
def attentions(draw):
    heads = draw(st.sampled_from((4, 8)))
    limit = draw(st.sampled_from(({}, {"window": 300}, {"chunk": 700})))
    return Attention(
        heads=heads,
        kv_heads=draw(st.sampled_from((1, 2, 4))),
        head_dim=draw(st.sampled_from((32, 64))),
        v_dim=draw(st.sampled_from((None, 16, 32))),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        qk_norm_over=draw(st.sampled_from(("head", "heads", "all"))),
        qk_norm_bias=draw(st.booleans()),
        sinks=draw(st.booleans()),
        v_from_k=draw(st.booleans()),
        kv_shared=draw(st.booleans()),
        k_norm=draw(st.booleans()),
        gate=draw(st.sampled_from(("none", "head", "wide"))),
        sub_norm=draw(st.booleans()),
        formats=draw(formats("q", "k", "v", "gate", "o")) if draw(st.booleans()) else {},
        **limit,
        **draw(norms()),
    )


@st.composite
def ffns(draw):
    parallel = draw(st.booleans())
    around = draw(norms())
    around |= {"pre_norm": draw(st.booleans()), "post_norm": False} if parallel else {}
    return Ffn(
        width=draw(st.sampled_from((256, 512))),
        gated=draw(st.booleans()),
        bias=draw(st.booleans()),
        parallel=parallel,
        sub_norm=draw(st.booleans()),
        **around,
    )


@st.composite
def moes(draw):
    return Moe(
        experts=draw(st.sampled_from((8, 16))),
        top_k=draw(st.integers(1, 6)),
        width=draw(st.sampled_from((128, 256))),
        gated=draw(st.booleans()),
        bias=draw(st.booleans()),
        shared_width=draw(st.sampled_from((0, 256))),
        router_linear_bias=draw(st.booleans()),
        router_scales=draw(st.booleans()),
        branch_norms=draw(st.integers(0, 3)),
        **draw(norms()),
    )


@st.composite
def rich_models(draw):
    """A decoder of three to six layers, dense and routed, some without a block, with everything at its ends."""
    kinds = st.one_of(attentions(), attentions(), linears(), mambas(), besides())
    mixers = (*draw(st.lists(kinds, min_size=2, max_size=2)), draw(matrices(256)))
    lacking = (Layer(mixer=0), Layer(ffn=1), Layer(), Layer(mixer=2, ffn=2))
    return ModelSpec(
        name="rich",
        architecture="made-up",
        hidden=256,
        vocab=1000,
        max_context=1 << 17,
        mixers=mixers,
        ffns=(draw(ffns()), draw(moes()), draw(matrices(256))),
        layers=(
            Layer(mixer=0, ffn=0),
            Layer(mixer=1, ffn=1),
            Layer(mixer=2, ffn=2),
            *draw(st.lists(st.sampled_from(lacking), max_size=3)),
        ),
        tied=draw(st.booleans()),
        dtype="bf16",
        positions=draw(st.sampled_from((0, 2048))),
        embedding_norm=draw(st.booleans()),
        norm_weight=draw(st.booleans()),
        norm_bias=draw(st.booleans()),
        head_bias=draw(st.booleans()),
        more_rows=draw(st.sampled_from((0, 8))),
        layer_inputs=draw(st.sampled_from((None, LayerInputs(width=32, rows=500)))),
        source="made up by the tests",
    )
