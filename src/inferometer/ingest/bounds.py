"""Limits of sanity for the values of a config, far above any model."""

MAX_HIDDEN = 10**7
MAX_HEADS = 10**5
MAX_WIDTH = 10**8
MAX_LAYERS = 10_000
MAX_EXPERTS = 100_000
MAX_TOKENS = 10**9
MAX_VOCAB = 10**8
MAX_MTP = 1_000
