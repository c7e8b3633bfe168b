"""Pooling of token vectors to one vector per text."""

from typing import Any

import keras
from keras import ops

from keras_attn._types import Tensor

__all__ = ["TokenPooling"]

_POOLINGS = ("first", "mean", "max")


@keras.saving.register_keras_serializable(package="keras_attn")
class TokenPooling(keras.layers.Layer):
    """Pools the vectors of the tokens of a text, `(B, T, D)` to `(B, D)`.

    Args:
        pooling: `"first"`, the vector of the first token; `"mean"` or `"max"` over the
            tokens that are not padding, zeros if there are none.
        **kwargs: `name` and `dtype` of `keras.layers.Layer`.

    Call arguments:
        inputs: floats `(B, T, D)`.
        padding_mask: bool `(B, T)`, True = a real token.

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3
        (https://arxiv.org/abs/1908.10084).
    """

    def __init__(self, pooling: str = "mean", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if pooling not in _POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {list(_POOLINGS)}. "
                f"Received: pooling={pooling!r}"
            )
        self.pooling = pooling
        self.supports_masking = True  # The mask ends here, see `compute_mask`.

    def compute_mask(self, inputs: Tensor, mask: Any = None) -> None:
        return None

    def call(self, inputs: Tensor, padding_mask: Tensor) -> Tensor:
        if self.pooling == "first":
            return inputs[:, 0]
        padding_mask = ops.expand_dims(padding_mask, 2)
        inputs = ops.cast(inputs, "float32")  # for sums over long texts
        if self.pooling == "max":
            pooled = ops.max(ops.where(padding_mask, inputs, -1e30), axis=1)
            pooled = ops.where(ops.any(padding_mask, axis=1), pooled, 0.0)
        else:
            # Keras's pooling layer divides by zero if all tokens are padding.
            count = ops.sum(ops.cast(padding_mask, "float32"), axis=1)
            total = ops.sum(ops.where(padding_mask, inputs, 0.0), axis=1)
            pooled = total / ops.maximum(count, 1.0)
        return ops.cast(pooled, self.compute_dtype)

    def compute_output_spec(
        self, inputs: keras.KerasTensor, padding_mask: Any
    ) -> keras.KerasTensor:
        shape = (inputs.shape[0], inputs.shape[2])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pooling": self.pooling}
