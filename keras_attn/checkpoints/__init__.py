"""Published models in our layers, and back.

Weights are read from safetensors files, configs from JSON: no file is run.
"""

from keras_attn.checkpoints.load import load
from keras_attn.checkpoints.save import save

__all__ = ["load", "save"]
