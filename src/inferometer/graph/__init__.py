"""The graph of costed operations: op kinds, Choices, counts, layouts and the verifier. Counts only, never time."""
