"""What the encoder and the decoder block share: arguments, parts, feed-forward."""

import functools

import keras
from keras import activations, initializers

from keras_attn.layers import arguments
from keras_attn.layers.feed_forward import FeedForward
from keras_attn.layers.residual import check_normalization, make_normalization

__all__ = ["TransformerBlock", "build_once"]


class TransformerBlock(keras.layers.Layer):
    """Base of `TransformerEncoder` and `TransformerDecoder`, which document it."""

    def __init__(
        self,
        intermediate_dim,
        num_heads,
        dropout=0,
        activation="relu",
        layer_norm_epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        normalize_first=False,
        *,
        attention=None,
        feed_forward=None,
        normalization="layer_norm",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = arguments.positive_int(
            "intermediate_dim", intermediate_dim
        )
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.dropout = arguments.rate("dropout", dropout)
        self.activation = activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.normalize_first = normalize_first
        # In a partial, since as an attribute Keras would track this layer, which is
        # a pattern to copy and has no weights.
        self._new_normalization = functools.partial(
            make_normalization, check_normalization(normalization), layer_norm_epsilon
        )
        self.attention = arguments.part("attention", attention)
        self.feed_forward = arguments.part("feed_forward", feed_forward)
        self.supports_masking = True

    @property
    def normalization(self):
        return self._new_normalization.args[0]

    def _attention_part(self, layer_class, name):
        return layer_class(
            self.num_heads,
            dropout=self.dropout,
            kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
            bias_initializer=arguments.clone_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def _feed_forward_part(self):
        return FeedForward(
            self.intermediate_dim,
            activation=self.activation,
            kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
            bias_initializer=arguments.clone_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def _normalization_part(self, name, shape):
        layer = self._new_normalization(name=name, dtype=self.dtype_policy)
        layer.build(shape)
        return layer

    def _dropout_part(self, name):
        return keras.layers.Dropout(self.dropout, dtype=self.dtype_policy, name=name)

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "activation": activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "normalize_first": self.normalize_first,
            "attention": arguments.serialize(self.attention),
            "feed_forward": arguments.serialize(self.feed_forward),
            "normalization": arguments.serialize(self.normalization),
        }


def build_once(layer, *shapes):
    """Builds a part, unless it is built already, as one out of a saved config is."""
    if not layer.built:
        layer.build(*shapes)
