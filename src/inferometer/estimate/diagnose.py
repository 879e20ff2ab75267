"""What a user should know about a deployment, by name, with what to change."""

from inferometer.blocks.kinds import caches, heads, parts
from inferometer.estimate.result import Diagnostic, MemoryLines
from inferometer.estimate.step import Problem
from inferometer.specs.deployment import Sizes
from inferometer.specs.feedforward import Ffn, Moe
from inferometer.specs.matrix import Matrix
from inferometer.specs.mixers import Single

REPLICATED = {
    "latent": ("latent-replicated", "the latent is"),
    "index": ("index-replicated", "the index keys are"),
    "window": ("window-replicated", "the window's entries are"),
    "compressed": ("compressed-replicated", "the compressed entries are"),
}
"""Cache that TP does not split -> the diagnostic that says so, and how it begins."""


def diagnose(problem: Problem, sizes: Sizes, memory: MemoryLines, microbatches: int) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of one sharding; each names what to change."""
    found = _widened(problem)
    for mixer in problem.model.mixers:
        for part in parts(mixer):
            found += _mixer(part, sizes)
    for ffn in problem.model.ffns:
        found += _moe(ffn, sizes) if isinstance(ffn, Moe) else _dense(ffn, sizes) if isinstance(ffn, Ffn) else []
    found += _chunked(problem, memory, memory.sequences / microbatches * problem.new_tokens)
    return tuple(dict.fromkeys(found))


def _chunked(problem: Problem, memory: MemoryLines, tokens: float) -> list[Diagnostic]:
    """Return whether an engine would run one pass of `tokens` a rank in chunks."""
    if problem.asked is not None:
        if memory.pass_tokens is None or tokens <= memory.pass_tokens:
            return []
        text = (
            f"one pass of {tokens:.0f} tokens a rank is more than the {memory.pass_tokens} of the engine's largest: "
            "it runs in chunks; the time is of one pass"
        )
        return [Diagnostic(name="runs-in-chunks", text=text)]
    needs = tokens * memory.activation_bytes_per_token
    if needs > problem.activation_room_bytes:
        text = (
            f"one pass of {tokens:.0f} tokens a rank needs {needs / 2**30:.1f} GiB of activations, more than the "
            "reserve: an engine would run it in chunks; the time is of one pass"
        )
        return [Diagnostic(name="activations-exceed-reserve", text=text)]
    return []


def _widened(problem: Problem) -> list[Diagnostic]:
    """Return what runs in a wider type than it is stored in, and whether the weights are written out for it."""
    found = []
    apart = problem.allows.get("unpack") == ("apart",)
    for stored, used in problem.precision.widened.items():
        text = f"{problem.machine.chip.id} lacks {stored} arithmetic: weights stay {stored}, GEMMs run in {used}"
        found.append(Diagnostic(name="dtype-widened", text=text))
        if apart and stored in problem.precision.unpacked:
            text = f"{stored} weights are written out in {used} before every GEMM, and read again: --quant another"
            found.append(Diagnostic(name="weights-unpacked", text=text))
    return found


def _mixer(mixer: Single, sizes: Sizes) -> list[Diagnostic]:
    found = []
    (held,) = heads(mixer)
    groups, kv_heads = sizes.tp // sizes.dcp, held.kv
    if held.groups and sizes.tp > held.groups:
        text = (
            f"TP={sizes.tp} exceeds the {held.groups} groups of a recurrent mixer: their projections and what their "
            f"convolution keeps are stored {sizes.tp // held.groups} times; lower TP for R or DPA"
        )
        found.append(Diagnostic(name="state-replicated", text=text))
    grows = {cache.name: cache for cache in caches(mixer) if not cache.fixed}
    for cache in grows.values():
        if not cache.split and groups > 1:
            name, begins = REPLICATED[cache.name]
            text = f"{begins} stored {groups} times (TP/DCP); raise DPA or DCP instead of TP"
            found.append(Diagnostic(name=name, text=text))
    if "kv" not in grows:
        return found
    if groups > kv_heads:
        text = f"each kv head is stored {groups // kv_heads} times (TP/DCP over {kv_heads} heads); raise DCP"
        found.append(Diagnostic(name="kv-replicated", text=text))
    if sizes.dcp > 1 and sizes.tp <= kv_heads:
        text = f"TP={sizes.tp} already splits the {kv_heads} kv heads; DCP={sizes.dcp} adds messages and saves no KV"
        found.append(Diagnostic(name="dcp-without-benefit", text=text))
    return found


def _moe(moe: Moe, sizes: Sizes) -> list[Diagnostic]:
    held = moe.experts + moe.redundant
    if held % sizes.ep:
        most = -(-held // sizes.ep)
        text = f"EP={sizes.ep} does not divide {held} experts: some ranks hold {most}; take a divisor"
        return [Diagnostic(name="experts-not-divisible", text=text)]
    return []


def _dense(ffn: Ffn | Matrix, sizes: Sizes) -> list[Diagnostic]:
    if ffn.width % sizes.tp:
        return [Diagnostic(name="width-not-divisible", text=f"TP={sizes.tp} does not divide the FFN width {ffn.width}")]
    return []
