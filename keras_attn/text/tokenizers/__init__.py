"""Tokenizers that are trained on texts."""
