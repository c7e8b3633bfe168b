"""One vector of those of a text's tokens."""

import keras
from keras import ops

__all__ = ["TokenPooling"]

_POOLINGS = ("first", "mean", "max")


@keras.saving.register_keras_serializable(package="keras_attn")
class TokenPooling(keras.layers.Layer):
    """One vector of the vectors of a text's tokens, `(B, T, D)` to `(B, D)`.

    Args:
        pooling: `"first"`, the first token's; `"mean"` or `"max"` over the tokens that
            are kept, zeros where there are none.

    Call arguments:
        inputs: `(B, T, D)`.
        keep: bool `(B, T)`, True = no padding.

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3
        (https://arxiv.org/abs/1908.10084).
    """

    def __init__(self, pooling="mean", **kwargs):
        super().__init__(**kwargs)
        if pooling not in _POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {list(_POOLINGS)}. "
                f"Received: pooling={pooling!r}"
            )
        self.pooling = pooling
        self.supports_masking = True  # The mask ends here.

    def compute_mask(self, inputs, mask=None):
        return None

    def call(self, inputs, keep):
        if self.pooling == "first":
            return inputs[:, 0]
        keep = ops.expand_dims(keep, 2)
        inputs = ops.cast(inputs, "float32")  # for sums over long texts
        if self.pooling == "max":
            found = ops.max(ops.where(keep, inputs, -1e30), axis=1)
            found = ops.where(ops.any(keep, axis=1), found, 0.0)
        else:
            # Keras's pooling layer divides by zero where all is padding.
            count = ops.sum(ops.cast(keep, "float32"), axis=1)
            total = ops.sum(ops.where(keep, inputs, 0.0), axis=1)
            found = total / ops.maximum(count, 1.0)
        return ops.cast(found, self.compute_dtype)

    def compute_output_spec(self, inputs, keep):
        shape = (inputs.shape[0], inputs.shape[2])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling}
