"""Rotary positions: heads turned by where they stand."""

import keras

from keras_attn.layers._internal import arguments
from keras_attn.layers.position.positions import positions_of
from keras_attn.ops.position import rotary

__all__ = ["RotaryPositionEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RotaryPositionEmbedding(keras.layers.Layer):
    """Turns pairs of features of queries or keys by angles of their positions.

    The product of a query and a key so turned depends on how far apart they stand,
    not on where. Nothing is learned and nothing of the length of the text is kept.
    Angles are computed in float32 whatever the dtype policy.

    Args:
        max_wavelength: number above 1, the longest wavelength, over 2 pi; called
            `rope_theta` in published configurations.
        rotary_dim: even int, how many features of a head are rotated, the first ones;
            None: all.
        pairing: "half" makes a pair of features `i` and `i + rotary_dim / 2`
            (GPT-NeoX, Llama), "interleaved" of `2 i` and `2 i + 1` (RoFormer, GPT-J).
        scaling: None, or a dict that says how frequencies are changed for texts
            longer than those of the training, as the `rope_scaling` of published
            configurations: `{"rope_type": "linear", "factor": 4.0}`, or of type "ntk",
            "yarn" or "llama3"; see `keras_attn.ops.position.rotary.rotary_frequencies`.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Call arguments:
        inputs: `(B, T, N, H)` floats: queries or keys, head by head.
        start_index: int or int32 scalar tensor, position of the first token.
        positions: int tensor `(T,)` or `(B, T)`, positions to use in place of
            `start_index, start_index + 1, ...`.

    Returns:
        A tensor like `inputs`.

    Raises:
        ValueError: if an argument is none of the above, at construction; if the width
            of a head is odd or below `rotary_dim`, when it is built.

    Example:
        >>> layer = RotaryPositionEmbedding(max_wavelength=500_000)
        >>> layer(keras.ops.ones((2, 10, 8, 64)), start_index=3).shape
        (2, 10, 8, 64)

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding"
        (https://arxiv.org/abs/2104.09864).
    """

    def __init__(
        self,
        max_wavelength=10000,
        rotary_dim=None,
        pairing="half",
        scaling=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if pairing not in rotary.PAIRINGS:
            raise ValueError(
                f"`pairing` must be one of {rotary.PAIRINGS}. Received: {pairing=}"
            )
        self.max_wavelength = arguments.number(
            "max_wavelength", max_wavelength, least=1, what="a number above 1"
        )
        self.rotary_dim = arguments.positive_int("rotary_dim", rotary_dim, True)
        self.pairing = pairing
        self.scaling = rotary.normalize_scaling(scaling)
        if self.rotary_dim is not None:
            self._frequencies(self.rotary_dim)
        self.supports_masking = True

    def build(self, inputs_shape):
        if len(inputs_shape) != 4 or inputs_shape[-1] is None:
            raise ValueError(
                f"Layer '{self.name}' expects heads of shape (batch, length, heads, "
                f"width), of a known width. Received: {inputs_shape=}"
            )
        self._frequencies(inputs_shape[-1])

    def call(self, inputs, start_index=0, positions=None):
        return self.rotate(inputs, start_index, positions)

    def rotate(self, heads, start_index=0, positions=None):
        """What a call does, as a plain function, for use within another layer."""
        # One row will do to count positions from.
        positions = positions_of(heads[:1, :, 0], start_index, positions)
        frequencies, factor = self._frequencies(heads.shape[-1])
        return rotary.rotate(heads, positions, frequencies, self.pairing, factor)

    def _frequencies(self, head_dim):
        if self.rotary_dim is not None and head_dim < self.rotary_dim:
            raise ValueError(
                f"Layer '{self.name}' rotates {self.rotary_dim} features and expects "
                f"heads at least as wide. Received: heads of width {head_dim}"
            )
        rotary_dim = head_dim if self.rotary_dim is None else self.rotary_dim
        return rotary.rotary_frequencies(rotary_dim, self.max_wavelength, self.scaling)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "rotary_dim": self.rotary_dim,
            "pairing": self.pairing,
            "scaling": None if self.scaling is None else dict(self.scaling),
        }
