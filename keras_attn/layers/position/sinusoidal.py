"""Fixed positions: sines and cosines."""

import keras
from keras import ops

from keras_attn.layers.position.positions import positions_of
from keras_attn.ops import sinusoids

__all__ = ["SinusoidalPositionEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class SinusoidalPositionEmbedding(keras.layers.Layer):
    """Adds sines and cosines of the position to its input.

    Works for any length and any width, odd ones included. Angles are computed in
    float32 whatever the dtype policy, since half precision cannot tell positions
    past a few hundred apart.

    Args:
        max_wavelength: number, the longest wavelength, over 2 pi.
        interleaved: bool. True (default) is the paper's layout: sin, cos, sin, ...;
            False puts all sines first, then all cosines.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Call arguments:
        inputs: `(..., T, D)` floats.
        start_index: int or int32 scalar tensor, position of the first token.
        positions: int tensor `(T,)` or `(B, T)`, positions to use in place of
            `start_index, start_index + 1, ...`.

    Returns:
        A tensor like `inputs`.

    Example:
        >>> SinusoidalPositionEmbedding()(keras.ops.zeros((1, 2, 4)))
        [[[0., 1., 0., 1.], [0.841, 0.540, 0.010, 1.000]]]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5
        (https://arxiv.org/abs/1706.03762).
    """

    def __init__(self, max_wavelength=10000, interleaved=True, **kwargs):
        super().__init__(**kwargs)
        if not max_wavelength > 0:
            raise ValueError(
                f"`max_wavelength` must be positive. Received: {max_wavelength=}"
            )
        self.max_wavelength = max_wavelength
        self.interleaved = interleaved
        self.supports_masking = True

    def build(self, inputs_shape):
        pass

    def call(self, inputs, start_index=0, positions=None):
        positions = positions_of(inputs, start_index, positions)
        encoding = sinusoids(
            positions, inputs.shape[-1], self.max_wavelength, self.interleaved
        )
        return inputs + ops.cast(encoding, inputs.dtype)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "interleaved": self.interleaved,
        }
