"""What serving adds to kernels: factors on the fitted coefficients of a generation, from end-to-end measurements.

A kernel in an engine is not the kernel of a table: the engine fuses, replaces and overlaps some, tokens do not spread
evenly over experts, and ranks wait for each other. Eight factors a generation say by how much; 1 leaves the kernels as
they were timed. Fitted by `inferometer.measurement.fit_serving`.
"""

from typing import Literal

import msgspec

from inferometer.cost.kernels import Decode, Generation, Grouped, Link, Prefill, Product


class Factors(msgspec.Struct, frozen=True, kw_only=True):
    """Times what was timed."""

    fixed: float = 1.0
    """Fixed times of all kernels but grouped products."""
    grouped: float = 1.0
    """Fixed times of grouped products."""
    memory: float = 1.0
    """Shares of the memory bandwidth."""
    flops: float = 1.0
    """Shares of the arithmetic peak."""
    experts: float = 1.0
    """The same of grouped products, beside `flops`."""
    messages: float = 1.0
    """Latency of a step between chips of this generation."""
    links: float = 1.0
    """Shares of the rate of links between them."""
    sequences: float = 1.0
    """What the host does for a sequence."""
    basis: Literal["calibrated", "assumed"] = "assumed"
    n: int = 0
    """Published numbers they are fitted to."""


NAMES = ("fixed", "grouped", "memory", "flops", "experts", "messages", "links", "sequences")
LONGER = ("fixed", "grouped", "messages", "sequences")
SLOWER = ("memory", "flops", "links")
"""Factors that grow, and fall, where all takes longer; `experts` stands on `flops`."""


def share(value: float, factor: float) -> float:
    """Return a share times a factor: never more than all of it."""
    return min(value * factor, 1.0)


def product_with(own: Product, f: Factors) -> Product:
    """Return a product's coefficients under the factors."""
    return Product(
        t0_s=own.t0_s * f.fixed,
        flops_share=share(own.flops_share, f.flops),
        bytes_share=share(own.bytes_share, f.memory),
        fill=own.fill,
        depth_s=own.depth_s / f.flops,
        piece=own.piece,
    )


def grouped_with(own: Grouped, f: Factors) -> Grouped:
    """Return a grouped product's coefficients under the factors."""
    return Grouped(
        t0_s=own.t0_s * f.grouped,
        flops_share=share(own.flops_share, f.flops * f.experts),
        bytes_share=share(own.bytes_share, f.memory),
        tile_s=own.tile_s * f.grouped,
        depth_s=own.depth_s * f.grouped,
    )


def decode_with(own: Decode, f: Factors) -> Decode:
    """Return the coefficients of an attention core with few queries under the factors."""
    return Decode(
        t0_s=own.t0_s * f.fixed,
        flops_share=share(own.flops_share, f.flops),
        bytes_share=share(own.bytes_share, f.memory),
        wave_s=own.wave_s / f.flops,
        depth_s=own.depth_s / f.flops,
        piece=own.piece,
    )


def generation_with(own: Generation, f: Factors) -> Generation:
    """Return a generation's coefficients under the factors."""
    p = own.prefill
    return msgspec.structs.replace(
        own,
        launch_s=own.launch_s * f.fixed,
        elementwise_share=share(own.elementwise_share, f.memory),
        sequence_s=own.sequence_s * f.sequences,
        gemm={name: product_with(x, f) for name, x in own.gemm.items()},
        grouped={
            name: {kernel: grouped_with(x, f) for kernel, x in kernels.items()} for name, kernels in own.grouped.items()
        },
        decode={
            name: {kernel: decode_with(x, f) for kernel, x in kernels.items()} for name, kernels in own.decode.items()
        },
        prefill=Prefill(
            t0_s=p.t0_s * f.fixed,
            flops_share=share(p.flops_share, f.flops),
            ramp_rows=p.ramp_rows,
            bytes_share=share(p.bytes_share, f.memory),
        ),
    )


def link_with(own: Link, f: Factors) -> Link:
    """Return a link under the factors."""
    return msgspec.structs.replace(own, alpha_s=own.alpha_s * f.messages, share=share(own.share, f.links))
