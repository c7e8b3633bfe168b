"""Learned position embedding."""

import numbers
from typing import Any

import keras
import numpy as np
from keras import initializers, ops

from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers.position.positions import token_positions

__all__ = ["PositionEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector for each position to its input.

    Args:
        sequence_length: int, number of positions that have a vector.
        initializer: initializer of the vectors.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: floats `(..., T, D)`.
        start_index: int or int32 scalar tensor, position of the first token.
        positions: int `(T,)` or `(B, T)`, positions to use instead of
            `start_index, start_index + 1, ...`.

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: if `sequence_length` is not a positive int, or the input is longer
            (if its length is known when the call is traced).

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> layer = layers.PositionEmbedding(sequence_length=128)
        >>> layer(keras.Input((None, 64))).shape
        (None, None, 64)
        >>> layer.resize(512).sequence_length
        512

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section
        3.1 (https://arxiv.org/abs/1705.03122).
    """

    def __init__(
        self,
        sequence_length: int,
        initializer: InitializerLike = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sequence_length = arguments.positive_int(
            "sequence_length", sequence_length
        )
        self.initializer = initializers.get(initializer)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        self.position_embeddings = self.add_weight(
            name="embeddings",
            shape=(self.sequence_length, inputs_shape[-1]),
            initializer=self.initializer,
        )

    def call(
        self, inputs: Tensor, start_index: Any = 0, positions: Tensor | None = None
    ) -> Tensor:
        if positions is None:
            self._check_length(inputs.shape[-2], start_index)
        positions = token_positions(inputs, start_index, positions)
        return inputs + ops.take(self.position_embeddings, positions, axis=0)

    def _check_length(self, length: int | None, start_index: Any) -> None:
        if not isinstance(start_index, numbers.Integral) or length is None:
            return
        if start_index < 0 or start_index + length > self.sequence_length:
            raise ValueError(
                f"Layer '{self.name}' has vectors for {self.sequence_length} "
                "positions; use a shorter input, or `resize` the layer. Received: "
                f"{length} tokens from {start_index=} on"
            )

    def resize(
        self, sequence_length: int, method: str = "extend"
    ) -> "PositionEmbedding":
        """Return a new layer, built, for a different number of positions.

        The new layer has the name and all settings of this one, which does not change.
        To use it in a model, rebuild the model, for instance with
        `keras.models.clone_model` and a `clone_function` that returns it.

        Args:
            sequence_length: int, the new number of positions.
            method: `"extend"` keeps the vectors, drops the last ones if there are now
                fewer positions, and initializes additional ones like a new layer: they
                must be trained. `"interpolate"` stretches the whole table: each new
                vector is interpolated linearly between the two nearest old ones, as in
                resizing an image (position `i` is at `(i + 0.5) * old / new - 0.5`).
                It is for one axis; a table of image patches has two.

        Returns:
            A `PositionEmbedding`.

        Raises:
            ValueError: if this layer is not built, `sequence_length` is not a positive
                int, or the method is unknown.

        Example:
            >>> from keras_attn import layers
            >>> layer = layers.PositionEmbedding(sequence_length=128)
            >>> layer.build((None, None, 64))
            >>> longer = layer.resize(256, method="interpolate")
            >>> tuple(longer.position_embeddings.shape)
            (256, 64)
        """
        if method not in ("extend", "interpolate"):
            raise ValueError(
                f"`method` must be 'extend' or 'interpolate'. Received: {method=}"
            )
        if not self.built:
            raise ValueError(
                f"Layer '{self.name}' has no vectors to resize before it is built: "
                "call the layer or its `build` first. Received: built=False"
            )
        # Checked here since Keras wraps the errors of a constructor.
        arguments.positive_int("sequence_length", sequence_length)
        resized = type(self).from_config(
            {**self.get_config(), "sequence_length": sequence_length}
        )
        resized.build((None, None, self.position_embeddings.shape[-1]))
        old = ops.convert_to_numpy(self.position_embeddings).astype("float32")
        if method == "interpolate":
            new = _interpolate(old, resized.sequence_length)
        else:
            initial = ops.convert_to_numpy(resized.position_embeddings)
            old = old[: resized.sequence_length]
            new = np.concatenate([old, initial.astype("float32")[len(old) :]])
        resized.position_embeddings.assign(new)
        return resized

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def compute_output_spec(
        self,
        inputs: keras.KerasTensor,
        start_index: Any = 0,
        positions: Tensor | None = None,
    ) -> keras.KerasTensor:
        if positions is None:
            self._check_length(inputs.shape[-2], start_index)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "initializer": initializers.serialize(self.initializer),
        }


def _interpolate(table: np.ndarray, length: int) -> np.ndarray:
    """Interpolate `table` `(positions, D)` at `length` evenly spaced positions."""
    positions = (np.arange(length) + 0.5) * (len(table) / length) - 0.5
    positions = np.clip(positions, 0, len(table) - 1)
    before = np.floor(positions).astype(int)
    after = np.minimum(before + 1, len(table) - 1)
    share = (positions - before).astype(table.dtype)[:, None]
    return (1 - share) * table[before] + share * table[after]
