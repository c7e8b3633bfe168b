"""Functions that return Functional models."""

from keras_attn.models.language import causal_language_model
from keras_attn.models.masked_language import masked_language_model, text_classifier
from keras_attn.models.recurrent import recurrent_translator
from keras_attn.models.translation import transformer_translator
from keras_attn.models.vision import vision_transformer

__all__ = [
    "causal_language_model",
    "masked_language_model",
    "recurrent_translator",
    "text_classifier",
    "transformer_translator",
    "vision_transformer",
]
