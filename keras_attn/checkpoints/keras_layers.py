"""Conversion of Keras and KerasHub layers to keras_attn layers."""

from typing import Any

import keras

from keras_attn import layers

__all__ = ["from_keras_layer"]


def from_keras_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Convert a Keras or KerasHub layer to a keras_attn layer with the same weights.

    `keras.layers.MultiHeadAttention` and `keras.layers.GroupQueryAttention` become a
    `MultiHeadAttention`; `keras_hub.layers.TransformerEncoder` and `TransformerDecoder`
    become the layers of the same name. The weights are copied. The name, the dtype
    policy and `trainable` are preserved; the use of flash attention is not, because
    `attention_kernel` decides it.

    Args:
        layer: built `keras.layers.Layer`, on its own or part of a model. Subclasses of
            the classes above are not supported: they may compute something else.

    Returns:
        A built layer of `keras_attn.layers`.

    Raises:
        TypeError: for a layer of any other class.
        ValueError: for a layer that is not built, for weights without a counterpart
            (adapters that are not merged, quantized weights), and for options without a
            counterpart: attention over more than one axis, an output with several
            feature axes, an activity regularizer, or a number of heads that does not
            divide the width of a block.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.checkpoints import from_keras_layer
        >>> keras_layer = keras.layers.MultiHeadAttention(num_heads=4, key_dim=8)
        >>> query, value = np.ones((2, 5, 32)), np.ones((2, 7, 32))
        >>> expected = keras_layer(query, value)
        >>> layer = from_keras_layer(keras_layer)
        >>> np.allclose(layer(query, value), expected, atol=1e-5)
        True
    """
    cls = _layer_class(layer)
    if not layer.built:
        raise ValueError(
            "Expected a layer that has been built; call it once on its inputs. "
            f"Received: layer={layer.name!r}, built=False"
        )
    converted = cls.from_config(_converted_config(layer))
    # `build` has the same arguments in Keras, KerasHub and keras_attn.
    converted.build_from_config(layer.get_build_config())
    _copy_weights(layer, converted)
    return converted


def _layer_class(layer: keras.layers.Layer) -> type[keras.layers.Layer]:
    """Return the keras_attn class for a Keras or KerasHub layer."""
    cls = type(layer)
    if cls in (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention):
        return layers.MultiHeadAttention
    # Compared by name, so that KerasHub need not be imported here.
    is_keras_hub = cls.__module__.partition(".")[0] in ("keras_hub", "keras_nlp")
    if is_keras_hub and cls.__name__ in ("TransformerEncoder", "TransformerDecoder"):
        return getattr(layers, cls.__name__)
    raise TypeError(
        "Expected a keras.layers.MultiHeadAttention or GroupQueryAttention, or a "
        "keras_hub.layers.TransformerEncoder or TransformerDecoder. "
        f"Received: a layer of type {cls.__module__}.{cls.__name__}"
    )


# Arguments with a different name in keras_attn, and those that it does not have.
_RENAMED = {
    "head_dim": "key_dim",
    "num_query_heads": "num_heads",
}
_DROPPED = (
    *("activity_regularizer", "attention_axes"),
    *("decoder_sequence_shape", "encoder_sequence_shape"),
)


def _converted_config(layer: keras.layers.Layer) -> dict[str, Any]:
    """Return the config of the keras_attn layer for a Keras or KerasHub layer."""
    config: dict[str, Any] = layer.get_config()
    axes = config.get("attention_axes", (1,))
    output_shape = config.get("output_shape") or (None,)
    regularizer = config.get("activity_regularizer")
    if tuple(axes) != (1,) or len(output_shape) != 1 or regularizer is not None:
        raise ValueError(
            "Expected attention over the second of three axes, an output with one "
            "feature axis and no activity regularizer. Received: layer="
            f"{layer.name!r}, attention_axes={axes}, {output_shape=}, "
            f"activity_regularizer={regularizer}"
        )
    if "output_shape" in config:
        (config["output_shape"],) = output_shape
    if "activation" in config:
        # The function itself: the config of an unregistered function is only a name.
        config["activation"] = layer.activation
    return {_RENAMED.get(k, k): v for k, v in config.items() if k not in _DROPPED}


def _copy_weights(source: keras.layers.Layer, target: keras.layers.Layer) -> None:
    """Copy the weights in order, the weights of a gate last."""
    weights = sorted(source.weights, key=lambda w: w.path.split("/")[-2] == "gate")
    shapes, expected = ([tuple(w.shape) for w in x] for x in (weights, target.weights))
    if shapes != expected:
        raise ValueError(
            "Expected plain weights; merge adapters first, and convert a layer before "
            f"it is quantized. Received: layer={source.name!r} with "
            f"{[weight.path for weight in weights]}"
        )
    target.set_weights([keras.ops.convert_to_numpy(weight) for weight in weights])
