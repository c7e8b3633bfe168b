"""Sinusoidal position embedding."""

from typing import Any

import keras
from keras import ops

from keras_attn._types import Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers.position.positions import token_positions
from keras_attn.ops import sinusoids

__all__ = ["SinusoidalPositionEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class SinusoidalPositionEmbedding(keras.layers.Layer):
    """Adds sines and cosines of the position to its input.

    Works for any length and any width, odd ones included. Angles are computed in
    float32 regardless of the dtype policy, since half precision cannot distinguish
    positions above a few hundred.

    Args:
        max_wavelength: number, the longest wavelength divided by 2 pi.
        interleaved: bool. True (default) is the layout of the paper: sin, cos, sin,
            ...; False puts all sines first, then all cosines.
        **kwargs: `name` and `dtype` of `keras.layers.Layer`.

    Call arguments:
        inputs: floats `(..., T, D)`.
        start_index: int or int32 scalar tensor, position of the first token.
        positions: int `(T,)` or `(B, T)`, positions to use instead of
            `start_index, start_index + 1, ...`.

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: for a wavelength that is not a positive number, or an `interleaved`
            that is not a bool.

    Example:
        >>> import numpy as np
        >>> from keras_attn import layers
        >>> x = layers.SinusoidalPositionEmbedding()(np.zeros((1, 2, 4), "float32"))
        >>> [[f"{number:.2f}" for number in token] for token in np.array(x)[0]]
        [['0.00', '1.00', '0.00', '1.00'], ['0.84', '0.54', '0.01', '1.00']]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5
        (https://arxiv.org/abs/1706.03762).
    """

    def __init__(
        self, max_wavelength: float = 10000, interleaved: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.max_wavelength = arguments.number(
            "max_wavelength", max_wavelength, 0, expected="a positive number"
        )
        self.interleaved = arguments.boolean("interleaved", interleaved)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        """Do nothing: the layer has no weights."""

    def call(
        self, inputs: Tensor, start_index: Any = 0, positions: Tensor | None = None
    ) -> Tensor:
        positions = token_positions(inputs, start_index, positions)
        encoding = sinusoids(
            positions, inputs.shape[-1], self.max_wavelength, self.interleaved
        )
        return inputs + ops.cast(encoding, inputs.dtype)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "interleaved": self.interleaved,
        }
