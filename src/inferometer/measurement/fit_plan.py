"""What the kernel fits take as given: the generations with timings, and whose kernels the others are taken for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from inferometer.specs.hardware import ChipSpec


class Given(NamedTuple):
    """Facts and assumptions of a generation."""

    units: int
    """Streaming multiprocessors of the chip whose dense bf16 peak follows."""
    units_peak_flops_per_s: float
    launch_s: float
    """A kernel inside a CUDA graph that does next to nothing."""
    elementwise_share: float
    source: str

    def units_of(self, chip: ChipSpec) -> float:
        """Return the units of a chip: as its maker says, else in proportion to its peak."""
        return chip.units or self.units * chip.peak_flops_per_s["bf16"] / self.units_peak_flops_per_s

    def told(self) -> dict[str, Any]:
        """Return what the file says beside the fits."""
        return {
            "basis": "calibrated",
            "source": self.source,
            "units": float(self.units),
            "units_peak_flops_per_s": self.units_peak_flops_per_s,
            "launch_s": self.launch_s,
            "elementwise_share": self.elementwise_share,
            "sequence_s": SEQUENCE_S,
        }


SEQUENCE_S = 5e-6
"""What an engine's host does for a sequence in a step (assumed; the factor on it is fitted to published runs)."""

_LAUNCH_S, _ELEMENTWISE_SHARE = 2e-6, 0.7
"""Smallest kernels of the tables take 2 to 2.5 us; copies reach 0.7 of the bandwidth (assumed)."""
_SOURCE = "timed kernels of aiconfigurator-core 0.12.0; units: NVIDIA's whitepapers"

FITTED: Mapping[str, Given] = {
    "ampere": Given(108, 312e12, _LAUNCH_S, _ELEMENTWISE_SHARE, _SOURCE),
    "ada": Given(142, 362e12, _LAUNCH_S, _ELEMENTWISE_SHARE, _SOURCE),
    "hopper": Given(132, 989.5e12, _LAUNCH_S, _ELEMENTWISE_SHARE, _SOURCE),
    "blackwell": Given(148, 2250e12, _LAUNCH_S, _ELEMENTWISE_SHARE, _SOURCE),
    "blackwell-pro": Given(
        188, 467.8e12, _LAUNCH_S, _ELEMENTWISE_SHARE, f"{_SOURCE}; attention of prompts is ada's (assumed)"
    ),
}

LENT: Mapping[str, tuple[str, tuple[str, ...]]] = {"blackwell-pro": ("ada", ("prefill",))}
"""Generation -> another, whose forms it has where its own were not timed (assumed)."""


class Timed(NamedTuple):
    """Which rows of the tables time the grouped products of one family of kernels."""

    kernels: str
    """The family, as engines name it."""
    names: tuple[str, ...]
    """What is in the rows' kernel names."""
    dtypes: tuple[str, ...] = ()
    """Of the rows; none: any."""


TIMED = (
    Timed("trtllm-gen", ("trtllm", "min_latency")),
    Timed("trtllm-gen", ("moe_torch_flow",), ("w4a8_mxfp4_mxfp8",)),
    Timed("triton", ("oaitriton",), ("w4a16_mxfp4",)),
    Timed("triton", ("triton", "vllm_fused_moe"), ("bfloat16", "fp8", "fp8_block")),
    Timed("torch-flow", ("moe_torch_flow",), ("w4a16_mxfp4",)),
    Timed("cutlass", ("moe_torch_flow",)),
    Timed("deepgemm", ("deepgemm",)),
)
"""The first that fits a row says whose it is. TensorRT-LLM's torch flow runs kernels that it generates with 8-bit
activations and where latency counts, CUTLASS's else, and for MXFP4 in 16 bits what it has (`torch-flow`). Left out:
SGLang's Triton kernels for MXFP4, which unpack it first."""

KERNELS = tuple(dict.fromkeys(timed.kernels for timed in TIMED))

GROUPED = {
    "bf16": "bfloat16",
    "fp8": "fp8",
    "fp8-block": "fp8_block",
    "nvfp4": "nvfp4",
    "mxfp4-bf16": "w4a16_mxfp4",
    "mxfp4-fp8": "w4a8_mxfp4_mxfp8",
}
"""Format of experts, and arithmetic type where it is not the format's own -> dtype of the tables."""


PRODUCTS = {
    "bf16": ("SGLANG", "TRTLLM", "VLLM"),
    "fp8": ("SGLANG",),
    "fp8-block": ("SGLANG",),
    "nvfp4": ("SGLANG",),
}
"""Format of a product's weights -> engines whose tables time it. Left out: TensorRT-LLM's and vLLM's of narrow weights,
which time more (a quantise pass beside, launches outside CUDA graphs)."""

CORES = {"flash": "VLLM", "xqa": "TRTLLM"}
"""Family of attention kernels of few queries -> engine whose tables time it. vLLM's are FlashAttention's, on Blackwell
those that TensorRT-LLM generates."""


LATENT_CORES = {"flash": "SGLANG", "xqa": "TRTLLM"}
"""The same of cores over latents."""

CACHED = {"bf16": "kv_bfloat16", "fp8": "kv_fp8"}
"""Format of the cache -> dtype of the tables."""


def kernels_of(dtype: str, kernel: str) -> str:
    """Return the family that a row of expert blocks times; nothing where it is none of ours.

    >>> kernels_of("nvfp4", "moe_torch_flow_min_latency"), kernels_of("nvfp4", "moe_torch_flow_cutlass")
    ('trtllm-gen', 'cutlass')
    """
    if dtype not in GROUPED.values():
        return ""
    fits = (timed for timed in TIMED if not timed.dtypes or dtype in timed.dtypes)
    return next((timed.kernels for timed in fits if any(name in kernel for name in timed.names)), "")


class Like(NamedTuple):
    """A generation without timings, and the one whose kernels it is taken for."""

    other: str
    launch: float
    """Times its fixed times."""
    tiles: bool = False
    """Whether products and cores have its tiles and waves: another maker's units are nothing like them."""

    def of(self, fitted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the other's coefficients, fixed times in proportion, marked assumed."""
        own: dict[str, Any] = _scaled(dict(fitted[self.other]), self.launch)
        if not self.tiles:
            own["gemm"] = {name: one | {"fill": 0.0, "depth_s": 0.0} for name, one in own["gemm"].items()}
            own["decode"] = {
                cached: {name: _one_wave(one) for name, one in kernels.items()}
                for cached, kernels in own["decode"].items()
            }
        return own | {"basis": "assumed", "source": f"as {self.other}, fixed times x {self.launch:g}"}


def _one_wave(core: Mapping[str, float]) -> dict[str, float]:
    """Return the coefficients of a core whose work is always one wave."""
    t0_s = float(f"{core['t0_s'] + core['wave_s']:.3g}")
    return {**core, "t0_s": t0_s, "wave_s": 0.0, "depth_s": 0.0}


def _scaled(value: Any, times: float, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _scaled(v, times, k) for k, v in value.items()}
    return float(f"{value * times:.3g}") if key in ("t0_s", "tile_s", "wave_s", "depth_s", "launch_s") else value


ASSUMED: Mapping[str, Like] = {
    "volta": Like("ampere", 1.0, tiles=True),
    "turing": Like("ampere", 1.0, tiles=True),
    "rubin": Like("blackwell", 1.0, tiles=True),
    "cdna2": Like("ampere", 2.0),
    "cdna3": Like("hopper", 2.0),
    "cdna4": Like("hopper", 1.2),
    "cdna5": Like("hopper", 1.2),
    "rdna3": Like("ada", 1.0),
    "xe2": Like("ada", 1.0),
    "gaudi": Like("hopper", 5.0),
    "tpu": Like("hopper", 1.0),
    "neuron": Like("hopper", 2.0),
    "ascend": Like("hopper", 2.0),
    "apple": Like("ampere", 2.0),
}
"""Generation -> whose kernels it is taken for (assumed)."""
