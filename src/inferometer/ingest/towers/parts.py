"""What the kinds of towers share: layers of an encoder, projections of patches, projectors of two matrices.

Letters: H width of the tower, L its layers, F its feed-forward width, P patch size, O the language model's hidden size.
"""

from dataclasses import dataclass

from inferometer.ingest.reader import ConfigReader
from inferometer.specs.tower import ImageRule, Linear, TowerPart

MAX_SIZE = 10**6
MAX_LAYERS = 10_000
MAX_GRID = 10_000
"""Patches a side of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Parts of a tower so far, and what a projector behind them must know."""

    parts: tuple[TowerPart, ...]
    width: int
    """Elements of a feature."""
    image: ImageRule | None = None
    image_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the layers of an encoder, and their spelling."""

    hidden: int
    width: int
    layers: int
    heads: int
    head_dim: int
    bias: bool = True
    """Biases of every matrix of the attention and the feed-forward."""
    ffn_bias: bool = True
    """Biases of the feed-forward, where the attention has them."""
    gated: bool = False
    norm_bias: bool = True
    rotated: bool = False


def sized(reader: ConfigReader, name: str) -> int:
    """Return a size of the tower."""
    return reader.integer(name, high=MAX_SIZE)


def read_heads(reader: ConfigReader, hidden: int, name: str = "num_attention_heads") -> tuple[int, int]:
    """Return (heads, their width); raises InferometerError where they do not divide H."""
    heads = sized(reader, name)
    if hidden % heads:
        raise reader.wrong(name, heads, f"a divisor of the tower's width = {hidden}")
    return heads, hidden // heads


def patches_a_side(reader: ConfigReader, side: int, patch: int) -> int:
    """Return the patches a side of a square image; raises InferometerError where there is none."""
    if not patch <= side <= MAX_GRID * patch:
        raise reader.wrong("image_size", side, f"from patch_size = {patch} to {MAX_GRID} patches")
    return side // patch


def layers(
    at: Layout,
    *,
    name: str = "layer",
    held: int | None = None,
    window: int = 0,
    norms: dict[str, int] | None = None,
    qkv_biases: int | None = None,
) -> TowerPart:
    """Return layers of attention and feed-forward, each with a norm of its input; `held` of them, where not all."""
    inner, ins = at.heads * at.head_dim, 2 if at.gated else 1
    norm = at.hidden * (2 if at.norm_bias else 1)
    biased, ffn_biased = int(at.bias), int(at.bias and at.ffn_bias)
    qkv = 3 * inner * biased if qkv_biases is None else qkv_biases
    return TowerPart(
        name=name,
        layers=at.layers if held is None else held,
        over="positions",
        width=at.hidden,
        linears={
            "qkv": Linear(rows=3 * inner, cols=at.hidden, bias=qkv, split="rows"),
            "o": Linear(rows=at.hidden, cols=inner, bias=at.hidden * biased, split="cols"),
            "gate+up" if at.gated else "up": Linear(
                rows=ins * at.width, cols=at.hidden, bias=ins * at.width * ffn_biased, split="rows"
            ),
            "down": Linear(rows=at.hidden, cols=at.width, bias=at.hidden * ffn_biased, split="cols"),
        },
        norms={"attention_norm": norm, "ffn_norm": norm} if norms is None else norms,
        heads=at.heads,
        head_dim=at.head_dim,
        window=window,
        rotated=at.rotated,
    )


def patches(
    hidden: int,
    inputs: int,
    *,
    bias: bool = False,
    norms: dict[str, int] | None = None,
    tables: dict[str, int] | None = None,
) -> TowerPart:
    """Return the projection [H, inputs] of patches, with what is added to them."""
    return TowerPart(
        name="patches",
        over="patches",
        width=hidden,
        linears={"patches": Linear(rows=hidden, cols=inputs, bias=hidden if bias else 0)},
        norms=norms or {},
        tables={name: size for name, size in (tables or {}).items() if size},
    )


def two_matrices(
    name: str, ins: int, inner: int, out: int, *, bias: bool, norms: dict[str, int] | None = None, width: int = 0
) -> TowerPart:
    """Return a projector or merger [inner, ins] and [out, inner], with norms `width` (else `ins`) wide before it."""
    return TowerPart(
        name=name,
        over="merged",
        width=width or ins,
        linears={
            "in": Linear(rows=inner, cols=ins, bias=inner if bias else 0, split="rows"),
            "out": Linear(rows=out, cols=inner, bias=out if bias else 0, split="cols"),
        },
        norms=norms or {},
    )
