"""ALiBi: scores that fall with the distance of query and key."""

import keras

from keras_attn.layers.position.position_bias import PositionBias
from keras_attn.ops.position import bias as biases

__all__ = ["AlibiPositionBias"]


@keras.saving.register_keras_serializable(package="keras_attn")
class AlibiPositionBias(PositionBias):
    """Attention scores minus the distance of query and key, times a slope a head.

    Nothing is learned. Given to an attention layer as `position=`, or called on scores.

    Args:
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Call arguments:
        scores: `(B, N, T, S)` floats.
        start_index: int or int32 scalar tensor, position of the first query, where
            keys start at 0.

    Returns:
        A tensor like `scores`.

    Example:
        >>> layer = MultiHeadSelfAttention(num_heads=8, position=AlibiPositionBias())
        >>> layer(keras.ops.ones((2, 10, 64)), use_causal_mask=True).shape
        (2, 10, 64)

    Reference:
        Press et al. 2021, "Train Short, Test Long: Attention with Linear Biases Enables
        Input Length Extrapolation" (https://arxiv.org/abs/2108.12409).
    """

    def bias(self, num_heads):
        """The `keras_attn.ops.position.bias.Bias` of so many heads."""
        return biases.alibi(biases.alibi_slopes(num_heads))
