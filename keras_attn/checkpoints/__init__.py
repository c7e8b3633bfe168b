"""Published models in our layers, and back; layers of Keras and KerasHub as ours.

Weights are read from safetensors files, configs from JSON: no file is run.
"""

from keras_attn.checkpoints.keras_layers import from_keras_layer
from keras_attn.checkpoints.load import load
from keras_attn.checkpoints.save import save

__all__ = ["from_keras_layer", "load", "save"]
