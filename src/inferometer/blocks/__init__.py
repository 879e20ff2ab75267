"""One module a block kind: tensors, cache and ops from one declaration of shapes, shards and replication."""
