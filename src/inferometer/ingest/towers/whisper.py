"""Voxtral's audio tower: Whisper's encoder, and a projector of four frames to one token.

Shapes as in huggingface/transformers `models/voxtral/modeling_voxtral.py` (5.24). Counted and held; audio is no
workload here, so nothing of it runs.
"""

from collections.abc import Mapping
from typing import Final

from inferometer.ingest.reader import ConfigReader, Default
from inferometer.ingest.towers import parts as p
from inferometer.specs.tower import Linear, TowerPart

DEFAULTS: Final[Mapping[str, Default]] = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "num_mel_bins": 128,
    "max_source_positions": 1500,
}
KERNEL = 3
"""Frames that each of the two convolutions spans."""


def voxtral_encoder(reader: ConfigReader, out: int) -> p.Encoder:
    """Return the encoder: convolutions, learned positions, layers whose k has no bias, a norm; and the projector."""
    hidden, width = p.sized(reader, "hidden_size"), p.sized(reader, "intermediate_size")
    heads, head_dim = p.read_heads(reader, hidden)
    if width % hidden:
        raise reader.wrong("intermediate_size", width, f"a multiple of hidden_size = {hidden}")
    bins = p.sized(reader, "num_mel_bins")
    positions = p.sized(reader, "max_source_positions") * hidden
    reader.skip("vocab_size", "scale_embedding", "layerdrop", "dropout", "activation_dropout", "head_dim")
    reader.skip("num_key_value_heads")
    layers = reader.integer("num_hidden_layers", high=p.MAX_LAYERS)
    at = p.Layout(hidden=hidden, width=width, layers=layers, heads=heads, head_dim=head_dim)
    return p.Encoder(
        parts=(
            TowerPart(
                name="frames",
                over=None,
                width=hidden,
                linears={
                    "conv1": Linear(rows=hidden, cols=KERNEL * bins, bias=hidden),
                    "conv2": Linear(rows=hidden, cols=KERNEL * hidden, bias=hidden),
                },
                tables={"positions": positions},
            ),
            p.layers(at, qkv_biases=2 * hidden),
            TowerPart(name="norm-after", over=None, width=hidden, norms={"norm_after": 2 * hidden}),
            p.two_matrices("projector", width, out, out, bias=False),
        ),
        width=out,
    )
