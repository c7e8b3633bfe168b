"""Activations that Keras has no name for."""

import keras

__all__ = ["gelu_tanh", "quick_gelu"]


@keras.saving.register_keras_serializable(package="keras_attn")
def gelu_tanh(x):
    """GELU by the hyperbolic tangent, as GPT-2 and T5 v1.1 have it."""
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_attn")
def quick_gelu(x):
    """`x` times the sigmoid of `1.702 x`."""
    return x * keras.ops.sigmoid(1.702 * x)
