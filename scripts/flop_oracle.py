"""Holds our FLOP counts, op by op, against what PyTorch counts when a tiny random model really runs.

`make oracle` installs torch and transformers into an environment of their own and runs this; no weights are fetched.
torch.utils.flop_counter counts every matrix product by module. What is held to the last FLOP:

- every projection, expert, router, head, indexer and compressor projection, and the mixing of residual streams;
- attention cores. Eager attention multiplies all pairs, hidden ones too: it is scaled by the share of pairs that its
  own mask lets through, so windows, chunks, top-k and compressed entries are held as they ran. Latent attention runs
  expanded; the absorbed core is held by the pairs, times the widths of its product;
- index scores, scaled to causal pairs. The sum over index heads, a multiply-add a head and pair, we do not count;
- scans of linear attention and Mamba-2 in prompts: the chunk's products. What transformers does by another algorithm
  is a formula in `scan_otherwise`: the delta rule's substitution, c^3 / 3 a chunk, is no product (nor are the pairs of
  KDA), solving for d columns stands for 2 c c d; SSD scores by head, not group, and chains its chunks by a product;
- the same scans in decode, by torch's elementwise operations on whole states.

What is not held:

- convolutions, norms, rotations and activations, which we count as bytes alone;
- Mamba-1's scan, whose 8 FLOPs a state element are elementwise in torch;
- scans in verify, and lightning attention's behind a prefix: transformers runs chunks where we run steps, or steps
  where we run chunks; generated tokens in Llama 4's chunks, of which ours are a mean over where they stand;
  DeepSeek-V4's scores and core in verify, where ours take the staircase of entries as a line;
- the absorbed products, and kv_b of generated tokens where an indexer picks: transformers expands every cached latent;
- LongCat's experts, of which random zero experts take a share.
"""

import math
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
import transformers
from flop_oracle_models import CONFIGS, PARTS, SHAPE
from torch.utils.flop_counter import FlopCounterMode

from inferometer.api.counts import count
from inferometer.blocks.kinds import parts
from inferometer.blocks.model import layer_kinds
from inferometer.ingest.config import model_from_config
from inferometer.specs.feedforward import Moe
from inferometer.specs.mixers import Attention, Compressed, Mla, Single
from inferometer.specs.model import ModelSpec
from inferometer.specs.recurrent import LinearAttention, Mamba1, Mamba2
from inferometer.specs.residual import HyperConnections

BATCH = 3

Counted = dict[tuple[int, str], float]
"""(Layer, operation) -> FLOPs; the ends are layer -1."""

CORE, SCORES, SCAN = "attention-core", "index-scores", "state-scan"

MASKED = "attention-core, all pairs"
"""The same, if every pair of a row and a token before it were seen."""


class Ask(NamedTuple):
    """One pass: tokens cached before it, and new ones."""

    phase: str
    prefix: int
    new: int

    @property
    def work(self) -> dict[str, Any]:
        """Return our settings for it."""
        return {
            "prefill": {"phase": "prefill", "isl": self.new},
            "extend": {"phase": "extend", "isl": self.new, "context": self.prefix},
            "decode": {"context": self.prefix + self.new},
            "verify": {"phase": "verify", "draft_tokens": self.new - 1, "context": self.prefix},
        }[self.phase]

    @property
    def end(self) -> int:
        """Return the tokens at the end of the pass."""
        return self.prefix + self.new

    @property
    def logits(self) -> int:
        """Return the tokens that get logits."""
        return self.new if self.phase == "verify" else 1


ASKED = (Ask("prefill", 0, 128), Ask("extend", 64, 64), Ask("decode", 255, 1), Ask("verify", 252, 4))
"""Prompts are whole chunks of every model; decode ends where every kind of compressed entry is complete."""


class Ran(NamedTuple):
    """What ran: FLOPs by module and operator, without those of its children; the share of pairs that a mask shows."""

    flops: Mapping[str, Mapping[str, int]]
    shown: Mapping[str, float]


def own_flops(counted: Mapping[str, Mapping[Any, int]]) -> dict[str, dict[str, int]]:
    """Return FLOPs of each module beyond those of its children, convolutions left out."""
    found = {name: {str(op): flops for op, flops in ops.items()} for name, ops in counted.items() if name}
    for child, ops in counted.items():
        above = child.rpartition(".")[0]
        while above and above not in found:  # a list of modules is none
            above = above.rpartition(".")[0]
        if above:
            for op, flops in ops.items():
                found[above][str(op)] -= flops
    for ops in found.values():
        ops.pop("aten.convolution", None)
    return found


def blocks_of(model: ModelSpec, layer: int) -> tuple[Single, ...]:
    """Return the mixers of a layer."""
    mixer = model.layers[layer].mixer if layer >= 0 else None
    return () if mixer is None else parts(model.mixers[mixer])


def state_shape(block: Single) -> tuple[int, ...] | None:
    """Return the shape of a recurrent state of the batch."""
    if isinstance(block, LinearAttention):
        return (BATCH, block.heads, block.key_dim, block.value_dim)
    return (BATCH, block.heads, block.head_dim, block.state) if isinstance(block, Mamba2) else None


def on_states(model: ModelSpec) -> dict[Any, Any]:
    """Return counters of elementwise operations on whole states: one FLOP an element."""
    shapes = {state_shape(block) for mixer in model.mixers for block in parts(mixer)}

    def made(*_: Any, out_shape: Any, **__: Any) -> int:
        return math.prod(out_shape) if tuple(out_shape) in shapes else 0

    def summed(of: Any, *_: Any, **__: Any) -> int:
        return math.prod(of) if tuple(of) in shapes else 0

    return {torch.ops.aten.mul: made, torch.ops.aten.add: made, torch.ops.aten.sum: summed}


def inverted(system: Any, right: Any, *_: Any, **__: Any) -> int:
    """Return the FLOPs of a triangular system solved for d columns as of its inverse times them: 2 c c d."""
    return 2 * math.prod(system) * int(right[-1])


def watch(model: Any, shown: dict[str, float]) -> None:
    """Let eager attention note the share of pairs that its mask shows."""
    modeling: Any = sys.modules[type(model).__module__]
    names = {module: name for name, module in model.named_modules()}
    run = getattr(modeling.eager_attention_forward, "run", modeling.eager_attention_forward)

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        shown[names[module]] = 1.0 if mask is None else float((mask == 0).double().mean())
        return run(module, query, key, value, mask, *args, **kwargs)

    attention.run = run
    modeling.eager_attention_forward = attention


def run(config: transformers.PretrainedConfig, spec: ModelSpec, ask: Ask) -> Ran:
    """Return the FLOPs of one pass of a random model, counted while it runs."""
    torch.manual_seed(0)
    config._attn_implementation = "eager"  # noqa: SLF001 (the only spelling there is for a random model)
    config._experts_implementation = "eager"  # noqa: SLF001 (same)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    shown: dict[str, float] = {}
    if hasattr(sys.modules[type(model).__module__], "eager_attention_forward"):
        watch(model, shown)
    ids = torch.randint(0, SHAPE["vocab_size"], (BATCH, ask.end))
    counters = {torch.ops.aten.linalg_solve_triangular: inverted, **(on_states(spec) if ask.phase == "decode" else {})}
    keep = torch.arange(ask.new - ask.logits, ask.new)  # of a number Gemma 4 runs its last layers on those tokens alone
    with torch.no_grad():
        cache = model(ids[:, : ask.prefix], use_cache=True).cache if ask.prefix else None
        with FlopCounterMode(display=False, custom_mapping=counters) as counter:
            model(ids[:, ask.prefix :], cache=cache, use_cache=True, logits_to_keep=keep)
    counted = {name.partition(".")[2]: ops for name, ops in counter.get_flop_counts().items()}
    return Ran(own_flops(counted), shown)


def place(name: str, *, triple: bool) -> int:
    """Return the layer of a module as ours are numbered: LongCat's three blocks a layer are three layers."""
    found = re.search(r"\blayers\.(\d+)", name)
    if found is None:
        return -1
    layer = int(found[1])
    if sub := re.search(r"\.(?:self_attn|mlps)\.(\d)", name):
        return 3 * layer + 2 * int(sub[1])
    return 3 * layer + 1 if triple else layer


def part_of(name: str) -> str | None:
    """Return what of ours a module's products are."""
    ends = [end for end in PARTS if name == end or name.endswith(f".{end}")]
    return PARTS[max(ends, key=len)] if ends else None


def by_torch(ran: Ran, model: ModelSpec, ask: Ask) -> Counted:
    """Return what torch counted, by our tensors and operations, cores and scores scaled to what is seen."""
    found: Counted = defaultdict(float)
    triple = any(re.search(r"\blayers\.\d+\.self_attn\.1$", name) for name in ran.flops)
    for name, own in ran.flops.items():
        layer, part = place(name, triple=triple), part_of(name)
        flops = sum(own.values())
        if part is not None:
            found[layer, part] += flops
        elif name in ran.shown:
            found[layer, CORE] += flops * ran.shown[name]
            found[layer, MASKED] += flops * causal_share(ask)
        elif re.search(r"indexer(\.scorer)?$", name):
            found[layer, SCORES] += flops * scored_share(model, layer, ask)
        elif re.search(r"\blayers\.\d+$", name):
            found[layer, "residual"] += flops
        elif layer >= 0 and any(isinstance(block, Mamba1) for block in blocks_of(model, layer)):
            found[layer, "dt"] += own.get("aten.mm", 0)
        elif layer >= 0:
            found[layer, SCAN] += flops
    return {key: flops for key, flops in found.items() if flops}


def causal_share(ask: Ask, tokens: int = 1) -> float:
    """Return the share of rows times keys of `tokens` tokens that are complete before the row: floor(i / t) a row i."""
    causal = sum(row // tokens for row in range(ask.prefix + 1, ask.end + 1))
    return causal / (ask.new * (ask.end // tokens))


def scored_share(model: ModelSpec, layer: int, ask: Ask) -> float:
    """Return the share of what an indexer multiplies that is scores of a query and a key before it.

    Of V3.2's two products the second, over heads, is 1 / (d + 1).
    """
    (block,) = blocks_of(model, layer)
    own = block.indexer if isinstance(block, (Compressed, Mla)) else None
    if own is None:
        return 1.0
    share = causal_share(ask, own.pool)
    return share if isinstance(block, Compressed) else share * own.dim / (own.dim + 1)


def by_us(model: ModelSpec, ask: Ask, mla: str) -> Counted:
    """Return our own count, experts' operations together, and so a layer's residuals."""
    latent = any(isinstance(block, Mla) for mixer in model.mixers for block in parts(mixer))
    pins = {"choice": f"mla={mla}"} if latent else {}
    by_segment: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for op in count(model, batch=BATCH, **ask.work, **pins).ops:
        name = "experts" if op.name.startswith("experts.") else op.name
        name = "residual" if name in {"mixer.residual", "ffn.residual"} else name
        if op.flops:
            by_segment[op.segment][name] += op.flops * op.share
    kinds = layer_kinds(model)
    found = {(-1, name): flops for end in ("embedding", "head") for name, flops in by_segment[end].items()}
    for layer, kind in enumerate(model.layers):
        own = by_segment[f"layer-{kinds.index(kind)}"]
        found |= {(layer, name): flops for name, flops in own.items()}
    return found


def tensors_of(operation: str) -> tuple[str, ...]:
    """Return the tensors of an operation: of `shared.gate+up`, `shared.gate` and `shared.up`.

    The gate of what linear attention gives is `out-gate`, as elsewhere: `gate` is the feed-forward's.
    """
    head, dot, tail = operation.rpartition(".")
    names = ["q", "k", "v"] if operation == "qkv" else [f"{head}{dot}{name}" for name in tail.split("+")]
    return tuple("out-gate" if name == "gate" and "q" in names else name for name in names)


def gathered(theirs: Counted, ours: Counted) -> Counted:
    """Return theirs by our operations: products of one input are one operation of ours."""
    operation = {(layer, name): op for layer, op in ours for name in tensors_of(op)}
    found: Counted = defaultdict(float)
    for (layer, part), flops in theirs.items():
        found[layer, operation.get((layer, part), part)] += flops
    return found


def run_otherwise(model: ModelSpec, layer: int, part: str, ask: Ask) -> float | None:
    """Return the FLOPs a batch that torch counts beyond ours by an algorithm of transformers; None: not comparable."""
    if part == SCAN:
        found = [scan_otherwise(block, ask) for block in blocks_of(model, layer) if state_shape(block)]
        return None if not found or found[0] is None else BATCH * found[0]
    if part.endswith("residual") and isinstance(model.residual, HyperConnections):
        # Streams are weighed and spread elementwise: 2 n H each; the last collapse runs on every token.
        streams, n = 2 * model.residual.streams * model.hidden, model.residual.streams
        if layer >= 0:
            return -BATCH * ask.new * 4.0 * streams
        return BATCH * ((ask.new - ask.logits) * float(n * n * 2 * model.hidden) - ask.logits * streams)
    return 0.0


def scan_otherwise(block: Single, ask: Ask) -> float | None:
    """Return the same of one sequence's scan."""
    if ask.phase == "verify":
        return None
    if isinstance(block, LinearAttention):
        return delta_otherwise(block, ask) if block.delta else lightning_otherwise(block, ask)
    return ssd_otherwise(block, ask) if isinstance(block, Mamba2) else None


def delta_otherwise(block: LinearAttention, ask: Ask) -> float:
    """Substitution is elementwise, c^3 / 3 a chunk; with a decay a channel, so are q k^T and k k^T, 4 D a pair."""
    if ask.phase == "decode":
        return 0.0
    pairs = ask.new * block.chunk
    alone = 4 * block.key_dim * pairs if block.decay == "channel" else 0
    return -block.heads * (alone + pairs * block.chunk / 3)


def lightning_otherwise(block: LinearAttention, ask: Ask) -> float | None:
    """In decode k v^T is a product, whose additions to nothing count: D E. Behind a prefix a prompt runs in steps."""
    if ask.phase == "decode":
        return float(block.heads * block.key_dim * block.value_dim)
    return None if ask.prefix else 0.0


def ssd_otherwise(block: Mamba2, ask: Ask) -> float:
    """Decay and dt B are made for every channel, P S each; scores a head; n chunks from n + 1 states, 2 P S a pair."""
    both = block.heads * block.head_dim * block.state
    if ask.phase == "decode":
        return 2.0 * both
    scores = 2 * block.state * (block.heads - block.groups) * ask.new * block.chunk
    return float(scores + 2 * both * (ask.new // block.chunk + 1) ** 2)


def experts_of(model: ModelSpec, layer: int) -> Moe | None:
    """Return the experts of a layer."""
    ffn = model.layers[layer].ffn if layer >= 0 else None
    block = None if ffn is None else model.ffns[ffn]
    return block if isinstance(block, Moe) else None


def made_share(model: ModelSpec, layer: int, part: str) -> float:
    """Return the share of what runs that is asked for: Llama 4 runs every token through all experts."""
    experts = experts_of(model, layer)
    return experts.top_k / experts.experts if part == "experts" and experts and model.name == "llama4_text" else 1.0


def masks_choice(block: Single, ask: Ask) -> bool:
    """Return whether ours works out all pairs of latent attention, expanded, though an indexer picks."""
    return isinstance(block, Mla) and block.indexer is not None and ask.phase in {"prefill", "extend"}


def held(model: ModelSpec, layer: int, part: str, ask: Ask) -> bool:
    """Return False for what the docstring lists as not held, and for what is compared apart."""
    blocks, generates = blocks_of(model, layer), ask.phase in {"decode", "verify"}
    experts = experts_of(model, layer)
    if part == MASKED or (part == "experts" and experts and experts.zero_experts):
        return False
    if part == CORE and any(masks_choice(block, ask) for block in blocks):
        return False
    if part == CORE and generates and any(isinstance(block, Attention) and block.chunk for block in blocks):
        return False
    if part in {CORE, SCORES} and ask.phase == "verify" and any(isinstance(block, Compressed) for block in blocks):
        return False
    return part != "kv_b" or not generates or not any(isinstance(block, Mla) and block.indexer for block in blocks)


def compared(name: str, ask: Ask) -> Iterator[tuple[str, float, float]]:
    """Yield (operation, theirs, ours) of one model and pass."""
    config = CONFIGS[name]()
    model = model_from_config(config.to_dict(), name=name, source="random")
    counted = by_torch(run(config, model, ask), model, ask)
    ours, absorbed = by_us(model, ask, "expanded"), by_us(model, ask, "absorbed")
    theirs = gathered(counted, ours)
    for layer, part in sorted({*theirs, *ours}):
        more = run_otherwise(model, layer, part, ask)
        if more is not None and held(model, layer, part, ask):
            there = theirs.get((layer, part), 0.0) * made_share(model, layer, part)
            yield f"{layer} {part}", there, ours.get((layer, part), 0.0) + more
    for layer in range(len(model.layers)):
        for block in blocks_of(model, layer):
            if isinstance(block, Mla):
                wider = (2 * block.kv_rank + block.rope_dim) / (block.nope_dim + block.rope_dim + block.v_dim)
                yield f"{layer} {CORE}, absorbed", theirs[layer, CORE] * wider, absorbed[layer, CORE]
            if masks_choice(block, ask):
                yield f"{layer} {MASKED}", theirs[layer, MASKED], ours[layer, CORE]


def main() -> int:
    """Print a line a model and pass; return 1 where an operation differs."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # the tensors are tiny
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    products = wrong = 0
    names = sys.argv[1:] or list(CONFIGS)
    for name in names:
        for ask in ASKED:
            rows = list(compared(name, ask))
            bad = [row for row in rows if not math.isclose(row[1], row[2], rel_tol=1e-12)]
            total = sum(ours for _, _, ours in rows)
            print(f"{name}, {ask.phase}: {len(rows)} operations, {total:,.0f} FLOP, {len(bad)} differ")
            for part, theirs, ours in bad:
                print(f"  {part}: torch {theirs:,.0f}, ours {ours:,.0f}")
            products, wrong = products + len(rows), wrong + len(bad)
    print(f"{len(names)} models, {len(names) * len(ASKED)} passes, {products} operations, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
