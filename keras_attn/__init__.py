"""Attention layers for Keras: stack, train, decode with a cache, look, export."""

import importlib

# These register what a saved model may hold: to load one, importing us is enough.
from keras_attn import checkpoints, layers, ops, training

__version__ = "0.1.0"

__all__ = [
    "checkpoints",
    "decoding",
    "inspection",
    "layers",
    "models",
    "ops",
    "serving",
    "text",
    "training",
]


def __getattr__(name):
    # `text` and `serving` import TensorFlow and tensorflow_text: only when touched.
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*__all__, "__version__"]
