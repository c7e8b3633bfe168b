"""Attention layers for Keras 3: train, decode with a cache, inspect and export."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

# These register all classes of saved models: to load one, `import keras_attn`
# is enough.
from keras_attn import checkpoints, layers, ops, training

if TYPE_CHECKING:  # `__getattr__` imports these on first access.
    from keras_attn import decoding, inspection, models, serving, text

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

if not TYPE_CHECKING:  # A type checker would take any name for an attribute.

    def __getattr__(name: str) -> ModuleType:
        # Import the other parts on first access: `text` and `serving` import
        # TensorFlow and tensorflow_text.
        if name in __all__:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
