"""Rates and dollars of a pass. Columns or scalars in, the same out.

Letters: B sequences of a DPA rank, R x DPA ranks, n chips. A decode step gives each sequence one token, a prefill
pass takes the prompt of each.
"""

from typing import NamedTuple

from inferometer.estimate.result import Estimate
from inferometer.specs.deployment import Workload
from inferometer.specs.hardware import Price


class Rates(NamedTuple):
    """What a deployment does per second and per dollar. None where it has no meaning yet."""

    tpot_s: float | None
    ttft_s: float | None
    tok_per_s: float
    """Output tokens in decode, prompt tokens in prefill."""
    tok_per_s_per_chip: float
    tok_per_s_per_user: float | None
    usd_per_hour: float | None
    usd_per_mtok_output: float | None
    decode_only_usd_per_mtok_output: float | None
    price_source: str


def rates(estimate: Estimate, workload: Workload, usd_per_chip_hour: float | None, price_source: str) -> Rates:
    """Return the rates of one estimate.

    decode: tok/s = sequences in flight / TPOT. prefill: tok/s = prompts x their tokens (of text and images) / TTFT.
    `usd_per_mtok_output` needs a closed loop of prefill and decode, and stays None until there is one;
    decode alone costs $/h / (3600 tok/s) x 1e6.
    """
    n_chips = estimate.sizes.n_chips
    decode = workload.phase == "decode"
    tokens = estimate.batch * (1 if decode else workload.prompt_tokens)
    tok_per_s = tokens / estimate.step_s
    usd_per_hour = None if usd_per_chip_hour is None else usd_per_chip_hour * n_chips
    decode_only = None if usd_per_hour is None or not decode else usd_per_hour / (3600 * tok_per_s) * 1e6
    return Rates(
        tpot_s=estimate.step_s if decode else None,
        ttft_s=None if decode else estimate.step_s,
        tok_per_s=tok_per_s,
        tok_per_s_per_chip=tok_per_s / n_chips,
        tok_per_s_per_user=1 / estimate.step_s if decode else None,
        usd_per_hour=usd_per_hour,
        usd_per_mtok_output=None,
        decode_only_usd_per_mtok_output=decode_only,
        price_source=price_source,
    )


def price_label(price: Price | None) -> str:
    """Return where a price comes from, as printed: provider, instance, tier, region, date; `none` without one."""
    if price is None:
        return "none"
    parts = (price.provider, price.instance, price.tier, price.region, price.date)
    return " ".join(dict.fromkeys(part for part in parts if part))
