"""What stands before the language model (vision, audio, with its projector), and how an image becomes its tokens.

Letters: H width of the tower, P pixels a side of a patch, M patches a side that are merged into one token.
"""

from typing import Literal

from inferometer.specs.block import Spec


class Linear(Spec, frozen=True, kw_only=True):
    """A matrix [rows, cols] that each position of a part goes through."""

    rows: int
    cols: int
    bias: int = 0
    """Biases: as many as rows, fewer where only some of the rows have one, none."""
    split: Literal["whole", "rows", "cols"] = "whole"
    """What TP splits: by rows what feeds one split by columns, after which partial sums are reduced."""


class TowerPart(Spec, frozen=True, kw_only=True):
    """What of a tower runs alike: layers of one kind, or what stands before and behind them."""

    name: str
    layers: int = 1
    """Layers that the checkpoint holds."""
    runs: int | None = None
    """Layers that run, where the last ones do not; None: all."""
    over: Literal["patches", "positions", "merged"] | None
    """What runs through it: patches, positions (patches and class tokens), merged patches; None: nothing."""
    width: int
    """Elements a position that the norms go over."""
    linears: dict[str, Linear] = {}
    """In the order they run; `qkv` comes before the attention."""
    norms: dict[str, int] = {}
    """Norm -> its weights and biases."""
    tables: dict[str, int] = {}
    """Other parameters: positions, class tokens."""
    heads: int = 0
    """Heads of the attention to all positions of an image (or tile); 0 where there is none."""
    head_dim: int = 0
    window: int = 0
    """Patches a side of the windows that attend to themselves alone; 0: no windows."""
    rotated: bool = False
    """q and k are rotated."""

    @property
    def running(self) -> int:
        """Layers that run."""
        return self.layers if self.runs is None else self.runs


class FixedImage(Spec, tag="fixed", frozen=True, kw_only=True):
    """Every image is resized to one square."""

    patches: int
    """Patches a side."""
    classes: int = 0
    """Class tokens beside them."""
    tokens: int
    """Tokens of the prompt."""


class PixelImage(Spec, tag="pixels", frozen=True, kw_only=True):
    """Sides are rounded to whole tokens, the image scaled where its pixels are too few or too many (Qwen-VL)."""

    patch: int
    merge: int
    min_pixels: int
    max_pixels: int


class EdgeImage(Spec, tag="edge", frozen=True, kw_only=True):
    """An image is scaled down to a longest edge, sides rounded up to whole tokens, rows ended by a token (Pixtral)."""

    patch: int
    merge: int
    longest: int
    """Pixels."""


class PatchImage(Spec, tag="patches", frozen=True, kw_only=True):
    """An image is scaled down to a number of patches, in all and a side, and padded to whole tokens (MoonViT)."""

    patch: int
    merge: int
    max_patches: int
    max_side: int
    """Patches."""


class CappedImage(Spec, tag="capped", frozen=True, kw_only=True):
    """Sides are rounded up to whole patches, and the tower pads what is merged; rows end in a token (DeepSeek-V4.1).

    An image is scaled up to its least pixels, and down where its tokens are too many.
    """

    patch: int
    merge: int
    min_pixels: int
    tokens: int
    """Most tokens, those that end rows and the two around the image with them."""


class RoundedImage(Spec, tag="rounded", frozen=True, kw_only=True):
    """Sides are rounded up to whole tokens; an image is scaled up where they are too few, down where too many (GLM)."""

    patch: int
    merge: int
    min_tokens: int
    tokens: int
    """Most tokens."""


class BudgetImage(Spec, tag="budget", frozen=True, kw_only=True):
    """Every image is scaled to the most whole tokens that keep its shape within a budget (Gemma 4)."""

    patch: int
    merge: int
    tokens: int
    """Most tokens."""


class TiledImage(Spec, tag="tiles", frozen=True, kw_only=True):
    """An image lies on the canvas of tiles that fits it best, with one more tile of the whole (Llama 4)."""

    side: int
    """Pixels a side of a tile."""
    patch: int
    merge: int
    classes: int = 1
    max_tiles: int


class CanvasImage(Spec, tag="canvas", frozen=True, kw_only=True):
    """An image lies on the canvas of tiles that fits it best, all of which attend to each other (Llama 3.2 Vision).

    The tower runs over as many tiles as there can be; the features are of those of the canvas, class tokens with them.
    """

    side: int
    """Pixels a side of a tile."""
    patch: int
    max_tiles: int


class GridImage(Spec, tag="grid", frozen=True, kw_only=True):
    """An image lies on one of a few canvases of tiles, cut to its shape, rows ended by a token (LLaVA-NeXT)."""

    side: int
    """Pixels a side of a tile."""
    patch: int
    classes: int = 0
    grids: tuple[tuple[int, int], ...]
    """(height, width) of the canvases, in pixels."""
    base: int
    """Tokens of the tile that holds the whole."""


ImageRule = (
    FixedImage
    | PixelImage
    | EdgeImage
    | PatchImage
    | CappedImage
    | RoundedImage
    | BudgetImage
    | TiledImage
    | CanvasImage
    | GridImage
)


class Tower(Spec, frozen=True, kw_only=True):
    """One tower with its projector: counted, held on the first stage, and run over the images of a prefill."""

    name: str
    parts: tuple[TowerPart, ...]
    image: ImageRule | None = None
    """How an image becomes patches and tokens; None where that is not understood, or it takes no images."""
    image_source: str = ""
    """Where limits come from that the config does not state."""
