"""Tokenizers of published models, read from their folders."""
