"""Models with their tokenizers, as TensorFlow functions and SavedModels.

This subpackage requires the TensorFlow backend.
"""

from keras_attn.serving.export_language_model import export_language_model
from keras_attn.serving.export_text_model import export_text_model
from keras_attn.serving.export_translator import export_translator
from keras_attn.serving.text_generator import TextGenerator
from keras_attn.serving.text_model import TextModel
from keras_attn.serving.translator import Translator

__all__ = [
    "TextGenerator",
    "TextModel",
    "Translator",
    "export_language_model",
    "export_text_model",
    "export_translator",
]
