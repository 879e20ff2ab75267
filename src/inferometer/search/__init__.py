"""Enumerates shardings, placements and batches; ranks what fits and says why the rest does not."""
