"""Learned positions."""

import numbers

import keras
from keras import initializers, ops

from keras_attn.layers import arguments
from keras_attn.layers.positions import positions_of

__all__ = ["PositionEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector for each position to its input.

    Args:
        sequence_length: int, number of positions there are vectors for.
        initializer: initializer of the vectors.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: `(..., T, D)` floats.
        start_index: int or int32 scalar tensor, position of the first token.
        positions: int tensor `(T,)` or `(B, T)`, positions to use in place of
            `start_index, start_index + 1, ...`.

    Returns:
        A tensor like `inputs`.

    Raises:
        ValueError: if `sequence_length` is not a positive int, or the input runs past
            it (as far as its length is known when the call is traced).

    Example:
        >>> PositionEmbedding(sequence_length=128)(keras.Input((None, 64))).shape
        (None, None, 64)

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section
        3.1 (https://arxiv.org/abs/1705.03122).
    """

    def __init__(self, sequence_length, initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.sequence_length = arguments.positive_int(
            "sequence_length", sequence_length
        )
        self.initializer = initializers.get(initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        self.position_embeddings = self.add_weight(
            name="embeddings",
            shape=(self.sequence_length, inputs_shape[-1]),
            initializer=self.initializer,
        )

    def call(self, inputs, start_index=0, positions=None):
        if positions is None:
            self._check_length(inputs.shape[-2], start_index)
        positions = positions_of(inputs, start_index, positions)
        return inputs + ops.take(self.position_embeddings, positions, axis=0)

    def _check_length(self, length, start_index):
        if not isinstance(start_index, numbers.Integral) or length is None:
            return
        if start_index < 0 or start_index + length > self.sequence_length:
            raise ValueError(
                f"Layer '{self.name}' has learned {self.sequence_length} positions "
                "and cannot place others. Received: "
                f"{length} tokens from {start_index=} on"
            )

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(self, inputs, start_index=0, positions=None):
        if positions is None:
            self._check_length(inputs.shape[-2], start_index)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "initializer": initializers.serialize(self.initializer),
        }
