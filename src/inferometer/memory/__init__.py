"""Weights, KV and a stated reserve a chip, and how many sequences that leaves room for."""
