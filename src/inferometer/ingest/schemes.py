"""Named quantisation schemes over a model: the format of each tensor of each layer."""

import msgspec

from inferometer.ingest.quantization import NOT_LINEAR, UNQUANTISED, Kind, unique_blocks
from inferometer.specs.formats import find_format
from inferometer.specs.mixers import Beside
from inferometer.specs.model import ModelSpec
from inferometer.specs.quant import Layers, QuantScheme

ROUTERS = ("router", "shared_gate")
"""What a scheme's `router` is for."""


def apply_scheme(model: ModelSpec, scheme: QuantScheme) -> ModelSpec:
    """Return `model` stored as `scheme` says; what it says is among the model's assumptions where it changes anything.

    `bf16`, `fp16` and `fp32` undo any quantisation, that of the ends too, and set the model's dtype.
    """
    if scheme.format in UNQUANTISED:
        plain = scheme.format
        unquantised = msgspec.structs.replace(model, dtype=plain, head_format=None, embedding_format=None)
        return _in_layers(unquantised, QuantScheme(name="", format="", source=""))
    head, table = scheme.head, scheme.embedding
    changed = _in_layers(model, scheme)
    if head or table:
        # A shared table is stored as the head is.
        changed = msgspec.structs.replace(changed, head_format=head, embedding_format=head if model.tied else table)
    said = (*(remark for remark in model.assumed if not remark.startswith("--quant ")), f"{scheme.text}.")
    return changed if changed == model else msgspec.structs.replace(changed, assumed=said)


def quant_scheme(model: ModelSpec, name: str) -> ModelSpec:
    """Return `model` with every linear weight of its mixers and feed-forwards in the format `name`.

    Router, shared gate, head, embedding, norms and KV cache are left as they are. Raises UnknownNameError for a
    format that is not known.
    """
    form = find_format(name).name
    return apply_scheme(model, QuantScheme(name=form, format=form, source=""))


def _in_layers(model: ModelSpec, scheme: QuantScheme) -> ModelSpec:
    layers = model.layers
    mixers = [
        None if layer.mixer is None else _stored(model.mixers[layer.mixer], scheme, i, len(layers))
        for i, layer in enumerate(layers)
    ]
    ffns = [
        None if layer.ffn is None else _stored(model.ffns[layer.ffn], scheme, i, len(layers))
        for i, layer in enumerate(layers)
    ]
    distinct_mixers, mixer_of = unique_blocks(mixers)
    distinct_ffns, ffn_of = unique_blocks(ffns)
    blocks = zip(layers, mixer_of, ffn_of, strict=True)
    placed = tuple(msgspec.structs.replace(layer, mixer=m, ffn=f) for layer, m, f in blocks)
    return msgspec.structs.replace(model, mixers=distinct_mixers, ffns=distinct_ffns, layers=placed)


def _stored(block: Kind, scheme: QuantScheme, index: int, layers: int) -> Kind:
    """Return a block of layer `index` with its linear tensors as the scheme has them; no format takes all away."""
    if isinstance(block, Beside):
        return msgspec.structs.replace(block, parts=tuple(_stored(part, scheme, index, layers) for part in block.parts))
    if not scheme.format:
        return msgspec.structs.replace(block, formats={})
    apart = {tensor: form for tensor, form in block.formats.items() if tensor in NOT_LINEAR}
    if scheme.router is not None:
        apart |= {tensor: scheme.router for tensor in block.matrices() if tensor in ROUTERS}
    formats = {tensor: scheme.format for tensor in block.matrices() if tensor not in NOT_LINEAR}
    for rule in scheme.rules:
        if in_layers(rule.layers, index, layers):
            formats |= {tensor: rule.format for tensor in rule.tensors if tensor in formats}
    return msgspec.structs.replace(block, formats=apart | formats)


def in_layers(which: Layers, index: int, layers: int) -> bool:
    """Return whether layer `index` of `layers` is one of `which`.

    >>> [i for i in range(16) if in_layers("more", i, 16)]
    [0, 1, 4, 7, 10, 13, 14, 15]
    """
    eighth = layers // 8
    firsts = {"first-eighth": eighth, "first-sixteenth": layers // 16, "first-four": 4, "first-two": 2, "all": layers}
    if which in firsts:
        return index < firsts[which]
    return index < eighth or index >= 7 * layers // 8 or (index - eighth) % 3 == 2  # noqa: PLR2004 (every third)
