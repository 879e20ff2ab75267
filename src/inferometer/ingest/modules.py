"""Where a checkpoint keeps a block's tensors: names of modules, which quantisation rules speak of. Data only."""

from collections.abc import Mapping

from inferometer.specs.block import Block
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.matrix import Matrix
from inferometer.specs.mixers import Attention, CrossAttention, Mla
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2, ShortConv

Modules = Mapping[str, tuple[str, ...]]
"""Tensor of ours -> module names below `model.layers.{i}.`, the checkpoint's first."""

ATTENTION_MODULES: Modules = {
    "q": ("self_attn.q_proj", "self_attn.qkv_proj"),
    "k": ("self_attn.k_proj", "self_attn.qkv_proj"),
    "v": ("self_attn.v_proj", "self_attn.qkv_proj"),
    "r": ("self_attn.r_proj",),
    "gate": ("self_attn.gate_proj", "self_attn.g_proj"),
    "o": ("self_attn.o_proj",),
    "sink": ("self_attn.sink_proj",),
    "k_taps": ("self_attn.k_proj.sconv.weight_proj",),
    "v_taps": ("self_attn.v_proj.sconv.weight_proj",),
    "index_q": ("self_attn.indexer.q_proj", "self_attn.index_q_proj", "self_attn.indexer.index_qk_proj"),
    "index_k": ("self_attn.indexer.k_proj", "self_attn.index_k_proj", "self_attn.indexer.index_qk_proj"),
}
MLA_MODULES: Modules = {
    "q_a": ("self_attn.q_a_proj",),
    "q_b": ("self_attn.q_b_proj",),
    "q": ("self_attn.q_proj",),
    "kv_a": ("self_attn.kv_a_proj_with_mqa",),
    "kv_b": ("self_attn.kv_b_proj",),
    "gate": ("self_attn.gate_proj", "self_attn.g_proj"),
    "o": ("self_attn.o_proj",),
    "index_q": ("self_attn.indexer.wq_b",),
    "index_k": ("self_attn.indexer.wk",),
    "index_weights": ("self_attn.indexer.weights_proj", "self_attn.indexers_proj"),
    "index_pool": ("self_attn.indexer.index_kpool_compress_gate",),
}
CROSS_MODULES: Modules = {name: (f"cross_attn.{name}_proj",) for name in ("q", "k", "v", "o")}
MATRIX_MODULES: Modules = {"matrix": ("self_attn.linear_attn", "mlp.linear_mlp")}
FFN_MODULES: Modules = {
    "gate": ("mlp.gate_proj", "mlp.gate_up_proj"),
    "up": ("mlp.up_proj", "mlp.gate_up_proj"),
    "down": ("mlp.down_proj",),
}
MOE_MODULES: Modules = {
    "router": ("mlp.gate",),
    "gate": ("mlp.experts.{e}.gate_proj",),
    "up": ("mlp.experts.{e}.up_proj",),
    "down": ("mlp.experts.{e}.down_proj",),
    "shared_gate_proj": ("mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj"),
    "shared_up": ("mlp.shared_experts.up_proj", "mlp.shared_expert.up_proj"),
    "shared_down": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj"),
    "shared_gate": ("mlp.shared_expert_gate",),
    "latent_down": ("mlp.routed_expert_down_proj", "mlp.fc1_latent_proj"),
    "latent_up": ("mlp.routed_expert_up_proj", "mlp.fc2_latent_proj"),
}
MIXTRAL_MODULES: Modules = {
    "router": ("block_sparse_moe.gate", "mlp.gate"),
    "gate": ("block_sparse_moe.experts.{e}.w1", "mlp.experts.{e}.gate_proj"),
    "up": ("block_sparse_moe.experts.{e}.w3", "mlp.experts.{e}.up_proj"),
    "down": ("block_sparse_moe.experts.{e}.w2", "mlp.experts.{e}.down_proj"),
}
FUSED_MODULES: Modules = {
    "router": ("mlp.router",),
    "gate": ("mlp.experts.gate_up_proj",),
    "up": ("mlp.experts.gate_up_proj",),
    "down": ("mlp.experts.down_proj",),
}
"""gpt-oss: all experts of a layer are one module."""
LLAMA4_MODULES: Modules = {
    "router": ("feed_forward.router",),
    "gate": ("feed_forward.experts.{e}.gate_proj", "feed_forward.experts.gate_up_proj"),
    "up": ("feed_forward.experts.{e}.up_proj", "feed_forward.experts.gate_up_proj"),
    "down": ("feed_forward.experts.{e}.down_proj", "feed_forward.experts.down_proj"),
    "shared_gate_proj": ("feed_forward.shared_expert.gate_proj",),
    "shared_up": ("feed_forward.shared_expert.up_proj",),
    "shared_down": ("feed_forward.shared_expert.down_proj",),
}
LLAMA4_FFN_MODULES: Modules = {name: (f"feed_forward.{name}_proj",) for name in ("gate", "up", "down")}
HUNYUAN_MODULES: Modules = {
    **MOE_MODULES,
    "router": ("mlp.gate.wg", "mlp.gate"),
    **{f"shared_{name}": (f"mlp.shared_mlp.{name}_proj",) for name in ("up", "down")},
    "shared_gate_proj": ("mlp.shared_mlp.gate_proj",),
}


GEMMA4_MODULES: Modules = {
    "router": ("router.proj",),
    "gate": ("experts.{e}.gate_proj", "experts.gate_up_proj"),
    "up": ("experts.{e}.up_proj", "experts.gate_up_proj"),
    "down": ("experts.{e}.down_proj", "experts.down_proj"),
    "shared_gate_proj": ("mlp.gate_proj",),
    "shared_up": ("mlp.up_proj",),
    "shared_down": ("mlp.down_proj",),
}
"""A dense feed-forward stands beside the experts."""


LINEAR_MODULES: Modules = {
    "q": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "self_attn.q_proj"),
    "k": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "self_attn.k_proj"),
    "v": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "self_attn.v_proj"),
    "beta": ("linear_attn.in_proj_b", "linear_attn.in_proj_ba", "self_attn.b_proj"),
    "decay": ("linear_attn.in_proj_a", "linear_attn.in_proj_ba", "self_attn.f_proj"),
    "decay_a": ("self_attn.f_a_proj",),
    "decay_b": ("self_attn.f_b_proj",),
    "gate": ("linear_attn.in_proj_z", "linear_attn.in_proj_qkvz", "self_attn.g_proj"),
    "gate_a": ("self_attn.g_a_proj",),
    "gate_b": ("self_attn.g_b_proj",),
    "o": ("linear_attn.out_proj", "self_attn.o_proj"),
}
"""Qwen's gated delta net, and KDA."""
LIGHTNING_MODULES: Modules = {
    **dict.fromkeys("qkv", ("self_attn.qkv_proj",)),
    "gate": ("self_attn.output_gate",),
    "o": ("self_attn.out_proj",),
}
BAILING_MODULES: Modules = {
    **dict.fromkeys("qkv", ("attention.query_key_value",)),
    "gate": ("attention.g_proj",),
    "o": ("attention.dense",),
}
MAMBA2_MODULES: Modules = {
    **dict.fromkeys(("z", "x", "b", "c", "dt"), ("mamba.in_proj", "mixer.in_proj")),
    "o": ("mamba.out_proj", "mixer.out_proj"),
}
MAMBA1_MODULES: Modules = {
    **dict.fromkeys("zx", ("mamba.in_proj", "mixer.in_proj")),
    "select": ("mamba.x_proj", "mixer.x_proj"),
    "dt": ("mamba.dt_proj", "mixer.dt_proj"),
    "o": ("mamba.out_proj", "mixer.out_proj"),
}
SHORT_CONV_MODULES: Modules = {"in": ("conv.in_proj",), "o": ("conv.out_proj",)}


MODULES: Mapping[type[Block], Modules] = {
    Attention: ATTENTION_MODULES,
    CrossAttention: CROSS_MODULES,
    Mla: MLA_MODULES,
    LinearAttention: LINEAR_MODULES,
    Mamba2: MAMBA2_MODULES,
    Mamba1: MAMBA1_MODULES,
    ShortConv: SHORT_CONV_MODULES,
    Matrix: MATRIX_MODULES,
    Ffn: FFN_MODULES,
    Moe: MOE_MODULES,
}
"""Kind of block -> its modules, where the dialect has no others."""
