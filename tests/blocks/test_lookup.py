"""Memory tables, layers that go together, and layers that are visited again."""

import msgspec
import numpy as np
import pytest
from blocks.made_up import axis, decode, machine, model

from inferometer.blocks.model import stage_kinds, unit_count
from inferometer.blocks.params import count_params
from inferometer.estimate.candidates import split_layers
from inferometer.estimate.estimate import estimate, make_problem
from inferometer.estimate.legality import broken_rules
from inferometer.memory.footprint import kv_bytes_per_token
from inferometer.specs.deployment import Deployment, EngineSpec, Sizes
from inferometer.specs.feedforward import Ffn
from inferometer.specs.lookup import Lookup
from inferometer.specs.mixers import Attention
from inferometer.specs.model import Layer

H, L, B = 256, 3, 64
ATTENTION = Attention(heads=8, kv_heads=8, head_dim=32)
FFN = Ffn(width=512)
ROWS, W, READS, N = 10_000, 64, 8, 4
PLAIN = model(ATTENTION, FFN, layers=L, hidden=H)


def table(**more):
    """One table before the first layer, which goes with it."""
    fields = {"rows": ROWS, "width": W, "reads": READS, **more}
    block = Lookup(pre_norm=False, **fields)
    layers = (Layer(ffn=1), *PLAIN.layers)
    return msgspec.structs.replace(PLAIN, ffns=(FFN, block), layers=layers, units=(2, *(1,) * (L - 1)))


def step(spec, sizes=None, chips=1):
    problem = make_problem(spec, machine(axis(chips)), decode(64), backend="roofline", scheduler="serial")
    return estimate(problem, Deployment(sizes=sizes or Sizes(), batch=B))


@pytest.mark.parametrize(
    ("fields", "matrix"),
    [
        ({}, H * READS * W),
        ({"outputs": N + 1}, (N + 1) * H * READS * W),
        ({"outputs": N + 1, "norms": 3, "conv": 4}, (N + 1) * H * READS * W + 3 * N * H + 4 * N * H),
    ],
)
def test_parameters(fields, matrix):
    more = count_params(table(**fields)).total - count_params(PLAIN).total
    assert more == ROWS * W + matrix


def test_a_token_is_active_in_the_rows_it_reads():
    count, plain = count_params(table()), count_params(PLAIN)
    assert count.active - plain.active == READS * W + H * READS * W


def test_rows_are_read_from_the_chips_memory_and_gathered():
    ops = {op.name: op for op in step(table(), Sizes(tp=4), chips=4).ops}
    assert ops["memory-table"].traffic_bytes["weights"] == B * READS * (W / 4) * 2
    assert ops["gather-rows(tp)"].traffic_bytes["message"] == B * READS * W * 2
    assert ops["memory.project"].traffic_bytes["weights"] == H * READS * W * 2


def test_a_table_in_the_chips_memory_is_split_over_tp():
    held, plain = (step(spec, Sizes(tp=4), chips=4).memory.weights_bytes for spec in (table(), PLAIN))
    assert held - plain == ROWS * (W / 4) * 2 + H * READS * W * 2


def test_a_table_in_the_hosts_memory_is_in_the_checkpoint_and_not_on_the_chip():
    host = table(place="host")
    assert count_params(host) == count_params(table())
    held, plain = (step(spec, Sizes(tp=4), chips=4).memory.weights_bytes for spec in (host, PLAIN))
    assert held - plain == H * READS * W * 2
    ops = {op.name: op for op in step(host, Sizes(tp=4), chips=4).ops}
    assert ops["memory-table"].traffic_bytes["weights"] == 0
    assert "gather-rows(tp)" not in ops


def test_layers_of_a_unit_are_on_one_stage():
    spec = table()
    assert unit_count(spec) == L
    for pp in range(1, L + 1):
        kinds = stage_kinds(spec, split_layers(unit_count(spec), pp, "even"))
        first = next(kind.multiplicities for kind in kinds if kind.multiplicities[-3])
        assert first[:2] == (1, -(-L // pp)), "the table, and the layers of the first stage"
    rules = broken_rules(spec, EngineSpec(name="x", version=""), sizes(pp=L + 1))
    assert [rule.name for rule in rules if rule.broken.any()] == ["stages-exceed-layers"]


def sizes(**given):
    return {role: np.full(1, float(given.get(role, 1))) for role in ("r", "pp", "dpa", "tp", "ep", "etp", "dcp")}


def test_units_add_up_to_the_layers():
    with pytest.raises(ValueError, match="do not add up"):
        msgspec.structs.replace(PLAIN, units=(2, 2)).__post_init__()


def looped(visits):
    return msgspec.structs.replace(PLAIN, layers=(Layer(mixer=0, ffn=0, visits=visits),) * L, units=(L,))


def test_a_layer_visited_again_has_its_weights_once_and_a_cache_a_visit():
    thrice = looped(3)
    assert count_params(thrice).total == count_params(PLAIN).total
    assert kv_bytes_per_token(thrice) == 3 * kv_bytes_per_token(PLAIN)
    own, once = step(thrice).memory, step(PLAIN).memory
    assert own.weights_bytes == once.weights_bytes
    assert own.kv_bytes_per_sequence == 3 * once.kv_bytes_per_sequence


def test_a_layer_visited_again_is_run_again():
    layers = [{op.name: op.layers for op in step(spec).ops}["attention-core"] for spec in (PLAIN, looped(3))]
    assert layers == [L, 3 * L]
    assert step(looped(3)).step_s > 2 * step(PLAIN).step_s
