"""What a mixture of experts stores: router, routed experts with their copies, shared experts, latent projections."""

from inferometer.blocks.tensors import INDEX, Tensor
from inferometer.specs.feedforward import Moe

HASH_ENTRY = "int64"
"""Format of an expert's number in a table of hashed routing: DeepSeek-V4's index totals need eight bytes each."""


def tensors(block: Moe, hidden: int, dtype: str) -> tuple[Tensor, ...]:
    """Return router, routed experts and shared experts."""
    fmt, inner = block.formats, block.latent_width or hidden
    ins = ("gate", "up") if block.gated else ("up",)

    def expert(name: str, rows: int, cols: int, split: str) -> Tensor:
        return Tensor(
            name=name,
            rows=rows,
            cols=cols,
            count=block.experts + block.redundant,
            format=fmt.get(name, dtype),
            kind="experts",
            split_rows="etp" if split == "rows" else "",
            split_cols="etp" if split == "cols" else "",
            split_count="ep",
        )

    found = [
        _whole("router", _router_rows(block), hidden, fmt.get("router", dtype), "router"),
        *(expert(n, block.width, inner, "rows") for n in ins),
        expert("down", inner, block.width, "cols"),
    ]
    if block.bias:
        found += [
            Tensor(
                name=f"{n}_bias",
                rows=block.width if n in ins else inner,
                count=block.experts + block.redundant,
                format=dtype,
                kind="experts",
                split_rows="etp" if n in ins else "",
                split_count="ep",
            )
            for n in (*ins, "down")
        ]
    found += _latent(block, hidden, dtype)
    found += _router_vectors(block, hidden, dtype)
    if block.shared_width:
        names = ("shared_gate_proj", "shared_up") if block.gated else ("shared_up",)
        found += [_shared(n, block.shared_width, hidden, fmt.get(n, dtype), split_rows="tp") for n in names]
        down = fmt.get("shared_down", dtype)
        found.append(_shared("shared_down", hidden, block.shared_width, down, split_cols="tp"))
    if block.shared_gate:
        found.append(_shared("shared_gate", 1, hidden, fmt.get("shared_gate", dtype)))
    return tuple(found)


def _whole(name: str, rows: int, cols: int, fmt: str, kind: str) -> Tensor:
    return Tensor(name=name, rows=rows, cols=cols, format=fmt, kind=kind)


def _router_rows(block: Moe) -> int:
    return block.experts + block.zero_experts + block.routed_shared


def _latent(block: Moe, hidden: int, dtype: str) -> list[Tensor]:
    """Return the projections to and from what experts work on, and the norm between."""
    if not block.latent_width:
        return []
    fmt, inner = block.formats, block.latent_width
    norm = [Tensor(name="latent_norm", rows=inner, format=dtype, kind="norm")] if block.latent_norm else []
    down, up = (fmt.get(name, dtype) for name in ("latent_down", "latent_up"))
    return [
        Tensor(name="latent_down", rows=inner, cols=hidden, format=down, kind="latent", split_rows="tp"),
        *norm,
        Tensor(name="latent_up", rows=hidden, cols=inner, format=up, kind="latent", split_cols="tp"),
    ]


def _router_vectors(block: Moe, hidden: int, dtype: str) -> list[Tensor]:
    """Return the vectors of the router, its table, and the norms of the branches."""
    found = []
    if block.hash_vocab:
        found.append(_whole("hash_table", block.hash_vocab, block.top_k, HASH_ENTRY, INDEX))
    if block.router_bias:
        found.append(Tensor(name="router_bias", rows=block.experts + block.zero_experts, format="fp32", kind="router"))
    if block.router_linear_bias:
        found.append(Tensor(name="router_linear_bias", rows=block.experts, format=dtype, kind="router"))
    if block.router_scales:
        found.append(Tensor(name="router_scale", rows=hidden, format=dtype, kind="router"))
        found.append(Tensor(name="expert_scale", rows=block.experts, format=dtype, kind="router"))
    if block.branch_norms:
        found.append(Tensor(name="branch_norms", rows=hidden, count=block.branch_norms, format=dtype, kind="norm"))
    return found


def _shared(name: str, rows: int, cols: int, fmt: str, *, split_rows: str = "", split_cols: str = "") -> Tensor:
    kind = "shared-experts"
    return Tensor(name=name, rows=rows, cols=cols, format=fmt, kind=kind, split_rows=split_rows, split_cols=split_cols)
