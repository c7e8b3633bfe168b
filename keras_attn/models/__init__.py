"""Functions that return Functional models."""

from keras_attn.models.translation import transformer_translator

__all__ = ["transformer_translator"]
