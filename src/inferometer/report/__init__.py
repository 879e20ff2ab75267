"""View models: rows, their schema, tables, the explained step, launch flags. Both faces render these."""
