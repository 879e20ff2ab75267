"""Frozen scalar types: model, chip, fabric, deployment, workload, engine, price."""
