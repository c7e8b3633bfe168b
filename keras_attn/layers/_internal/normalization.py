"""Normalization layers, given by name or as a layer to copy."""

from typing import Any

import keras

from keras_attn._types import DTypeLike
from keras_attn.layers._internal import arguments

__all__ = ["check_normalization", "make_normalization"]

_NORMALIZATIONS = {
    "layer_norm": keras.layers.LayerNormalization,
    "rms_norm": keras.layers.RMSNormalization,
}


def make_normalization(
    normalization: str | keras.layers.Layer,
    epsilon: float,
    name: str,
    dtype: DTypeLike,
    center: bool = True,
) -> keras.layers.Layer:
    """Return a new normalization layer.

    Args:
        normalization: `"layer_norm"`, `"rms_norm"`, or a layer to copy.
        epsilon: float, for the two that are given by name.
        name: name of the new layer.
        dtype: dtype policy of a layer given by name; a copy has its own.
        center: bool, whether `"layer_norm"` has a beta.
    """
    if isinstance(normalization, keras.layers.Layer):
        return arguments.copy_layer(normalization, name)
    options = {} if center or normalization != "layer_norm" else {"center": False}
    layer = _NORMALIZATIONS[normalization](
        epsilon=epsilon, name=name, dtype=dtype, **options
    )
    # It is position-wise, but RMSNormalization does not set this.
    layer.supports_masking = True
    return layer


def check_normalization(name: str, normalization: Any) -> str | keras.layers.Layer:
    """Return `normalization`, deserialized, or raise a ValueError.

    Args:
        name: name of the argument, for the message.
        normalization: a name, a layer, or the config of a layer.

    Raises:
        ValueError: if it is neither a known name nor a layer.
    """
    normalization = arguments.deserialize(normalization)
    is_name = isinstance(normalization, str) and normalization in _NORMALIZATIONS
    if not is_name and not isinstance(normalization, keras.layers.Layer):
        raise ValueError(
            f"`{name}` must be one of {sorted(_NORMALIZATIONS)} or a Keras layer. "
            f"Received: {name}={normalization!r}"
        )
    return normalization
