"""Parameters of made-up models against formulas written out by hand."""

import pytest
from blocks.made_up import model
from hypothesis import given
from strategies import models

from inferometer.blocks.params import count_params
from inferometer.specs.drafter import Drafter, DraftLayer
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.mixers import Attention, Mla

H, V, L = 256, 1000, 2
N, D = 8, 32
F = 512
NORMS = 2 * H
ENDS = 2 * V * H + H
"""Embedding, head, final norm."""


def attention(kv_heads, **more):
    return Attention(heads=N, kv_heads=kv_heads, head_dim=D, **more)


def total(mixer, ffn, **more):
    return count_params(model(mixer, ffn, layers=L, hidden=H, vocab=V, **more)).total


PLAIN = Ffn(width=F, gated=False)
PLAIN_PARAMS = 2 * H * F


def attention_params(kv_heads):
    return H * N * D + 2 * H * kv_heads * D + N * D * H


@pytest.mark.parametrize("kv_heads", [1, 2, N], ids=["mqa", "gqa", "mha"])
def test_attention(kv_heads):
    layer = attention_params(kv_heads) + PLAIN_PARAMS + NORMS
    assert total(attention(kv_heads), PLAIN) == L * layer + ENDS


def test_gated_feed_forward_has_a_third_matrix():
    layer = attention_params(1) + 3 * H * F + NORMS
    assert total(attention(1), Ffn(width=F)) == L * layer + ENDS


def test_a_tied_head_is_the_embedding():
    assert total(attention(1), PLAIN) - total(attention(1), PLAIN, tied=True) == V * H


def test_biases_are_as_wide_as_the_outputs():
    biased = attention(2, qkv_bias=True, out_bias=True)
    more = total(biased, Ffn(width=F, bias=True)) - total(attention(2), Ffn(width=F))
    assert more == L * ((N + 2 * 2) * D + H + 2 * F + H)


def test_plain_feed_forward_biases():
    assert total(attention(2), Ffn(width=F, gated=False, bias=True)) - total(attention(2), PLAIN) == L * (F + H)


def test_qk_norms_are_one_head_wide():
    assert total(attention(2, qk_norm=True), PLAIN) - total(attention(2), PLAIN) == L * 2 * D


def mla(**more):
    return Mla(heads=N, kv_rank=64, nope_dim=32, rope_dim=16, v_dim=48, **more)


KV_A, KV_B, MLA_O = H * (64 + 16), 64 * N * (32 + 48), N * 48 * H


def test_latent_attention_without_a_query_latent():
    layer = H * N * (32 + 16) + KV_A + 64 + KV_B + MLA_O + PLAIN_PARAMS + NORMS
    assert total(mla(q_rank=None), PLAIN) == L * layer + ENDS


def test_latent_attention_with_a_query_latent():
    layer = H * 96 + 96 + 96 * N * (32 + 16) + KV_A + 64 + KV_B + MLA_O + PLAIN_PARAMS + NORMS
    assert total(mla(q_rank=96), PLAIN) == L * layer + ENDS


def test_latent_attention_biases():
    more = total(mla(q_rank=96, bias=True), PLAIN) - total(mla(q_rank=96), PLAIN)
    assert more == L * (96 + (64 + 16) + H)


E, K, W, S = 16, 4, 128, 192
MOE = Moe(experts=E, top_k=K, width=W)


def test_experts_and_router():
    layer = attention_params(1) + E * 3 * H * W + E * H + NORMS
    assert total(attention(1), MOE) == L * layer + ENDS


def test_shared_experts_their_gate_and_the_router_bias():
    rich = Moe(experts=E, top_k=K, width=W, shared_width=S, shared_gate=True, router_bias=True)
    assert total(attention(1), rich) - total(attention(1), MOE) == L * (3 * H * S + H + E)


def test_one_token_is_active_in_k_of_the_experts():
    count = count_params(model(attention(1), MOE, layers=L, hidden=H, vocab=V))
    assert count.active == count.total - L * (E - K) * 3 * H * W
    assert count.active_one_table == count.active - V * H


def test_a_tied_model_has_one_table_already():
    count = count_params(model(attention(1), MOE, layers=L, hidden=H, vocab=V, tied=True))
    assert count.active_one_table == count.active


def test_prediction_layers_stand_apart():
    plain = count_params(model(attention(1), PLAIN, layers=L, hidden=H, vocab=V))
    drafter = Drafter(
        kind="mtp",
        mixers=(attention(1),),
        ffns=(PLAIN,),
        layers=(DraftLayer(mixer=0, ffn=0),) * 2,
        shapes={"eh_proj": (H, 2 * H, 2), "norms": (H, 1, 6)},
    )
    more = count_params(model(attention(1), PLAIN, layers=L, hidden=H, vocab=V, drafters=(drafter,)))
    assert more.total == plain.total
    assert more.mtp == 2 * (attention_params(1) + PLAIN_PARAMS + NORMS + 3 * H + 2 * H * H)


def test_bf16_takes_two_bytes_a_parameter():
    count = count_params(model(attention(2), PLAIN, layers=L))
    assert count.checkpoint_bytes == 2 * count.total


def test_block_scales_are_counted_whole():
    quantised = attention(1, formats={"k": "fp8-block"})
    count = count_params(model(quantised, PLAIN, layers=L, hidden=H))
    blocks = -(-D // 128) * -(-H // 128)
    assert count.checkpoint_bytes == 2 * count.total + L * (-D * H + 4 * blocks)


@given(models())
def test_kinds_add_up_to_the_total(spec):
    count = count_params(spec)
    assert sum(count.by_kind.values()) == count.total
    assert 0 < count.active_one_table <= count.active <= count.total
