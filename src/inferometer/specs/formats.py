"""Number formats: how many bytes a tensor takes, and which arithmetic it feeds.

Letters: r rows (output features), c columns (the reduction dimension).
"""

import msgspec
import numpy as np
import numpy.typing as npt

from inferometer.errors import unknown_name

Column = npt.NDArray[np.float64]


class Format(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A storage format: element bits, plus scales and zero points per block."""

    name: str
    bits: int
    """Bits of one element."""
    block_rows: int = 0
    """Rows that share one scale; 0 where there is no block scale."""
    block_cols: int = 0
    """Columns (reduction dimension) that share one scale; 0 beside rows > 0 means a whole row."""
    scale_bits: int = 0
    zero_bits: int = 0
    """Bits of the zero point beside each scale."""
    tensor_scale_bytes: int = 0
    """Bytes of scalars held once a tensor."""
    compute: tuple[str, ...]
    """Arithmetic types that can take this format, narrowest first: the widening ladder; none: it holds no weights."""
    source: str


_OCP_MX = "OCP Microscaling Formats (MX) v1.0: 32 elements share one E8M0 scale"

_WIDE = ("fp16", "bf16", "fp32")

GGML_BLOCKS = {
    "q8_0": (8, 32, 34),
    "q5_0": (5, 32, 22),
    "q5_1": (5, 32, 24),
    "q4_0": (4, 32, 18),
    "q4_1": (4, 32, 20),
    "iq4_nl": (4, 32, 18),
    "q6_k": (6, 256, 210),
    "q5_k": (5, 256, 176),
    "q4_k": (4, 256, 144),
    "iq4_xs": (4, 256, 136),
    "q3_k": (3, 256, 110),
    "iq3_s": (3, 256, 110),
    "iq3_xxs": (3, 256, 98),
    "q2_k": (2, 256, 84),
    "iq2_s": (2, 256, 82),
    "iq2_xs": (2, 256, 74),
    "iq2_xxs": (2, 256, 66),
    "tq2_0": (2, 256, 66),
    "iq1_m": (1, 256, 56),
    "tq1_0": (1, 256, 54),
    "iq1_s": (1, 256, 50),
}
"""GGUF type -> whole bits of an element, elements of a block, bytes of it (ggml-org/llama.cpp ggml/src/ggml-common.h).

What a block holds beyond the whole bits (scales, minima, high bits) counts as its scale.
"""

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format(name="fp32", bits=32, compute=("fp32",), source="IEEE 754"),
        Format(name="bf16", bits=16, compute=("bf16", "fp16", "fp32"), source="bfloat16: 16 bits"),
        Format(name="fp16", bits=16, compute=("fp16", "bf16", "fp32"), source="IEEE 754"),
        Format(name="int64", bits=64, compute=(), source="numbers of things, not weights: expert ids, row ids"),
        Format(
            name="fp8",
            bits=8,
            tensor_scale_bytes=4,
            compute=("fp8", "bf16", "fp16"),
            source="E4M3 with one fp32 weight scale a tensor (compressed-tensors, ModelOpt FP8)",
        ),
        Format(
            name="fp8-block",
            bits=8,
            block_rows=128,
            block_cols=128,
            scale_bits=32,
            compute=("fp8", "bf16", "fp16"),
            source="deepseek-ai/DeepSeek-V3 weight_block_size [128, 128], fp32 weight_scale_inv",
        ),
        Format(
            name="fp8-g128",
            bits=8,
            block_rows=1,
            block_cols=128,
            scale_bits=32,
            compute=("fp8", "bf16", "fp16"),
            source="index keys of DeepSeek-V3.2: 128 E4M3 elements and an fp32 scale (deepseek-ai/FlashMLA, DeepGEMM)",
        ),
        Format(
            name="fp8-block-ue8m0",
            bits=8,
            block_rows=128,
            block_cols=128,
            scale_bits=8,
            compute=("fp8", "bf16", "fp16"),
            source="deepseek-ai/DeepSeek-V4-Flash weight_block_size [128, 128] with scales that are powers of two",
        ),
        Format(
            name="fp8-block32-ue8m0",
            bits=8,
            block_rows=32,
            block_cols=32,
            scale_bits=8,
            compute=("fp8", "bf16", "fp16"),
            source="deepseek-ai/DeepSeek-V4.1-Flash weight_block_size [32, 32] with scales that are powers of two",
        ),
        Format(
            name="fp4-g128",
            bits=4,
            block_rows=1,
            block_cols=128,
            scale_bits=32,
            compute=("fp4", "fp8", "bf16", "fp16"),
            source="index keys of DeepSeek-V4 in four bits: 128 elements and four bytes of scales (sgl-project/sglang)",
        ),
        Format(
            name="fp8-channel",
            bits=8,
            block_rows=1,
            block_cols=0,
            scale_bits=16,
            compute=("fp8", "bf16", "fp16"),
            source="E4M3, one scale an output channel in the weight's own dtype (compressed-tensors FP8_DYNAMIC)",
        ),
        Format(
            name="int8",
            bits=8,
            block_rows=1,
            block_cols=0,
            scale_bits=16,
            compute=("bf16", "fp16"),
            source="weight-only int8, one bf16 scale an output channel",
        ),
        Format(
            name="int4-g128",
            bits=4,
            block_rows=1,
            block_cols=128,
            scale_bits=16,
            compute=("bf16", "fp16"),
            source="W4A16 symmetric, group 128, bf16 scale (vllm-project/llm-compressor issue 1215)",
        ),
        Format(
            name="int4-g128-zp",
            bits=4,
            block_rows=1,
            block_cols=128,
            scale_bits=16,
            zero_bits=4,
            compute=("fp16", "bf16"),
            source="AWQ / GPTQ asymmetric, group 128: fp16 scale and 4-bit zero point a group",
        ),
        *(
            Format(
                name=f"int4-g{group}{suffix}",
                bits=4,
                block_rows=1,
                block_cols=group,
                scale_bits=16,
                zero_bits=zero_bits,
                compute=("bf16", "fp16"),
                source="as int4-g128 and int4-g128-zp with smaller groups (moonshotai/Kimi-K2-Thinking has 32)",
            )
            for group in (32, 64)
            for suffix, zero_bits in (("", 0), ("-zp", 4))
        ),
        Format(
            name="mxfp8",
            bits=8,
            block_rows=1,
            block_cols=32,
            scale_bits=8,
            compute=("fp8", "bf16", "fp16"),
            source=_OCP_MX,
        ),
        Format(
            name="mxfp4",
            bits=4,
            block_rows=1,
            block_cols=32,
            scale_bits=8,
            compute=("fp4", "fp8", "bf16", "fp16"),
            source=_OCP_MX,
        ),
        Format(
            name="mxfp8",
            bits=8,
            block_rows=1,
            block_cols=32,
            scale_bits=8,
            compute=("fp8", "bf16", "fp16"),
            source=_OCP_MX,
        ),
        Format(
            name="bitnet",
            bits=2,
            tensor_scale_bytes=2,
            compute=("int8", "bf16", "fp16"),
            source="microsoft/bitnet-b1.58-2B-4T: four ternary weights a byte, one bf16 scale a tensor",
        ),
        *(
            Format(
                name=name,
                bits=bits,
                block_rows=1,
                block_cols=block,
                scale_bits=8 * size - bits * block,
                compute=_WIDE,
                source="ggml-org/llama.cpp ggml/src/ggml-common.h",
            )
            for name, (bits, block, size) in GGML_BLOCKS.items()
        ),
        Format(
            name="nvfp4",
            bits=4,
            block_rows=1,
            block_cols=16,
            scale_bits=8,
            tensor_scale_bytes=4,
            compute=("fp4", "fp8", "bf16", "fp16"),
            source="NVFP4: 16 elements share one E4M3 scale, plus one fp32 scale a tensor (NVIDIA ModelOpt)",
        ),
    )
}

DTYPE_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp8_e4m3": "fp8",
    "float8_e4m3fn": "fp8",
    "fp8_block": "fp8-block",
    "w4a16": "int4-g128",
}


def find_format(name: str) -> Format:
    """Return the format called `name` (aliases such as `bfloat16` are understood).

    Raises UnknownNameError for a name that is not a format.
    """
    key = DTYPE_ALIASES.get(name.lower(), name.lower())
    if key not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    return FORMATS[key]


def bytes_per_element(fmt: Format) -> float:
    """Return stored bytes of one element of a large tensor, scales included.

    bits/8 + (scale + zero point) bits / 8 / block size; the scalars held once a tensor vanish.

    >>> [bytes_per_element(find_format(n)) for n in ("bf16", "mxfp4", "nvfp4", "int4-g128")]
    [2.0, 0.53125, 0.5625, 0.515625]
    >>> [256 * bytes_per_element(find_format(n)) for n in ("q4_k", "q6_k", "iq4_xs")]
    [144.0, 210.0, 136.0]
    >>> bytes_per_element(find_format("fp8-block")) == 1 + 4 / 16384
    True
    """
    block = fmt.block_rows * fmt.block_cols
    shared = (fmt.scale_bits + fmt.zero_bits) / block if block else 0.0
    return (fmt.bits + shared) / 8


def stored_bytes(fmt: Format, rows: Column, cols: Column) -> Column:
    """Return the bytes of a [rows, cols] tensor in `fmt`, partial blocks counted whole.

    rows cols bits/8 + ceil(rows/block_rows) ceil(cols/block_cols) (scale + zero point)/8 + scalars.

    >>> float(stored_bytes(find_format("fp8-block"), np.asarray(256.0), np.asarray(129.0)))  # 256*129 + 2*2*4
    33040.0
    """
    total = rows * cols * (fmt.bits / 8)
    if fmt.block_rows:
        across = np.ceil(cols / fmt.block_cols) if fmt.block_cols else 1.0
        down = np.ceil(rows / fmt.block_rows) if fmt.block_rows > 1 else rows
        total = total + down * across * ((fmt.scale_bits + fmt.zero_bits) / 8)
    return total + fmt.tensor_scale_bytes if fmt.tensor_scale_bytes else total
