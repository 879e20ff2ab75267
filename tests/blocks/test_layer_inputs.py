"""What a token brings to each layer: parameters, lookup, work, messages and memory, by hand."""

import msgspec
import pytest
from blocks.made_up import axis, decode, machine, model

from inferometer.blocks.params import count_params
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.specs.deployment import Deployment, Sizes
from inferometer.specs.feedforward import Ffn
from inferometer.specs.mixers import Attention
from inferometer.specs.model import LayerInputs

H, V, L, WIDTH, ROWS, F, BATCH = 256, 1000, 4, 32, 900, 512, 64
PLAIN = model(Attention(heads=8, kv_heads=4, head_dim=32), Ffn(width=F), layers=L, hidden=H, vocab=V)
GIVEN = msgspec.structs.replace(PLAIN, layer_inputs=LayerInputs(width=WIDTH, rows=ROWS))


def step(spec, *, sizes=None, axes=()):
    problem = make_problem(spec, machine(*axes), decode(1000), backend="roofline")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=BATCH))


def op(got, name, segment=None):
    return next(x for x in got.ops if x.name == name and segment in (None, x.segment))


def test_their_parameters():
    table, of_layers = ROWS * L * WIDTH, L * (2 * WIDTH * H + H)
    projection = L * WIDTH * H + WIDTH
    plain, given = count_params(PLAIN), count_params(GIVEN)
    assert given.total - plain.total == table + projection + of_layers
    assert given.active_one_table - plain.active_one_table == projection + of_layers


def test_a_token_looks_up_a_row_and_each_layer_gates_its_part():
    got = step(GIVEN)
    lookup = op(got, "layer-inputs")
    assert lookup.traffic_bytes == {"weights": BATCH * L * WIDTH * 2, "activations": BATCH * L * WIDTH * 2}
    assert op(got, "layer-inputs.project").flops == 2 * BATCH * (L * WIDTH) * H
    gate, add = op(got, "layer-inputs.gate"), op(got, "layer-inputs.add")
    assert gate.flops == add.flops == 2 * BATCH * WIDTH * H
    assert gate.layers == add.layers == L
    assert op(got, "layer-inputs.post-norm").traffic_bytes["activations"] == BATCH * 4 * H * 2


def test_the_table_is_split_and_what_layers_hold_is_whole_on_every_rank():
    whole, split = step(GIVEN), step(GIVEN, sizes=Sizes(tp=4), axes=(axis(4),))
    plain = step(PLAIN).memory.weights_bytes, step(PLAIN, sizes=Sizes(tp=4), axes=(axis(4),)).memory.weights_bytes
    tables, layers = 2 * (ROWS + H) * L * WIDTH, 2 * (L * (2 * WIDTH * H + H) + WIDTH)
    assert whole.memory.weights_bytes - plain[0] == tables + layers
    assert split.memory.weights_bytes - plain[1] == tables / 4 + layers
    assert split.useful_flops == pytest.approx(whole.useful_flops, rel=1e-9)


def test_with_stages_the_first_holds_the_table_and_hands_all_features_over():
    plain, given = (step(spec, sizes=Sizes(pp=2), axes=(axis(2),)) for spec in (PLAIN, GIVEN))
    sent = [op(x, "send(pp)").traffic_bytes["message"] for x in (plain, given)]
    assert sent[1] / sent[0] == (H + L * WIDTH) / H
    assert given.memory.weights_bytes > plain.memory.weights_bytes


def test_a_pass_keeps_them_for_every_layer():
    kept = [step(spec).memory.activation_bytes_per_token for spec in (PLAIN, GIVEN)]
    assert kept[1] - kept[0] == 2 * L * WIDTH
