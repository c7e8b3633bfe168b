"""Text in, text out: translators and SavedModels. Needs the TensorFlow backend."""

from keras_attn.serving.export_translator import export_translator
from keras_attn.serving.translator import Translator

__all__ = ["Translator", "export_translator"]
