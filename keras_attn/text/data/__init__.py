"""Pipelines from texts to batches of token ids."""
