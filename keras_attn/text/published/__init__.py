"""Tokenizers of published models, loaded from the folders of the models."""
