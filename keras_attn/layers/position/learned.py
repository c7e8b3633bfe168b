"""Learned positions."""

import numbers

import keras
import numpy as np
from keras import initializers, ops

from keras_attn.layers._internal import arguments
from keras_attn.layers.position.positions import positions_of

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
        >>> layer = PositionEmbedding(sequence_length=128)
        >>> layer(keras.Input((None, 64))).shape
        (None, None, 64)
        >>> layer.resize(512).sequence_length
        512

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

    def resize(self, sequence_length, method="extend"):
        """A new layer, built, with vectors for another number of positions.

        The new layer has the name and all settings of this one, which stays as it is.
        To put it into a model, build the model anew around it, for instance with
        `keras.models.clone_model` and a `clone_function` that returns it.

        Args:
            sequence_length: int, the new number of positions.
            method: "extend" keeps the vectors, leaves out the last ones where there
                are now fewer positions, and gives the further ones the values of a
                fresh layer: they have to be trained. "interpolate" stretches the
                whole table: each new vector lies on the line between the two old
                ones around it, in the manner of a resized image (new position `i`
                stands at `(i + 0.5) * old / new - 0.5`). It is for one axis: a table
                of image patches, row by row, is not resized by it.

        Returns:
            A `PositionEmbedding`.

        Raises:
            ValueError: if this layer has not been built, `sequence_length` is not a
                positive int, or `method` is neither.

        Example:
            >>> layer = PositionEmbedding(sequence_length=128)
            >>> layer.build((None, None, 64))
            >>> layer.resize(256, method="interpolate").position_embeddings.shape
            (256, 64)
        """
        if method not in ("extend", "interpolate"):
            raise ValueError(
                f"`method` must be 'extend' or 'interpolate'. Received: {method=}"
            )
        if not self.built:
            raise ValueError(
                f"Layer '{self.name}' has no vectors to resize before it is built: "
                "call it, or its `build`, first. Received: built=False"
            )
        # Checked here since Keras wraps what a constructor raises.
        arguments.positive_int("sequence_length", sequence_length)
        resized = type(self).from_config(
            {**self.get_config(), "sequence_length": sequence_length}
        )
        resized.build((None, None, self.position_embeddings.shape[-1]))
        old = ops.convert_to_numpy(self.position_embeddings).astype("float32")
        if method == "interpolate":
            new = _stretched(old, resized.sequence_length)
        else:
            fresh = ops.convert_to_numpy(resized.position_embeddings)
            kept = old[: resized.sequence_length]
            new = np.concatenate([kept, fresh.astype("float32")[len(kept) :]])
        resized.position_embeddings.assign(new)
        return resized

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


def _stretched(table, length):
    """`table`, `(positions, D)`, at `length` places evenly spread over it."""
    places = (np.arange(length) + 0.5) * (len(table) / length) - 0.5
    places = np.clip(places, 0, len(table) - 1)
    before = np.floor(places).astype(int)
    after = np.minimum(before + 1, len(table) - 1)
    share = (places - before).astype(table.dtype)[:, None]
    return (1 - share) * table[before] + share * table[after]
