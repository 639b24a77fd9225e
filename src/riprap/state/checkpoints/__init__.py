"""Durable checkpoints of an operator's state: increments in a store, and manifests that name them."""
