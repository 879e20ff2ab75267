"""Rates and dollars of a pass. Columns or scalars in, the same out.

Letters: B sequences of a DPA rank, R x DPA ranks, n chips. What tok/s counts: a decode step gives each sequence one
token; a prefill takes the prompt of each, an extend what is new of it; of a verify one token a sequence is certain,
the one after the draft is refused, and up to 1 + k come where the draft is taken.
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
    """Output tokens in decode, those that are certain in verify; prompt tokens in prefill, new ones in extend."""
    tok_per_s_per_chip: float
    tok_per_s_per_user: float | None
    usd_per_hour: float | None
    usd_per_mtok_output: float | None
    decode_only_usd_per_mtok_output: float | None
    price_source: str


def rates(estimate: Estimate, workload: Workload, usd_per_chip_hour: float | None, price_source: str) -> Rates:
    """Return the rates of one estimate.

    decode: tok/s = sequences in flight / TPOT. verify: the same, of the token that is certain; speculation multiplies
    it by the tokens a pass gives on average. prefill, extend: tok/s = prompts x their new tokens (of text and images)
    / TTFT, all prompts in one pass.
    `usd_per_mtok_output` needs a closed loop of prefill and decode, and stays None until there is one;
    decode alone costs $/h / (3600 tok/s) x 1e6.
    """
    n_chips = estimate.sizes.n_chips
    decode = workload.generates
    tok_per_s = estimate.batch * tokens_certain(workload) / estimate.step_s
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


def tokens_certain(workload: Workload) -> int:
    """Return the tokens of a sequence that a pass is sure to give or, of a prompt, to take."""
    return 1 if workload.generates else workload.new_tokens


def price_label(price: Price | None) -> str:
    """Return where a price comes from, as printed: provider, instance, tier, region, date; `none` without one."""
    if price is None:
        return "none"
    parts = (price.provider, price.instance, price.tier, price.region, price.date)
    return " ".join(dict.fromkeys(part for part in parts if part))
