"""Normalization layers by name, or made after a pattern."""

import keras

from keras_attn.layers._internal import arguments

__all__ = ["check_normalization", "make_normalization"]

_NORMALIZATIONS = {
    "layer_norm": keras.layers.LayerNormalization,
    "rms_norm": keras.layers.RMSNormalization,
}


def make_normalization(normalization, epsilon, name, dtype, center=True):
    """A normalization layer.

    Args:
        normalization: `"layer_norm"`, `"rms_norm"`, or a layer to make a copy of.
        epsilon: float, for the two named ones.
        name: of the new layer.
        dtype: of a named one; a copy keeps its own.
        center: bool, whether `"layer_norm"` has a beta.
    """
    if isinstance(normalization, keras.layers.Layer):
        return arguments.copy_of(normalization, name)
    options = {} if center or normalization != "layer_norm" else {"center": False}
    layer = _NORMALIZATIONS[normalization](
        epsilon=epsilon, name=name, dtype=dtype, **options
    )
    layer.supports_masking = True  # Position-wise; RMSNormalization does not say so.
    return layer


def check_normalization(name, normalization):
    """`normalization` if it is a name or a layer that can be had, else an error."""
    normalization = arguments.deserialize(normalization)
    named = isinstance(normalization, str) and normalization in _NORMALIZATIONS
    if not named and not isinstance(normalization, keras.layers.Layer):
        raise ValueError(
            f"`{name}` must be one of {sorted(_NORMALIZATIONS)} or a Keras layer. "
            f"Received: {name}={normalization!r}"
        )
    return normalization
