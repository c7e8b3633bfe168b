"""Transformer blocks and their parts."""
