"""Layers of Keras and KerasHub as layers of ours."""

import keras

from keras_attn import layers

__all__ = ["from_keras_layer"]


def from_keras_layer(layer):
    """Our layer with the settings and the weights of one of Keras's or KerasHub's.

    Takes `keras.layers.MultiHeadAttention` and `keras.layers.GroupQueryAttention`,
    which become a `MultiHeadAttention`, and `keras_hub.layers.TransformerEncoder` and
    `TransformerDecoder`, which become those of ours. The weights are copied. Name,
    dtype policy and `trainable` come along; whether flash attention is used does not,
    as `attention_kernel` decides that.

    Args:
        layer: a built layer, alone or out of a model. Subclasses are not taken: what
            they do otherwise is not known.

    Returns:
        A layer of `keras_attn.layers`, built.

    Raises:
        TypeError: for another layer.
        ValueError: for a layer that is not built, for weights that ours has no place
            for (adapters that are not merged, quantized kernels), and for what ours
            does not do: attention over more than one axis, an output of several axes,
            an activity regularizer, heads that do not divide a block's width.

    Example:
        >>> theirs = keras.layers.MultiHeadAttention(num_heads=4, key_dim=8)
        >>> theirs.build((None, None, 32), (None, None, 32))
        >>> ours = from_keras_layer(theirs)
        >>> ours(keras.ops.ones((2, 5, 32)), keras.ops.ones((2, 7, 32))).shape
        (2, 5, 32)
    """
    ours = _counterpart(layer)
    if not layer.built:
        raise ValueError(
            "Expected a layer that has been built, or called. "
            f"Received: layer={layer.name!r}, built=False"
        )
    made = ours.from_config(_settings(layer))
    # The arguments of `build` go by the same names in all houses.
    made.build_from_config(layer.get_build_config())
    _copy_weights(layer, made)
    return made


def _counterpart(layer):
    """The class of ours that does what a layer of theirs does."""
    cls = type(layer)
    if cls in (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention):
        return layers.MultiHeadAttention
    # By name: who converts a layer of KerasHub has imported it, we need not.
    of_hub = cls.__module__.partition(".")[0] in ("keras_hub", "keras_nlp")
    if of_hub and cls.__name__ in ("TransformerEncoder", "TransformerDecoder"):
        return getattr(layers, cls.__name__)
    raise TypeError(
        "Expected a keras.layers.MultiHeadAttention or GroupQueryAttention, or a "
        "keras_hub.layers.TransformerEncoder or TransformerDecoder. "
        f"Received: a layer of type {cls.__module__}.{cls.__name__}"
    )


# What goes by another name with us, and what we have no argument for.
_RENAMED = {
    "head_dim": "key_dim",
    "num_query_heads": "num_heads",
    "num_key_value_heads": "num_key_value_heads",
    "output_shape": "output_dim",
    "sliding_window": "window",
    "use_gate": "use_gate",
}
_DROPPED = (
    *("activity_regularizer", "attention_axes"),
    *("decoder_sequence_shape", "encoder_sequence_shape"),
)


def _settings(layer):
    """The config of a layer of ours, of that of theirs."""
    config = layer.get_config()
    axes = config.get("attention_axes", (1,))
    output_shape = config.get("output_shape") or (None,)
    regularizer = config.get("activity_regularizer")
    if tuple(axes) != (1,) or len(output_shape) != 1 or regularizer is not None:
        raise ValueError(
            "Attention of ours is over the second axis of three, gives one axis of "
            "features, and has no regularizer of activities. Received: layer="
            f"{layer.name!r}, attention_axes={axes}, {output_shape=}, "
            f"activity_regularizer={regularizer}"
        )
    if "output_shape" in config:
        (config["output_shape"],) = output_shape
    if "activation" in config:
        # Any function, where a config has only those that are registered.
        config["activation"] = layer.activation
    return {_RENAMED.get(k, k): v for k, v in config.items() if k not in _DROPPED}


def _copy_weights(theirs, ours):
    """They come in the same order, but for an attention's gate, which is our last."""
    weights = sorted(theirs.weights, key=lambda w: w.path.split("/")[-2] == "gate")
    found, expected = ([tuple(w.shape) for w in x] for x in (weights, ours.weights))
    if found != expected:
        raise ValueError(
            "Expected plain weights: merge adapters before, and convert a layer "
            f"before it is quantized. Received: layer={theirs.name!r} with "
            f"{[weight.path for weight in weights]}"
        )
    ours.set_weights([keras.ops.convert_to_numpy(weight) for weight in weights])
