"""Functions that return Functional models."""

from keras_attn.models.language import causal_language_model
from keras_attn.models.recurrent import recurrent_translator
from keras_attn.models.translation import transformer_translator

__all__ = [
    "causal_language_model",
    "recurrent_translator",
    "transformer_translator",
]
