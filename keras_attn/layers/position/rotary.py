"""Rotary position embedding."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_attn._types import Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers.position.positions import token_positions
from keras_attn.ops.position import rotary

__all__ = ["RotaryPositionEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RotaryPositionEmbedding(keras.layers.Layer):
    """Rotates pairs of features of queries or keys by angles of their positions.

    The dot product of a rotated query and key depends on the distance of their
    positions only. Nothing is learned, and any length is possible. Angles are computed
    in float32 regardless of the dtype policy.

    Args:
        max_wavelength: number above 1, the longest wavelength divided by 2 pi; called
            `rope_theta` in published configurations.
        rotary_dim: even int, number of features of a head that are rotated, the first
            ones. Default: all.
        interleaved: bool. False (default) makes pairs of features `i` and
            `i + rotary_dim / 2` (GPT-NeoX, Llama); True of `2 i` and `2 i + 1`
            (RoFormer, GPT-J).
        scaling: None, or a dict that changes the frequencies for texts longer than
            those of the training, as the `rope_scaling` of published configurations:
            `{"rope_type": "linear", "factor": 4.0}`, or of type "ntk", "yarn" or
            "llama3"; see `keras_attn.ops.rotary.rotary_frequencies`.
        **kwargs: `name` and `dtype` of `keras.layers.Layer`.

    Call arguments:
        inputs: floats `(B, T, N, H)`, query or key heads.
        start_index: int or int32 scalar tensor, position of the first token.
        positions: int `(T,)` or `(B, T)`, positions to use instead of
            `start_index, start_index + 1, ...`.

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: for an invalid argument; in `build`, for a head size that is odd or
            below `rotary_dim`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> position = layers.RotaryPositionEmbedding(max_wavelength=500_000)
        >>> attention = layers.MultiHeadSelfAttention(num_heads=8, position=position)
        >>> attention(keras.Input((None, 64))).shape
        (None, None, 64)
        >>> position(keras.Input((10, 8, 64)), start_index=3).shape
        (None, 10, 8, 64)

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding"
        (https://arxiv.org/abs/2104.09864).
    """

    def __init__(
        self,
        max_wavelength: float = 10000,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        scaling: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_wavelength = arguments.number(
            "max_wavelength", max_wavelength, above=1, expected="a number above 1"
        )
        self.rotary_dim = arguments.positive_int("rotary_dim", rotary_dim, True)
        self.interleaved = arguments.boolean("interleaved", interleaved)
        self.scaling = rotary.normalize_scaling(scaling)
        if self.rotary_dim is not None:
            self._frequencies(self.rotary_dim)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        if len(inputs_shape) != 4 or inputs_shape[-1] is None:
            raise ValueError(
                f"Layer '{self.name}' expects heads of shape (batch, length, heads, "
                f"head size) with a known head size. Received: {inputs_shape=}"
            )
        self._frequencies(inputs_shape[-1])

    def call(
        self, inputs: Tensor, start_index: Any = 0, positions: Tensor | None = None
    ) -> Tensor:
        return self.rotate(inputs, start_index, positions)

    def rotate(
        self, heads: Tensor, start_index: Any = 0, positions: Tensor | None = None
    ) -> Tensor:
        """Apply the layer as a plain function, for use inside another layer."""
        # One batch element is enough to count positions.
        positions = token_positions(heads[:1, :, 0], start_index, positions)
        frequencies, factor = self._frequencies(heads.shape[-1])
        return rotary.rotate(
            heads, positions, frequencies, interleaved=self.interleaved, factor=factor
        )

    def _frequencies(self, head_dim: int) -> Any:
        if self.rotary_dim is not None and head_dim < self.rotary_dim:
            raise ValueError(
                f"Layer '{self.name}' rotates {self.rotary_dim} features and expects "
                f"heads of at least this size. Received: heads of size {head_dim}"
            )
        rotary_dim = head_dim if self.rotary_dim is None else self.rotary_dim
        return rotary.rotary_frequencies(rotary_dim, self.max_wavelength, self.scaling)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "rotary_dim": self.rotary_dim,
            "interleaved": self.interleaved,
            "scaling": None if self.scaling is None else dict(self.scaling),
        }
