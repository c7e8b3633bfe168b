"""The bias of a projection whose matrix is another layer's."""

import keras
from keras import ops

__all__ = ["OutputBias"]


@keras.saving.register_keras_serializable(package="keras_attn")
class OutputBias(keras.layers.Layer):
    """Adds one learned number for each channel of `(..., V)`; they start at zero.

    For logits of `TokenEmbedding(reverse=True)`, which has none.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, inputs_shape):
        self.bias = self.add_weight(
            name="bias", shape=(inputs_shape[-1],), initializer="zeros"
        )

    def call(self, inputs):
        return inputs + ops.convert_to_tensor(self.bias)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape
