"""The residual connection of the Transformer blocks, in its one place."""

import keras

from keras_attn.layers import arguments

__all__ = ["make_normalization", "residual"]

_NORMALIZATIONS = {
    "layer_norm": keras.layers.LayerNormalization,
    "rms_norm": keras.layers.RMSNormalization,
}


def residual(x, branch, normalization, dropout, normalize_first, training=None):
    """`x` plus what a branch makes of it, normalized before or after.

    Args:
        x: `(B, T, D)`.
        branch: callable from a tensor like `x` to a pair of a tensor like `x` and
            anything else the branch has to tell.
        normalization, dropout: layers.
        normalize_first: bool. True: `x + dropout(branch(normalization(x)))`, False:
            `normalization(x + dropout(branch(x)))`.
        training: bool, whether dropout is on.

    Returns:
        A pair of a tensor like `x` and what the branch told.
    """
    output, told = branch(normalization(x) if normalize_first else x)
    output = x + dropout(output, training=training)
    return output if normalize_first else normalization(output), told


def make_normalization(normalization, epsilon, name, dtype):
    """A normalization layer of a block.

    Args:
        normalization: `"layer_norm"`, `"rms_norm"`, or a layer to make copies of.
        epsilon: float, for the two named ones.
        name, dtype: of the new layer.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(normalization, keras.layers.Layer):
        config = {**normalization.get_config(), "name": name}
        return type(normalization).from_config(config)
    check_normalization(normalization)
    layer = _NORMALIZATIONS[normalization](epsilon=epsilon, name=name, dtype=dtype)
    layer.supports_masking = True  # Position-wise; RMSNormalization does not say so.
    return layer


def check_normalization(normalization):
    """`normalization` if it is one that `make_normalization` takes, else an error."""
    normalization = arguments.deserialize(normalization)
    named = isinstance(normalization, str) and normalization in _NORMALIZATIONS
    if not named and not isinstance(normalization, keras.layers.Layer):
        raise ValueError(
            f"`normalization` must be one of {sorted(_NORMALIZATIONS)} or a Keras "
            f"layer. Received: {normalization=}"
        )
    return normalization
