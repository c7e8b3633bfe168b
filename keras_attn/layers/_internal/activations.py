"""Activation functions that Keras has no name for."""

import keras

from keras_attn._types import Tensor

__all__ = ["gelu_tanh", "quick_gelu"]


@keras.saving.register_keras_serializable(package="keras_attn")
def gelu_tanh(x: Tensor) -> Tensor:
    """Apply the tanh approximation of GELU, as in GPT-2 and T5 1.1."""
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_attn")
def quick_gelu(x: Tensor) -> Tensor:
    """Return `x * sigmoid(1.702 * x)`."""
    return x * keras.ops.sigmoid(1.702 * x)
