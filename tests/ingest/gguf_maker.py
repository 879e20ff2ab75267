"""Writes small GGUF files: a header, and no tensor data."""

import struct

CODES = {"fp32": 0, "fp16": 1, "q4_0": 2, "q8_0": 8, "q4_k": 12, "q5_k": 13, "q6_k": 14, "bf16": 30, "mxfp4": 39}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(given):
    """Return a metadata value with its type."""
    if isinstance(given, bool):
        return struct.pack("<I?", 7, given)
    if isinstance(given, int):
        return struct.pack("<II", 4, given)
    if isinstance(given, float):
        return struct.pack("<If", 6, given)
    if isinstance(given, str):
        return struct.pack("<I", 8) + text(given)
    items = [value(item) for item in given]
    kind = items[0][:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def header(metadata, tensors, *, version=3, magic=b"GGUF"):
    """Return the bytes; tensors are name -> (shape with columns first, format)."""
    found = magic + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, given in metadata.items():
        found += text(key) + value(given)
    for name, (shape, form) in tensors.items():
        found += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, CODES.get(form, form), 0)
    return found


def llama(*, layers=2, hidden=512, heads=8, kv=2, width=1024, vocab=1000, tied=False, arch="llama", **more):
    """Return metadata and tensors of a Llama in Q4_K with v and down in Q6_K in layer 0."""
    d = hidden // heads
    metadata = {
        "general.architecture": arch,
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(vocab)],
        f"{arch}.block_count": layers,
        f"{arch}.context_length": 8192,
        f"{arch}.embedding_length": hidden,
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": kv,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
    } | {f"{arch}.{key}": given for key, given in more.items()}
    tensors = {"token_embd.weight": ((hidden, vocab), "q4_k"), "output_norm.weight": ((hidden,), "fp32")}
    if not tied:
        tensors["output.weight"] = ((hidden, vocab), "q6_k")
    for i in range(layers):
        better = "q6_k" if i == 0 else "q4_k"
        tensors |= {
            f"blk.{i}.attn_norm.weight": ((hidden,), "fp32"),
            f"blk.{i}.attn_q.weight": ((hidden, heads * d), "q4_k"),
            f"blk.{i}.attn_k.weight": ((hidden, kv * d), "q4_k"),
            f"blk.{i}.attn_v.weight": ((hidden, kv * d), better),
            f"blk.{i}.attn_output.weight": ((heads * d, hidden), "q4_k"),
            f"blk.{i}.ffn_norm.weight": ((hidden,), "fp32"),
            f"blk.{i}.ffn_gate.weight": ((hidden, width), "q4_k"),
            f"blk.{i}.ffn_up.weight": ((hidden, width), "q4_k"),
            f"blk.{i}.ffn_down.weight": ((width, hidden), better),
        }
    return metadata, tensors


def mixture(*, apart=False):
    """Return metadata and tensors of one layer of latent attention with routed and shared experts."""
    hidden, heads, rank, rope, nope, v, experts, width = 512, 4, 256, 64, 128, 128, 8, 256
    metadata = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 1,
        "deepseek2.context_length": 4096,
        "deepseek2.attention.head_count": heads,
        "deepseek2.attention.head_count_kv": 1 if apart else heads,
        "deepseek2.attention.key_length": nope + rope,
        "deepseek2.attention.value_length": v,
        "deepseek2.expert_used_count": 2,
    }
    up = {"blk.0.attn_kv_b.weight": ((rank, heads * (nope + v)), "q4_0")}
    if apart:
        up = {
            "blk.0.attn_k_b.weight": ((nope, rank, heads), "q4_0"),
            "blk.0.attn_v_b.weight": ((rank, v, heads), "q4_0"),
        }
    return metadata, {
        "token_embd.weight": ((hidden, 1000), "q4_0"),
        "output_norm.weight": ((hidden,), "fp32"),
        "output.weight": ((hidden, 1000), "q6_k"),
        "blk.0.attn_norm.weight": ((hidden,), "fp32"),
        "blk.0.attn_q.weight": ((hidden, heads * (nope + rope)), "q4_0"),
        "blk.0.attn_kv_a_mqa.weight": ((hidden, rank + rope), "q4_0"),
        "blk.0.attn_kv_a_norm.weight": ((rank,), "fp32"),
        **up,
        "blk.0.attn_output.weight": ((heads * v, hidden), "q4_0"),
        "blk.0.ffn_norm.weight": ((hidden,), "fp32"),
        "blk.0.ffn_gate_inp.weight": ((hidden, experts), "fp32"),
        "blk.0.ffn_gate_exps.weight": ((hidden, width, experts), "q4_0"),
        "blk.0.ffn_up_exps.weight": ((hidden, width, experts), "q4_0"),
        "blk.0.ffn_down_exps.weight": ((width, hidden, experts), "q4_0"),
        "blk.0.ffn_gate_shexp.weight": ((hidden, 2 * width), "q4_0"),
        "blk.0.ffn_up_shexp.weight": ((hidden, 2 * width), "q4_0"),
        "blk.0.ffn_down_shexp.weight": ((2 * width, hidden), "q4_0"),
    }
