"""Counts and a chip to seconds: backends, collectives, schedulers. Knows graph and specs only."""
