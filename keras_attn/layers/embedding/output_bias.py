"""A bias for logits of a tied projection."""

from typing import Any

import keras
from keras import ops

from keras_attn._types import Shape, Tensor

__all__ = ["OutputBias"]


@keras.saving.register_keras_serializable(package="keras_attn")
class OutputBias(keras.layers.Layer):
    """Adds a learned bias to each channel of `(..., V)`, initially zero.

    It is for the logits of `TokenEmbedding(reverse=True)`, which has no bias.

    Args:
        **kwargs: `name` and `dtype` of `keras.layers.Layer`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        self.bias = self.add_weight(
            name="bias", shape=(inputs_shape[-1],), initializer="zeros"
        )

    def call(self, inputs: Tensor) -> Tensor:
        return inputs + ops.convert_to_tensor(self.bias)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape
