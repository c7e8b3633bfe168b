"""What the layers have in common that add to scores by where query and key stand."""

import keras
from keras import ops

from keras_attn.ops.masks.positions import Span

__all__ = ["PositionBias"]


class PositionBias(keras.layers.Layer):
    """Base of the position biases, which give a `Bias` for a number of heads."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_users = 0  # attention layers that it was given to

    def build(self, scores_shape=None):
        pass

    def bias(self, num_heads):
        """The `keras_attn.ops.position.bias.Bias` of so many heads."""
        raise NotImplementedError

    def call(self, scores, start_index=0):
        if len(scores.shape) != 4:
            raise ValueError(
                f"Layer '{self.name}' takes attention scores of shape (batch, heads, "
                f"queries, keys). Received: scores of shape {tuple(scores.shape)}"
            )
        _, _, length, total = ops.shape(scores)
        if not isinstance(start_index, int):
            start_index = ops.cast(start_index, "int32")
        bias = self.bias(scores.shape[1])
        bias = bias.evaluate(Span(start_index, length), Span(0, total))
        # In float32: half precision would round the biases of far keys together.
        return ops.cast(ops.cast(scores, "float32") + bias, scores.dtype)

    def compute_output_shape(self, scores_shape):
        return scores_shape
