"""Speculative decoding: a drafter guesses k tokens, the model checks them in one pass of k + 1 rows a sequence.

Letters: k lookahead, a acceptance: the chance that a drafted token is taken once those before it were.

A pass gives 1 + a + a^2 + ... + a^k tokens: the model's own one, and each drafted token where all before it were taken
(Leviathan et al., arXiv:2211.17192, equation 1). Speed-up is tokens a pass x a decode step over the time of k drafts
and a verify. A tree of several guesses a place is told by the mean of the tokens taken.
"""


def tokens_per_pass(acceptance: float, lookahead: int) -> float:
    """Return (1 - a^(k+1)) / (1 - a), and k + 1 where a is 1.

    >>> round(tokens_per_pass(0.75, 4), 4), tokens_per_pass(1.0, 4), tokens_per_pass(0.0, 4)
    (3.0508, 5.0, 1.0)
    """
    if acceptance >= 1:
        return lookahead + 1.0
    return float((1 - acceptance ** (lookahead + 1)) / (1 - acceptance))


def speedup(tokens: float, decode_s: float, draft_passes: int, draft_s: float, verify_s: float) -> float:
    """Return tokens a second with speculation over those without.

    >>> speedup(3.0, 1.0, 4, 0.1, 1.1)
    2.0
    """
    return tokens * decode_s / (draft_passes * draft_s + verify_s)
