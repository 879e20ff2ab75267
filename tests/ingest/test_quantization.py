"""Which tensor is stored how: every method's own rules, module by module."""

import pytest
from ingest.samples import preset, tiny

from inferometer.errors import InferometerError, UnknownNameError
from inferometer.ingest.schemes import quant_scheme

ATTENTION = ("q", "k", "v", "o")
FP8_BLOCK = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}


def all_in(form, tensors):
    return dict.fromkeys(tensors, form)


def quantised(family="llama", /, *, sidecar=None, changes=None, **scheme):
    return tiny(family, sidecar=sidecar, **({"quantization_config": scheme} if scheme else {}), **(changes or {}))


def groups(weights, *, targets=("Linear",), ignore=("lm_head",)):
    group = {"targets": list(targets), "weights": weights}
    return {"quant_method": "compressed-tensors", "ignore": list(ignore), "config_groups": {"group_0": group}}


def modelopt(**values):
    return {"producer": {"name": "modelopt", "version": "0.33"}, "quantization": values}


INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


def test_deepseek_fp8_blocks_leave_router_and_head():
    model = preset("deepseek-ai/DeepSeek-V3")
    assert model.mixers[0].formats == all_in("fp8-block", ("q_a", "q_b", "kv_a", "kv_b", "o"))
    assert model.ffns[0].formats == all_in("fp8-block", ("gate", "up", "down"))
    shared = ("shared_gate_proj", "shared_up", "shared_down")
    assert model.ffns[1].formats == all_in("fp8-block", ("gate", "up", "down", *shared))
    assert (model.dtype, model.head_format, model.kv_format) == ("bf16", None, "bf16")


def test_fp8_with_a_null_block_has_one_scale_a_tensor():
    assert preset("mistralai/Devstral-2-123B-Instruct-2512").mixers[0].formats == all_in("fp8", ATTENTION)


def test_fp8_without_the_block_key_says_what_is_assumed():
    model = quantised(quant_method="fp8", activation_scheme="static")
    assert model.mixers[0].formats == all_in("fp8", ATTENTION)
    assert any("weight_block_size" in line for line in model.assumed)


def test_fp8_blocks_of_another_size_are_refused():
    with pytest.raises(InferometerError, match=r"weight_block_size is \[64, 64\]; allowed: \[128, 128\] or null"):
        quantised(quant_method="fp8", weight_block_size=[64, 64])


def test_a_list_of_modules_names_whole_components():
    left = ["lm_head", "model.layers.1", "self_attn.o_proj", "gate", "model.layers.2.mlp.down_proj"]
    model = quantised(**FP8_BLOCK, modules_to_not_convert=left)
    mixers = [model.mixers[layer.mixer].formats for layer in model.layers]
    ffns = [model.ffns[layer.ffn].formats for layer in model.layers]
    assert mixers[0] == all_in("fp8-block", "qkv")
    assert mixers[1] == {}
    assert ffns[0] == all_in("fp8-block", ("gate", "up", "down"))
    assert ffns[1] == {}
    assert ffns[2] == all_in("fp8-block", ("gate", "up"))


def test_a_layer_number_is_no_prefix_of_another():
    model = quantised(**FP8_BLOCK, modules_to_not_convert=["model.layers.1"], changes={"num_hidden_layers": 12})
    assert [bool(model.mixers[layer.mixer].formats) for layer in model.layers].count(False) == 1


def test_layers_with_other_rules_are_other_blocks():
    model = quantised(**FP8_BLOCK, modules_to_not_convert=["model.layers.0", "model.layers.3"])
    assert [layer.mixer for layer in model.layers] == [0, 1, 1, 0]
    assert len(model.mixers) == len(model.ffns) == 2


def test_compressed_tensors_ignores_by_regex_and_by_name():
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
    scheme = groups(INT4 | {"group_size": 32}, ignore=ignore)
    model = quantised("kimi_k2", **scheme)
    assert model.mixers[0].formats == {}
    assert model.ffns[0].formats == {}
    assert model.ffns[1].formats == all_in("int4-g32", ("gate", "up", "down"))
    assert model.head_format is None


def test_compressed_tensors_quantise_a_head_that_is_not_ignored():
    assert quantised(**groups(INT4, ignore=())).head_format == "int4-g128"
    assert quantised(**groups(INT4)).head_format is None
    assert quantised(**groups(INT4, ignore=()), changes={"tie_word_embeddings": True}).head_format is None


@pytest.mark.parametrize(
    ("weights", "form"),
    [
        (INT4, "int4-g128"),
        (INT4 | {"symmetric": False}, "int4-g128-zp"),
        (INT4 | {"group_size": 32}, "int4-g32"),
        (NVFP4, "nvfp4"),
        (NVFP4 | {"group_size": 32, "strategy": "group"}, "mxfp4"),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, "fp8-channel"),
        ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, "fp8-block"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, "int8"),
    ],
)
def test_a_weight_scheme_has_one_format(weights, form):
    assert quantised(**groups(weights)).ffns[0].formats["up"] == form


@pytest.mark.parametrize(
    "weights",
    [
        INT4 | {"group_size": 48},
        INT4 | {"group_size": None},
        INT4 | {"num_bits": 3},
        NVFP4 | {"group_size": 64},
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [32, 32]},
        {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128},
        {"num_bits": "4", "type": "int"},
        None,
        [],
    ],
)
def test_a_weight_scheme_without_a_format_is_refused(weights):
    with pytest.raises(InferometerError, match=r"allowed:|missing"):
        quantised(**groups(weights))


def test_groups_with_targets_give_each_module_its_own_format():
    scheme = groups(NVFP4, targets=["re:.*mlp.*"])
    scheme["config_groups"]["group_1"] = {
        "targets": ["re:.*self_attn.*"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
    }
    model = quantised(**scheme)
    assert model.mixers[0].formats == all_in("fp8-channel", ATTENTION)
    assert model.ffns[0].formats == all_in("nvfp4", ("gate", "up", "down"))
    assert model.head_format is None


def test_a_kv_cache_scheme_is_read():
    assert quantised(**groups(INT4), kv_cache_scheme={"num_bits": 8, "type": "float"}).kv_format == "fp8"
    assert quantised(**groups(INT4), kv_cache_scheme=None).kv_format == "bf16"


def test_awq_and_gptq_hold_zero_points():
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert quantised(**awq, zero_point=True).mixers[0].formats == all_in("int4-g128-zp", ATTENTION)
    assert quantised(**awq, zero_point=False).mixers[0].formats == all_in("int4-g128", ATTENTION)
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    assert quantised(**gptq).ffns[0].formats == all_in("int4-g128-zp", ("gate", "up", "down"))
    assert quantised(**gptq).head_format is None
    assert quantised(**gptq, lm_head=True).head_format == "int4-g128-zp"


def test_gptq_rules_leave_modules_or_list_them():
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    left = quantised(**gptq, dynamic={"-:.*self_attn.*": {}})
    assert left.mixers[0].formats == {}
    assert left.ffns[0].formats
    listed = quantised(**gptq, modules_in_block_to_quantize=[["mlp.up_proj", "mlp.gate_proj"]])
    assert listed.mixers[0].formats == {}
    assert listed.ffns[0].formats == all_in("int4-g128-zp", ("gate", "up"))
    with pytest.raises(InferometerError, match="dynamic"):
        quantised(**gptq, dynamic={"+:.*": {"bits": 8}})


@pytest.mark.parametrize("method", ["awq", "gptq"])
@pytest.mark.parametrize("values", [{"bits": 3, "group_size": 128}, {"bits": 4, "group_size": -1}, {"bits": 4}])
def test_integers_without_a_format_are_refused(method, values):
    with pytest.raises(InferometerError, match=r"allowed:|missing"):
        quantised(quant_method=method, **values)


def test_a_sidecar_alone_quantises():
    model = preset("nvidia/Llama-3.1-70B-Instruct-FP8")
    assert model.mixers[0].formats == all_in("fp8", ATTENTION)
    assert (model.head_format, model.kv_format) == (None, "fp8")


def test_a_sidecar_excludes_by_wildcard():
    excluded = ["lm_head", "model.layers.0*", "model.layers.1.*", "model.layers.2.self_attn*"]
    sidecar = modelopt(quant_algo="NVFP4", kv_cache_quant_algo="FP8", group_size=16, exclude_modules=excluded)
    model = quantised("llama", sidecar=sidecar, changes={"num_hidden_layers": 12})
    mixers = [bool(model.mixers[layer.mixer].formats) for layer in model.layers]
    assert mixers == [False, False, False] + [True] * 9
    assert [bool(model.ffns[layer.ffn].formats) for layer in model.layers] == [False, False] + [True] * 10


def test_a_wrapper_s_prefix_makes_no_difference():
    for prefix in ("model.language_model.layers", "language_model.model.layers", "model.layers"):
        sidecar = modelopt(quant_algo="NVFP4", exclude_modules=[f"{prefix}.*.self_attn*", "language_model.lm_head"])
        model = quantised(sidecar=sidecar)
        assert model.mixers[0].formats == {}
        assert model.ffns[0].formats == all_in("nvfp4", ("gate", "up", "down"))
        assert model.head_format is None


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [
        ("FP8", "fp8"),
        ("NVFP4", "nvfp4"),
        ("W4A16_NVFP4", "nvfp4"),
        ("W4A16_AWQ", "int4-g128"),
        ("fp8_pb_wo", "fp8-block"),
    ],
)
def test_a_modelopt_algorithm_has_one_format(algorithm, form):
    sidecar = modelopt(quant_algo=algorithm, exclude_modules=["lm_head"])
    assert quantised(sidecar=sidecar).mixers[0].formats == all_in(form, ATTENTION)


def test_mixed_precision_follows_each_module():
    layers = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.1.mlp": {"quant_algo": "NVFP4", "group_size": 16},
        "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    }
    model = quantised(sidecar=modelopt(quant_algo="MIXED_PRECISION", quantized_layers=layers))
    assert [model.mixers[layer.mixer].formats for layer in model.layers] == [{"q": "fp8"}, {}, {}, {}]
    assert [bool(model.ffns[layer.ffn].formats) for layer in model.layers] == [False, True, False, False]
    assert model.head_format == "nvfp4"


def test_experts_that_differ_in_format_are_refused():
    layers = {"model.layers.0.mlp.experts.3.up_proj": {"quant_algo": "NVFP4"}}
    with pytest.raises(InferometerError, match=r"experts of layer 0 differ in format \(nvfp4, unquantised\)"):
        quantised("qwen3_moe", sidecar=modelopt(quant_algo="MIXED_PRECISION", quantized_layers=layers))


def test_experts_that_are_all_listed_share_their_format():
    layers = {
        f"model.layers.{layer}.mlp.experts.{expert}.{tensor}_proj": {"quant_algo": "NVFP4"}
        for layer in range(4)
        for expert in range(16)
        for tensor in ("gate", "up", "down")
    }
    model = quantised("qwen3_moe", sidecar=modelopt(quant_algo="MIXED_PRECISION", quantized_layers=layers))
    assert model.ffns[0].formats == all_in("nvfp4", ("gate", "up", "down"))
    assert model.mixers[0].formats == {}


def test_a_router_is_quantised_only_where_it_is_spelled_out():
    blanket = quantised("qwen3_moe", sidecar=modelopt(quant_algo="FP8", exclude_modules=["lm_head"]))
    assert "router" not in blanket.ffns[0].formats
    layers = {f"model.layers.{layer}.mlp.gate": {"quant_algo": "FP8"} for layer in range(4)}
    spelled = quantised("qwen3_moe", sidecar=modelopt(quant_algo="MIXED_PRECISION", quantized_layers=layers))
    assert spelled.ffns[0].formats == {"router": "fp8"}


def test_mixtral_s_own_module_names_are_known():
    left = ["block_sparse_moe.gate", "re:.*experts\\.\\d+\\.w2"]
    model = quantised("mixtral", **groups(INT4, ignore=["lm_head", *left]))
    assert model.ffns[0].formats == all_in("int4-g128", ("gate", "up"))


def test_modelopt_may_quantise_the_kv_cache_alone():
    model = quantised(sidecar=modelopt(quant_algo=None, kv_cache_quant_algo="FP8"))
    assert model.mixers[0].formats == {}
    assert model.kv_format == "fp8"


def test_modelopt_without_exclusions_is_assumed_to_leave_the_head():
    model = quantised(sidecar=modelopt(quant_algo="NVFP4", kv_cache_quant_algo="FP8"))
    assert model.head_format is None
    assert any("exclude_modules" in line for line in model.assumed)


def test_the_sidecar_wins_over_the_config_and_it_is_said():
    model = quantised(sidecar=modelopt(quant_algo="NVFP4", exclude_modules=["lm_head"]), **FP8_BLOCK)
    assert model.mixers[0].formats == all_in("nvfp4", ATTENTION)
    assert any("hf_quant_config.json" in line for line in model.assumed)


@pytest.mark.parametrize("method", ["bitsandbytes", "hqq", "exl3"])
def test_an_unknown_method_is_refused_with_the_known_ones(method):
    with pytest.raises(UnknownNameError, match=r"unknown quantization method .*compressed-tensors"):
        quantised(quant_method=method)


def test_a_nameless_scheme_is_refused():
    with pytest.raises(InferometerError, match="quant_method is missing"):
        quantised(group_size=64, bits=4)


def test_an_unread_key_of_the_quantisation_is_listed():
    assert quantised(**FP8_BLOCK, mystery=1).unknown_keys == ("quantization_config.mystery",)


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:(", "re:" + ".*" * 30, "re:" + "a" * 600, "*a" * 40])
def test_a_pattern_that_could_run_for_ever_is_refused(pattern):
    with pytest.raises(InferometerError, match=r"pattern|regex"):
        quantised(**groups(INT4, ignore=[pattern]))


def test_more_rules_than_any_checkpoint_has_are_refused():
    slow = [f"re:.*a{i}.*b.*c.*d.*" for i in range(1000)]
    with pytest.raises(InferometerError, match="quantisation rules take"):
        quantised(**groups(INT4, ignore=slow))
    layers = {f"experts.{expert}": {"quant_algo": "NVFP4"} for expert in range(50_000)}
    many = {"num_hidden_layers": 10_000, "num_experts": 100_000}
    with pytest.raises(InferometerError, match="quantisation rules take"):
        quantised("qwen3_moe", sidecar=modelopt(quant_algo="MIXED_PRECISION", quantized_layers=layers), changes=many)


@pytest.mark.parametrize("scheme", ["fp8", "fp8-block", "int4-g128", "mxfp4", "nvfp4", "bf16"])
@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-235b-a22b-nvfp4", "meta-llama-3.1-8b"])
def test_a_named_scheme_covers_linear_weights_and_nothing_else(name, scheme):
    before = preset(name)
    model = quant_scheme(before, scheme)
    for block in (*model.mixers, *model.ffns):
        linear = [tensor for tensor in block.matrices() if tensor != "router"]
        assert block.formats == ({} if scheme == "bf16" else all_in(scheme, linear))
    assert (model.head_format, model.kv_format, model.dtype) == (None, before.kv_format, "bf16")


def test_a_named_scheme_merges_layers_that_it_makes_equal():
    mixed = quantised(**FP8_BLOCK, modules_to_not_convert=["model.layers.0"])
    assert len(mixed.mixers) == 2
    assert len(quant_scheme(mixed, "nvfp4").mixers) == 1
    assert quant_scheme(mixed, "bf16") == tiny("llama")


def test_an_unknown_scheme_is_refused_with_the_closest():
    with pytest.raises(UnknownNameError, match="did you mean 'nvfp4'"):
        quant_scheme(tiny("llama"), "nvpf4")
