"""Named quantisation schemes: a format, and what it leaves alone. Data only."""

from typing import Literal

from inferometer.specs.block import Spec

Layers = Literal["all", "more", "first-eighth", "first-sixteenth", "first-four", "first-two"]
"""more: the first and the last eighth, and every third between (llama.cpp's use_more_bits)."""


class TensorRule(Spec, frozen=True, kw_only=True):
    """Tensors that are stored otherwise, in some layers."""

    tensors: tuple[str, ...]
    """Names as blocks spell them: q k v o gate up down shared_down ..."""
    format: str
    layers: Layers = "all"


class QuantScheme(Spec, frozen=True, kw_only=True):
    """What `--quant NAME` stands for. None leaves tensors in the model's dtype."""

    name: str
    format: str
    """Of every linear weight of mixers and feed-forwards; norms stay as they are."""
    router: str | None = None
    """Of routers and one-wide gates; None leaves them as the checkpoint has them."""
    embedding: str | None = None
    head: str | None = None
    """Of the head, and of a table that both ends share."""
    rules: tuple[TensorRule, ...] = ()
    """Later ones win."""
    source: str

    @property
    def text(self) -> str:
        """What it is, in a line."""
        names = ("embedding", "head", "router")
        forms = {"embedding": self.embedding, "head": self.head, "router": self.router}
        apart = [f"{name} {forms[name]}" for name in names if forms[name]]
        alone = [name for name in names if not forms[name]]
        more = [f"{', '.join(rule.tensors)} {rule.format} in {rule.layers} layers" for rule in self.rules]
        parts = [f"linear weights {self.format}", *more, *apart, f"{', '.join([*alone, 'norms'])} left alone"]
        return f"--quant {self.name}: {'; '.join(parts)}"
