"""Conversion of published models and of Keras and KerasHub layers.

Weights are read from safetensors files and configs from JSON files: no code from a
checkpoint is executed.
"""

from keras_attn.checkpoints.keras_layers import from_keras_layer
from keras_attn.checkpoints.load import load
from keras_attn.checkpoints.save import save

__all__ = ["from_keras_layer", "load", "save"]
