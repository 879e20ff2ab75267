"""What tokens cost and how much energy they take. Plain arithmetic, columns or scalars.

Letters: B sequences in flight over the deployment, O output tokens and I prompt tokens of a request, d the seconds of
a decode step of B, p the seconds of one prompt a rank and b the prompts of such a pass, u utilisation: the share of
the hour in which the deployment is busy with this batch, H $/h.

With every slot full, O - 1 decode steps and the prefills of B prompts follow each other, so B requests take

    cycle = (O - 1) d + (B / b) p,    requests/s = B / cycle,    prefill's share = (B / b) p / cycle.

$ a million tokens: output H / (output tokens/h), input H x prefill's share / (prompt tokens/h), blended H over all
tokens; decode alone H / (3600 B / d). Each over tokens of a busy hour times u.
Source: the definitions of docs/money.md; derived. Left out: what waits in front of the engine, which moves no dollar.
"""

from typing import NamedTuple

HOURS_PER_MONTH = 730.0
"""Hours a month: 8760 / 12."""

IDLE_SHARE = 0.3
"""Power at rest over the power limit (`assumed`)."""

J_PER_KWH = 3.6e6


class Cycle(NamedTuple):
    """Prefill and decode of a full deployment, in a busy second."""

    requests_per_s: float
    output_tok_per_s: float
    input_tok_per_s: float
    prefill_share: float
    """Of the time."""


def full_cycle(*, batch: int, osl: int, prompt_tokens: int, decode_s: float, prefill_s: float, prompts: int) -> Cycle:
    """Return the rates of a deployment whose `batch` slots are always full; a pass of `prompts` takes `prefill_s`.

    >>> full_cycle(batch=10, osl=101, prompt_tokens=50, decode_s=0.01, prefill_s=0.1, prompts=1)
    Cycle(requests_per_s=5.0, output_tok_per_s=505.0, input_tok_per_s=250.0, prefill_share=0.5)
    """
    prefills_s = batch / prompts * prefill_s
    cycle_s = (osl - 1) * decode_s + prefills_s
    rate = batch / cycle_s
    return Cycle(rate, rate * osl, rate * prompt_tokens, prefills_s / cycle_s)


def usd_per_mtok(usd_per_hour: float, tok_per_s: float, utilization: float = 1.0) -> float:
    """Return dollars of a million tokens.

    >>> usd_per_mtok(3.6, 1000.0), usd_per_mtok(3.6, 1000.0, 0.5)
    (1.0, 2.0)
    """
    return usd_per_hour / (3600 * tok_per_s * utilization) * 1e6


def power_w(tdp_w: float, busy_share: float) -> float:
    """Return TDP x (0.3 + 0.7 x busy): what a chip draws when its fuller resource is busy for that share of time.

    >>> power_w(700, 0), round(power_w(700, 1), 6)
    (210.0, 700.0)
    """
    return tdp_w * (IDLE_SHARE + (1 - IDLE_SHARE) * min(busy_share, 1.0))


def joules_per_mtok(power_w: float, tok_per_s: float) -> float:
    """Return joules of a million tokens, of what draws `power_w` and gives `tok_per_s` on average."""
    return power_w / tok_per_s * 1e6


class Owned(NamedTuple):
    """Hardware that is bought: dollars of all chips with their hosts, and of power."""

    capex_usd: float
    lifetime_years: float
    usd_per_kwh: float
    pue_ratio: float
    """Power of the site over that of the chips."""

    @property
    def capex_usd_per_hour(self) -> float:
        """Straight line: capex over its hours, 12 months of 730."""
        return self.capex_usd / (self.lifetime_years * 12 * HOURS_PER_MONTH)

    def energy_usd_per_hour(self, power_w: float) -> float:
        """Return dollars an hour of power at the chips."""
        return power_w / 1000 * self.pue_ratio * self.usd_per_kwh


def even_utilization(fixed_usd_per_hour: float, busy_usd_per_hour: float, tok_per_s: float, usd: float) -> float | None:
    """Return the utilisation u at which a million tokens cost `usd`; None where no u up to 1 does.

    (fixed + busy u) / (3600 tok/s u) x 1e6 = usd, so u = fixed / (usd x 3600 tok/s / 1e6 - busy).

    >>> even_utilization(3.6, 0.0, 1000.0, 4.0)
    0.25
    >>> even_utilization(3.6, 0.0, 1000.0, 0.9) is None
    True
    """
    left = usd * 3600 * tok_per_s / 1e6 - busy_usd_per_hour
    if left <= 0:
        return None
    share = fixed_usd_per_hour / left
    return share if share <= 1 else None
